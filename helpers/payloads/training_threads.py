"""The threads of training, as the payloads start them.

A thread for each device entry of each role; each builds its own steps, one for each shape, and
takes them in turn.  Sent along with the payloads that need it.  Python 3.9 and newer.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import prewarm
import throughput
import torch_facts
import workload_steps
from protocol import Reporter

STOP_TIMEOUT_S = 30.0
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
        self.todo: list[workload_steps.Step] = []
        self._torch, self._build, self._shapes = torch, build, role["shapes"]

    def build(self) -> None:
        """Build one step for each shape, in the calling thread."""
        device, role = self.facts["device"], self.facts["role"]
        started = time.perf_counter()
        for shape in self._shapes:
            self._torch.manual_seed(workload_steps.SEED)
            self.todo.append(self._build(device, role, dict(shape)))
        torch_facts.synchronize(self._torch, device)
        self.facts["build_s"] = time.perf_counter() - started

    def take_each(self) -> None:
        """Take every step once, in the calling thread."""
        for step in self.todo:
            self._take(step, self.facts["device"])

    def run(self) -> None:
        """Build, take the first steps, go on. Whatever is raised is kept for the main thread."""
        try:
            if not self.todo:
                self.build()
            first = time.perf_counter()
            self.take_each()
            self.facts["first_steps_s"] = time.perf_counter() - first
            self.ready.set()
            while not self.halt.is_set():
                self._take(self.todo[len(self.steps) % len(self.todo)], self.facts["device"])
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


def warm_one_by_one(workers: Sequence[Worker]) -> dict[str, Any]:
    """What a training does that calls ``prewarm`` before it starts its threads."""
    for worker in workers:
        worker.build()
    return prewarm.prewarm([worker.take_each for worker in workers])


def stop(workers: list[Worker], reporter: Reporter) -> None:
    """Ask the threads to stop, wait for them, note what they raised and which did not stop."""
    for worker in workers:
        worker.halt.set()
    until = time.monotonic() + STOP_TIMEOUT_S
    for number, worker in enumerate(workers):
        if worker.ident is not None:
            worker.join(max(0.0, until - time.monotonic()))
        noted = any(error["where"] == f"threads[{number}]" for error in reporter.errors)
        if worker.failure is not None and not noted:
            reporter.error(f"threads[{number}]", worker.failure)
        elif worker.is_alive() and not noted:
            message = f"{worker.name} did not stop within {STOP_TIMEOUT_S:g} s"
            reporter.error(f"threads[{number}]", message, kind="DidNotStop")


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
