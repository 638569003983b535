"""Fill the compile cache, or prove that it is full: one thread, every role, device and shape.

Parameters (JSON):

- ``workload``: the workload file
- ``roles``: ``[{"name", "devices": [str], "shapes": [{}]}]``
- ``torch_threads``: for ``torch.set_num_threads``, which is part of a compiled CPU kernel (default
  1)
- ``mode``: ``"warm"`` or ``"prove"``; the same work, so that a second process finds what the first
  one left
- ``in_copy``: work in a private copy of the cache, which is removed at the end (default false)
- ``steps``: training steps for each entry, at least 2 (default 3)

Variables: ``TORCHINDUCTOR_CACHE_DIR`` must be set (refused with exit code 2 otherwise);
``TORCHINDUCTOR_COMPILE_THREADS`` should be 1.  Both are recorded.

**Changes:** the compile cache unless ``in_copy``, and whatever the workload itself writes.

``measured`` (an entry that failed has its reason in ``error`` and in ``errors``; the others are
still done)::

    {mode, cache_dir, cache_copy: {files, bytes, copied_s}|null, compile_threads: str|null, environment: {},
     torch: {version, git_version, cuda, hip}, files: {name: sha256|null}, import_s, load_s,
     entries: [{role, device, shape, build_s, first_step_s, later_step_s: median|null,
                tokens: of the last step, losses: [of each step, where it says],
                module_calls: modules that Python entered in one more step: few when compiled,
                counters: {fxgraph_cache_hit, fxgraph_cache_miss, fxgraph_cache_bypass,
                           aot_autograd_cache_hit, aot_autograd_cache_miss,
                           aot_autograd_cache_bypass, aot_autograd_cache_saved, unique_graphs,
                           graph_breaks, compilations, recompilations, failed_compilations},
                cache_before: {files, bytes}, cache_after: {files, bytes},
                memory: {peak_rss_bytes,
                         devices: {device: {peak_allocated_bytes, peak_reserved_bytes}}},
                error: null|str}],
     totals: {counters: {..}, first_steps_s, cache_before, cache_after},
     reasons: {graph_breaks: [str], recompilations: [str], failures: [str]}}

``later_step_s`` is the median of all steps but the first.  A counter is what that entry added.
``files`` are those loaded from the workload's folder, relative to it.

Sent along with it: ``protocol``, ``folders``, ``cache_copy``, ``torch_facts``, ``tracing``,
``workload_steps``.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import cache_copy
import folders
import torch_facts
import tracing
import workload_steps
from protocol import REQUIRED, Param, ParamsRefused, Reporter, run

SCHEMA = 1
# What an entry gets later, and what stays null when it does not come to that.
LATER = ("build_s", "first_step_s", "later_step_s", "tokens", "module_calls", "error")
PARAMS = {
    "workload": Param(str, REQUIRED),
    "roles": Param(list, REQUIRED, items=dict),
    "torch_threads": Param(int, 1),
    "mode": Param(str, REQUIRED, choices=("warm", "prove")),
    "steps": Param(int, 3),
    "in_copy": Param(bool, False),
}


def entries(roles: list[dict[str, Any]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Every role with each of its distinct devices and each of its shapes, as declared."""
    for role in roles:
        for device in dict.fromkeys(role["devices"]):
            for shape in role["shapes"]:
                yield role["name"], device, shape


def measure(params: dict[str, Any], reporter: Reporter) -> None:
    """Import torch and the workload, then work through all entries in this one thread."""
    workload_steps.check_roles(params["roles"])
    cache_dir = os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    if not cache_dir:
        raise ParamsRefused(
            "the variable TORCHINDUCTOR_CACHE_DIR is not set: which cache is meant?"
        )
    if params["steps"] < 2:
        raise ParamsRefused(
            "steps must be at least 2: the first one compiles, the second one shows that it did"
        )
    reporter.measured.update(
        mode=params["mode"],
        cache_dir=cache_dir,
        cache_copy=cache_copy.use_copy(reporter) if params["in_copy"] else None,
        compile_threads=os.environ.get("TORCHINDUCTOR_COMPILE_THREADS"),
        environment=torch_facts.environment(),
        files=None,
        entries=[],
    )
    reporter.progress(phase="import")
    started = time.perf_counter()
    import torch

    torch.set_num_threads(params["torch_threads"])
    imported = time.perf_counter()
    build = workload_steps.load(params["workload"])
    reporter.measured.update(
        torch=torch_facts.build(torch),
        import_s=imported - started,
        load_s=time.perf_counter() - imported,
    )
    work_through(torch, build, params, os.environ["TORCHINDUCTOR_CACHE_DIR"], reporter)


def work_through(
    torch: ModuleType,
    build: workload_steps.Build,
    params: dict[str, Any],
    cache_dir: str,
    reporter: Reporter,
) -> None:
    """Fill all entries, one after the other."""
    measured, todo = reporter.measured, list(entries(params["roles"]))
    counters = torch_facts.CompileCounters(torch)
    cache_before, counted = folders.size(cache_dir), counters.read()
    for number, (role, device, shape) in enumerate(todo):
        reporter.progress(
            phase="entry", role=role, device=device, shape=shape, done=number, total=len(todo)
        )
        entry: dict[str, Any] = {"role": role, "device": device, "shape": shape}
        measured["entries"].append(entry)
        _fill(torch, build, entry, counters, params["steps"], cache_dir, reporter)
        measured["totals"] = {
            "counters": torch_facts.difference(counted, counters.read()),
            "first_steps_s": sum(e["first_step_s"] or 0.0 for e in measured["entries"]),
            "cache_before": cache_before,
            "cache_after": folders.size(cache_dir),
        }
        measured["reasons"] = counters.reasons()
        measured["files"] = workload_steps.loaded_files(params["workload"])
    reporter.progress(phase="done", done=len(todo), total=len(todo))


def _fill(
    torch: ModuleType,
    build: workload_steps.Build,
    entry: dict[str, Any],
    counters: torch_facts.CompileCounters,
    steps: int,
    cache_dir: str,
    reporter: Reporter,
) -> None:
    """Build one entry's step, take its steps, and note what that did to the cache."""
    device = entry["device"]
    counted = counters.read()
    entry.update(dict.fromkeys(LATER), losses=[])
    entry["cache_before"] = folders.size(cache_dir)
    try:
        torch_facts.reset_peaks(torch, [device])
        started = time.perf_counter()
        torch.manual_seed(workload_steps.SEED)
        step = build(device, entry["role"], dict(entry["shape"]))
        torch_facts.synchronize(torch, device)
        entry["build_s"] = time.perf_counter() - started
        durations: list[float] = []
        for _ in range(steps):
            started = time.perf_counter()
            entry["tokens"] = workload_steps.take(step)
            torch_facts.synchronize(torch, device)
            durations.append(time.perf_counter() - started)
            entry["losses"].append(workload_steps.loss(step))
            entry["first_step_s"] = durations[0]
            entry["later_step_s"] = statistics.median(durations[1:]) if durations[1:] else None
        entry["module_calls"] = tracing.module_calls(torch, step)
    except Exception as error:
        entry["error"] = f"{type(error).__name__}: {error}"
        reporter.error(f"entry {entry['role']} {device} {entry['shape']}", error)
    entry["counters"] = torch_facts.difference(counted, counters.read())
    entry["cache_after"] = folders.size(cache_dir)
    entry["memory"] = torch_facts.memory(torch, [] if entry["error"] else [device])


if __name__ == "__main__":
    run("warm_cache", SCHEMA, PARAMS, measure, deadline_s=900.0)
