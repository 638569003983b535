"""One process that starts training's threads, and what became of it.

All steps are built by one thread, as training builds its models; then every thread takes its first
ones at once, as training does; or, with ``prewarm``, one thread makes all first steps before the
others start.  When all threads have their
first steps behind them, steps are counted for ``seconds``.  A thread that raises does not end the
others: how many of them fail is part of the answer.

Parameters (JSON):

- ``workload``: the workload file
- ``roles``: ``[{"name", "devices": [str], "shapes": [{}]}]``
- ``torch_threads``: for ``torch.set_num_threads`` (default 1)
- ``prewarm``: whether to start with the remedy (default false)
- ``seconds``: length of the counted window (default 2)
- ``patience_s``: how long the others may take for their first steps once a thread has failed
  (default 20)

A start that hangs is ended by the watchdog at ``deadline_s``, with the stacks of all threads.

**Changes:** whatever the workload itself writes.  torch works in a private copy of the compile
cache (see ``cache_copy``), so that a start that goes wrong leaves nothing in the cache.

``measured``; what was not reached stays null, what a thread raised is in its ``error`` and, with
its traceback, in ``errors`` under ``threads[i]``; exit code 0. ::

    {torch: {version, git_version, cuda, hip}, environment: {}, cache_copy: {..}|null,
     devices: {device: name}, prewarm: what ``prewarm`` returned|null,
     phase: import|prewarm|first_steps|window|done|failed: how far it came,
     process_wide_flag: whether this torch has one tracing flag for all threads,
     tracing: {looks, up} at that flag while the threads took their first steps,
     threads: [{role, device, index, build_s, first_steps_s, tokens: in the window,
                steps_completed, losses: [[of the first steps] for each shape],
                module_calls: [of one step of each shape, once all threads have ended]|null,
                guards: {error_on_nested_fx_trace, replaced: [{name, by: file}]} as it sees them,
                error: null|str, stopped: bool}],
     first_steps_s, window_s, tok_per_s: of all roles,
     compile: {before: counters until the window, window: inside it|null, reasons: {..}},
     over_limit: compilations given up at the recompile limit,
     residue: {fx_flag_stuck, compiling_flag_stuck, module__call__patched,
               module__getattr__patched} when no thread runs any more; null = not looked at,
     memory: {peak_rss_bytes, devices: {..}}, load: {.., own: {own_cores, own_wait_cores}}|null}

Sent along with it: ``protocol``, ``cache_copy``, ``folders``, ``cpu_use``, ``throughput``,
``torch_facts``, ``tracing``, ``training_threads``, ``prewarm``, ``workload_steps``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import cache_copy
import cpu_use
import throughput
import torch_facts
import tracing
import training_threads
import workload_steps
from protocol import REQUIRED, Param, Reporter, run

SCHEMA = 1
KEPT_LOSSES = 3
LOOK_EVERY_S = 0.002
PROGRESS_EVERY_S = 1.0
KEPT_OF_SUMMARY = ("role", "device", "index", "build_s", "first_steps_s", "tokens",
                   "steps_completed", "losses", "module_calls", "guards", "error", "stopped")  # fmt: skip
NOT_YET = ("devices", "prewarm", "process_wide_flag", "tracing", "first_steps_s",
           "window_s", "tok_per_s", "compile", "over_limit", "residue", "memory", "load")  # fmt: skip
PARAMS = {
    "workload": Param(str, REQUIRED),
    "roles": Param(list, REQUIRED, items=dict),
    "torch_threads": Param(int, 1),
    "prewarm": Param(bool, False),
    "seconds": Param(float, 2.0),
    "patience_s": Param(float, 20.0),
}


class Starter(training_threads.Worker):
    """A thread of training that keeps its first losses, and how it sees torch's guards."""

    watched: tracing.Tracing | None = None

    def run(self) -> None:
        """As in training."""
        super().run()
        assert self.watched is not None
        self.facts["guards"] = self.watched.guards()

    def count_modules(self) -> None:
        """Take one more step of each shape, watched, when no thread runs any more."""
        self.facts["module_calls"] = [tracing.module_calls(self._torch, step) for step in self.todo]

    def _take(self, step: workload_steps.Step, device: str) -> None:
        super()._take(step, device)
        kept = self.facts["losses"][self.todo.index(step)]
        if len(kept) < KEPT_LOSSES:
            kept.append(workload_steps.loss(step))


