"""A short throughput measurement in training's own thread layout.

One process, one thread for each device entry of each role, all started at once; each builds its own
steps (one for each shape, taken in turn) and takes its own first ones, as training does.  When
every thread has its first steps behind it and the warm-up is over, tokens are counted for
``seconds``.  A device is synchronised after each step.

Parameters (JSON):

- ``workload``: the workload file
- ``roles``: ``[{"name", "devices": [str], "shapes": [{}]}]``
- ``torch_threads``: for ``torch.set_num_threads`` (default 1)
- ``seconds``: length of the measured window (default 15)
- ``warmup_seconds``, ``warmup_steps``: discarded after the first steps, and after whatever was
  still compiled then: at least so long, and at least so many steps of every thread (default 3 s,
  3 steps).  A call that meets another thread's compilation may run eager and compile only later.
- ``warmup_longest_seconds``: counting begins then even though something is still being compiled,
  which the window's counters tell (default 60)
- ``counted_role``: whose tokens are the throughput (default: the last role)
- ``prewarm``: start as a training does that calls ``prewarm``: all steps are built and made first
  by one thread, before the others start (default false)

**Changes:** whatever the workload itself writes.  The compile cache stays as it is: torch works in a
private copy of it (see ``cache_copy``), where it is named by ``TORCHINDUCTOR_CACHE_DIR``.

``measured``; what was not reached stays null.  A thread that raises ends the measurement at once:
its ``error`` is set, ``errors`` has the traceback under ``threads[i]``, ``tok_per_s`` is null, exit
code 0. ::

    {torch: {version, git_version, cuda, hip}, environment: {}, cpu_model,
     cache_copy: {files, bytes, copied_s}|null, devices: {device: name}, counted_role,
     files: {path relative to the workload's folder: sha256|null} every one that was loaded from it,
     phase: import|first_steps|warm_up|window|done: how far it came,
     threads: [{role, device, index: among the role's, build_s, first_steps_s,
                warm_up_steps: discarded,
                steps_completed: wholly inside the window,
                step_s: {median, p05, p95, min, max}|null,
                steps: [{t_s, duration_s, tokens, steps}],
                tokens: in the window, tok_per_s, error: null|str, stopped: bool}],
     first_steps_s: until all threads had theirs,
     warm_up: {seconds, steps, compilations: of these how many came while it went on},
     window_s, tok_per_s: the counted role's,
     series: [{t_s, tok_per_s, own_cores, own_wait_cores}] of the counted role in bins of 0.5 s,
             with the cores that this process used and those that its ready threads waited for,
     roles: {name: {threads, tokens, tok_per_s, series}},
     compile: {before: counters until the window (or the end, when there was none),
               window: counters inside it|null, reasons: {..}},
     memory: {peak_rss_bytes: since the start,
              devices: {device: {peak_allocated_bytes, peak_reserved_bytes}} inside the window},
     load: {cores, machine_cores, own_cores, other_cores, stolen_cores, loadavg_before,
            loadavg_after, heaviest_others: [{pid, command, cores}]} averages over the window}

``t_s`` counts from the window's start.  A step that lies partly in the window or in a bin counts
with that part of its tokens.  At most 2000 entries in a thread's ``steps``: beyond that neighbours
are joined (``steps`` > 1, ``duration_s`` their mean, ``tokens`` their sum).

Sent along with it: ``protocol``, ``torch_facts``, ``workload_steps``, ``training_threads``,
``prewarm``, ``cache_copy``, ``folders``, ``cpu_use``, ``throughput``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import ModuleType
from typing import Any

import cache_copy
import cpu_use
import throughput
import torch_facts
import workload_steps
from protocol import REQUIRED, Param, ParamsRefused, Reporter, run
from training_threads import Calm, Worker, make_workers, stop, warm_one_by_one

SCHEMA = 1
POLL_S = 0.05
PROGRESS_EVERY_S = 1.0
OWN_USE_EVERY_S = 0.25
NOT_YET = ("first_steps_s", "warm_up", "window_s", "tok_per_s", "series", "roles", "load")
PARAMS = {
    "workload": Param(str, REQUIRED),
    "roles": Param(list, REQUIRED, items=dict),
    "torch_threads": Param(int, 1),
    "seconds": Param(float, 15.0),
    "warmup_seconds": Param(float, 3.0),
    "warmup_steps": Param(int, 3),
    "warmup_longest_seconds": Param(float, 60.0),
    "counted_role": Param(str, None),
    "prewarm": Param(bool, False),
}


class ThreadFailed(Exception):
    """A thread raised: there is nothing left to measure."""


def measure(params: dict[str, Any], reporter: Reporter) -> None:
    """Start the threads, wait until they are steady, count, stop them."""
    roles, measured = params["roles"], reporter.measured
    workload_steps.check_roles(roles)
    names = [role["name"] for role in roles]
    counted = params["counted_role"] or names[-1]
    if counted not in names:
        raise ParamsRefused(f"counted_role {counted!r} is not one of the roles {', '.join(names)}")
    cpu_model = cpu_use.cpu_model()
    measured.update(phase="import", cpu_model=cpu_model, files=None, counted_role=counted)
    measured.update(cache_copy=cache_copy.use_copy(reporter), environment=torch_facts.environment())
    measured.update(dict.fromkeys(NOT_YET))
    reporter.progress(phase="import")
    import torch

    torch.set_num_threads(params["torch_threads"])
    counters = torch_facts.CompileCounters(torch)
    devices = list(dict.fromkeys(device for role in roles for device in role["devices"]))
    measured["torch"] = torch_facts.build(torch)
    measured["devices"] = {
        device: torch_facts.device_name(torch, device, cpu_model) for device in devices
    }
    workers = make_workers(torch, workload_steps.load(params["workload"]), roles)
    measured["threads"] = [worker.facts for worker in workers]
    try:
        if params["prewarm"]:
            reporter.progress(phase="prewarm")
            warm_one_by_one(workers)
        _steady(params, workers, counters, reporter)
        _count(torch, params["seconds"], workers, counters, reporter)
    except ThreadFailed:
        reporter.progress(phase="thread_failed")
    finally:
        stop(workers, reporter)
        measured["files"] = workload_steps.loaded_files(params["workload"])
        measured.setdefault("compile", {"before": counters.read(), "window": None})
        measured["compile"]["reasons"] = counters.reasons()
        measured["memory"] = torch_facts.memory(torch, devices)


def _steady(
    params: dict[str, Any],
    workers: list[Worker],
    counters: torch_facts.CompileCounters,
    reporter: Reporter,
) -> None:
    """Start the threads and wait until all have their first steps and the warm-up behind them."""
    started = time.perf_counter()
    for worker in workers:
        worker.start()
    _wait("first_steps", workers, reporter, lambda _: all(w.ready.is_set() for w in workers))
    reporter.measured["first_steps_s"] = time.perf_counter() - started
    had = {worker: len(worker.steps) for worker in workers}
    compiled = counters.read()["compilations"]
    calm = Calm(
        workers,
        compiled,
        least_s=params["warmup_seconds"],
        least_steps=params["warmup_steps"],
        longest_s=params["warmup_longest_seconds"],
    )
    seconds = _wait(
        "warm_up",
        workers,
        reporter,
        lambda elapsed_s: calm.long_enough(elapsed_s, counters.read()["compilations"]),
    )
    for worker, n in had.items():
        worker.facts["warm_up_steps"] = len(worker.steps) - n
    reporter.measured["warm_up"] = {
        "seconds": seconds,
        "steps": sum(worker.facts["warm_up_steps"] for worker in workers),
        "compilations": calm.compiled - compiled,
    }


def _count(
    torch: ModuleType,
    seconds: float,
    workers: list[Worker],
    counters: torch_facts.CompileCounters,
    reporter: Reporter,
) -> None:
    """Count the tokens of the window, and look at everything else that happens in it."""
    measured = reporter.measured
    compiled = counters.read()
    torch_facts.reset_peaks(torch, measured["devices"])
    load, begin = cpu_use.sample(), time.perf_counter()
    uses = [use] if (use := cpu_use.own_use()) else []

    def over(elapsed_s: float) -> bool:
        if uses and time.perf_counter() - uses[-1].at_s >= OWN_USE_EVERY_S:
            uses.append(cpu_use.own_use() or uses[-1])
        return elapsed_s >= seconds

    _wait("window", workers, reporter, over)
    end = time.perf_counter()
    uses += [use] if (use := cpu_use.own_use()) else []
    measured["load"] = cpu_use.between(load, cpu_use.sample())
    measured["compile"] = {
        "before": compiled,
        "window": torch_facts.difference(compiled, counters.read()),
    }
    # The steps under way at the end still count with their part: let them end first.
    stop(workers, reporter)
    measured.update(throughput.summary(workers, begin, end, measured["counted_role"]))
    for one in measured["series"]:
        start = begin + one["t_s"]
        one.update(cpu_use.own_cores(uses, start, start + throughput.BIN_S))
    measured["phase"] = "done"


def _wait(
    phase: str, workers: list[Worker], reporter: Reporter, over: Callable[[float], bool]
) -> float:
    """Wait until ``over(elapsed seconds)`` or a thread's failure; return the seconds waited."""
    reporter.measured["phase"] = phase
    started = time.perf_counter()
    told = 0.0
    while True:
        elapsed = time.perf_counter() - started
        for number, worker in enumerate(workers):
            if worker.failure is not None:
                raise ThreadFailed(number)
        if over(elapsed):
            return elapsed
        if elapsed >= told:
            told = elapsed + PROGRESS_EVERY_S
            ready = sum(worker.ready.is_set() for worker in workers)
            reporter.progress(
                phase=phase, elapsed_s=round(elapsed, 1), ready=ready, threads=len(workers)
            )
        time.sleep(POLL_S)


if __name__ == "__main__":
    run("benchmark", SCHEMA, PARAMS, measure, deadline_s=600.0)
