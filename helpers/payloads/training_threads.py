"""Training's own threads: one for each device entry of each role, each with steps of its own.

Sent along with the payloads that start training's layout.  Standard library and torch only,
Python 3.9 and newer.
"""

from __future__ import annotations

import threading
import time
from types import ModuleType
from typing import Any

import throughput
import torch_facts
import workload_steps

# What a thread's facts get later, and what stays null when it does not come to that.
LATER = ("build_s", "first_steps_s", "warm_up_steps", "steps_completed", "step_s", "steps",
         "tokens", "tok_per_s", "error")  # fmt: skip


class Worker(threading.Thread):
    """One thread of training: builds its steps, then takes them in turn until told to stop."""

    def __init__(
        self,
        torch: ModuleType,
        build: workload_steps.Build,
        role: dict[str, Any],
        index: int,
        facts: dict[str, Any],
    ) -> None:
        super().__init__(name=f"{role['name']}{index}", daemon=True)
        self.facts = facts
        self.steps: list[throughput.Step] = []
        self.ready = threading.Event()
        self.failure: BaseException | None = None
        self.halt = threading.Event()
        self._torch, self._build, self._shapes = torch, build, role["shapes"]

    def run(self) -> None:
        """Build, take the first steps, go on. Whatever is raised is kept for the main thread."""
        device, role = self.facts["device"], self.facts["role"]
        try:
            started = time.perf_counter()
            todo = [self._build(device, role, dict(shape)) for shape in self._shapes]
            torch_facts.synchronize(self._torch, device)
            first = time.perf_counter()
            self.facts["build_s"] = first - started
            for step in todo:
                self._take(step, device)
            self.facts["first_steps_s"] = time.perf_counter() - first
            self.ready.set()
            while not self.halt.is_set():
                self._take(todo[len(self.steps) % len(todo)], device)
        except BaseException as error:  # sys.exit in user code ends its thread as well
            self.failure = error
            self.facts["error"] = f"{type(error).__name__}: {error}"
        finally:
            self.facts["stopped"] = True

    def _take(self, step: workload_steps.Step, device: str) -> None:
        started = time.perf_counter()
        tokens = workload_steps.take(step)
        torch_facts.synchronize(self._torch, device)
        self.steps.append(throughput.Step(started, time.perf_counter(), tokens))


def make_workers(
    torch: ModuleType, build: workload_steps.Build, roles: list[dict[str, Any]]
) -> list[Worker]:
    """A thread, not yet started, for each device entry of each role."""
    empty = dict.fromkeys(LATER)
    return [
        Worker(
            torch,
            build,
            role,
            i,
            {"role": role["name"], "device": d, "index": i, **empty, "stopped": False},
        )
        for role in roles
        for i, d in enumerate(role["devices"])
    ]


class Calm:
    """How long, and for how many steps of every thread, nothing has been compiled."""

    def __init__(
        self,
        workers: list[Worker],
        compiled: int,
        *,
        least_s: float,
        least_steps: int,
        longest_s: float,
    ) -> None:
        self.compiled = compiled
        self._least_s, self._least_steps, self._longest_s = least_s, least_steps, longest_s
        self._workers, self._since_s = workers, 0.0
        self._had = [len(worker.steps) for worker in workers]

    def long_enough(self, elapsed_s: float, compiled: int) -> bool:
        """Begin anew when something was compiled meanwhile; say whether counting may begin."""
        if elapsed_s >= self._longest_s:
            return True
        if compiled != self.compiled:
            self.compiled, self._since_s = compiled, elapsed_s
            self._had = [len(worker.steps) for worker in self._workers]
        taken = (len(w.steps) - n for w, n in zip(self._workers, self._had))
        calm_s = elapsed_s - self._since_s
        return calm_s >= self._least_s and all(n >= self._least_steps for n in taken)