def measure(params: dict[str, Any], reporter: Reporter) -> None:
    """Start the threads, see how far they come, and what they leave behind."""
    roles, measured = params["roles"], reporter.measured
    workload_steps.check_roles(roles)
    measured.update(phase="import", threads=[], cache_copy=cache_copy.use_copy(reporter))
    measured.update(dict.fromkeys(NOT_YET), environment=torch_facts.environment())
    reporter.progress(phase="import")
    import torch

    torch.set_num_threads(params["torch_threads"])
    watched = tracing.Tracing(torch)
    counters = torch_facts.CompileCounters(torch)
    devices = list(dict.fromkeys(device for role in roles for device in role["devices"]))
    cpu = cpu_use.cpu_model()
    measured["torch"] = torch_facts.build(torch)
    measured["devices"] = {d: torch_facts.device_name(torch, d, cpu) for d in devices}
    starters = _starters(torch, workload_steps.load(params["workload"]), roles)
    measured["threads"] = [starter.facts for starter in starters]
    for starter in starters:
        starter.watched = watched
    measured["process_wide_flag"] = watched.process_wide
    torch_facts.reset_peaks(torch, devices)
    try:
        _build(params, starters, reporter)
        if _first_steps(params, starters, watched, reporter):
            _count(params["seconds"], starters, counters, reporter)
    finally:
        training_threads.stop(starters, reporter)
        compiled = measured["compile"] or {"before": counters.read(), "window": None}
        measured["compile"] = {**compiled, "reasons": counters.reasons()}
        measured["over_limit"] = tracing.over_limit(torch)
        if not any(starter.is_alive() for starter in starters):
            measured["residue"] = watched.residue()
            for starter in starters if measured["phase"] == "done" else ():
                with reporter.guard("module_calls"):
                    starter.count_modules()
        measured["memory"] = torch_facts.memory(torch, devices)


def _starters(
    torch: ModuleType, build: workload_steps.Build, roles: list[dict[str, Any]]
) -> list[Starter]:
    empty = dict.fromkeys(KEPT_OF_SUMMARY)
    starters = []
    for role in roles:
        for index, device in enumerate(role["devices"]):
            facts = {**empty, "role": role["name"], "device": device, "index": index}
            facts.update(losses=[[] for _ in role["shapes"]], stopped=False)
            starters.append(Starter(torch, build, role, index, facts))
    return starters


def _build(params: dict[str, Any], starters: Sequence[Starter], reporter: Reporter) -> None:
    """Build all steps in this thread; with the remedy, make every first step as well."""
    if params["prewarm"]:
        reporter.measured["phase"] = "prewarm"
        reporter.progress(phase="prewarm")
        reporter.measured["prewarm"] = training_threads.warm_one_by_one(starters)
        return
    for starter in starters:
        starter.build()


def _first_steps(
    params: dict[str, Any],
    starters: Sequence[Starter],
    watched: tracing.Tracing,
    reporter: Reporter,
) -> bool:
    """Start all threads at once and wait for their first steps. Whether all of them came through.

    What hangs is ended by the watchdog: how long a first step may take is for the caller to say.
    """
    measured = reporter.measured
    measured["phase"] = "first_steps"
    began = told = time.perf_counter()
    until: float | None = None
    for starter in starters:
        starter.start()
    watched.look()  # once at least: steps that are warm can be over at the next look
    while any(s.failure is None and not s.ready.is_set() for s in starters):
        now = time.perf_counter()
        watched.look()
        if until is None and any(s.failure is not None for s in starters):
            until = now + params["patience_s"]
        if until is not None and now > until:
            break
        if now - told >= PROGRESS_EVERY_S:
            told = now
            ready = sum(s.ready.is_set() for s in starters)
            reporter.progress(phase="first_steps", ready=ready, threads=len(starters))
        time.sleep(LOOK_EVERY_S)
    measured["tracing"] = {"looks": watched.looks, "up": watched.up}
    if all(s.ready.is_set() and s.failure is None for s in starters):
        measured["first_steps_s"] = time.perf_counter() - began
        return True
    measured["phase"] = "failed"
    return False


def _count(
    seconds: float,
    starters: Sequence[Starter],
    counters: torch_facts.CompileCounters,
    reporter: Reporter,
) -> None:
    """Count steps and tokens for a while, and what is compiled meanwhile."""
    measured = reporter.measured
    measured["phase"] = "window"
    reporter.progress(phase="window")
    compiled, load, begin = counters.read(), cpu_use.sample(), time.perf_counter()
    uses = [cpu_use.own_use()]
    while time.perf_counter() - begin < seconds and not any(s.failure for s in starters):
        time.sleep(0.05)
    uses.append(cpu_use.own_use())
    end = time.perf_counter()
    known = [use for use in uses if use is not None]
    measured["load"] = {
        **cpu_use.between(load, cpu_use.sample()),
        "own": cpu_use.own_cores(known, begin, end),
    }
    measured["compile"] = {
        "before": compiled,
        "window": torch_facts.difference(compiled, counters.read()),
    }
    training_threads.stop(starters, reporter)
    if any(s.failure for s in starters):
        measured["phase"] = "failed"
        return
    told = throughput.summary(starters, begin, end, starters[0].facts["role"])
    for starter in starters:
        for name in set(starter.facts) - set(KEPT_OF_SUMMARY):
            del starter.facts[name]
    measured["window_s"] = told["window_s"]
    measured["tok_per_s"] = sum(role["tok_per_s"] for role in told["roles"].values())
    measured["phase"] = "done"


if __name__ == "__main__":
    run("threads", SCHEMA, PARAMS, measure, deadline_s=300.0)
