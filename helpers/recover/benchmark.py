"""Stage 60: throughput in training's own thread layout, beside the baseline.

Nothing is planned and nothing is changed: training runs in a private copy of the compile cache, so
that a cache that is cold stays so until stage 40 is approved to warm it.
This room must not know how much of the baseline is enough.

Facts::

    {device: as a baseline names it, torch: installed version,
     expected: {key, path: or why there is none, tok_per_s, recorded_at, source}|null,
     processes: [{pid, command, ..}] running from the environment, loadavg: [3],
     errors: [payload errors]}

Measured: what the payload ``benchmark`` measured (see its head), its ``params`` and ``errors``,
    and::

    {baseline: the whole baseline file|null, baseline_at: its path, or why there is none,
     series: its bins, corrected for other work: see ``workload.free_core_series``,
     free_cores: whether they could be corrected,
     code: [{path, ran, committed}] what was loaded from the workload's folder, beside what the
           declared ref holds: see ``baseline.measured_code``}
"""

from __future__ import annotations

from typing import Any

from helpers.plan import Plan
from helpers.recover import baseline, workload
from helpers.recover.inventory import look_at
from helpers.recover.work import Json, Work

STAGE = "60_benchmark"
_IN_USE = {"exe", "argv0", "maps"}


def look(work: Work) -> Json:
    """Which baseline there is for these devices and this torch, and what else is running.

    **Runs on:** container and operator. **Changes:** nothing.
    """
    found = look_at(
        work, "machine", "venv", purpose="look at devices, torch and what else is running"
    )
    machine: Any = found["machine"] or {}
    venv: Any = found["venv"] or {}
    torch = next((p["version"] for p in venv.get("packages") or [] if p["name"] == "torch"), None)
    device = workload.device_text(workload.device_names(work.target, machine), machine.get("cores"))
    return {
        "device": device,
        "torch": torch,
        "expected": _expected(work, device, torch) if device and torch else None,
        "processes": [p for p in venv.get("processes") or [] if _IN_USE & set(p["evidence"])],
        "loadavg": machine.get("loadavg"),
        "errors": found["errors"],
    }


def _expected(work: Work, device: str, torch: str) -> Json:
    found, where = baseline.find(work.target, device, torch)
    if found is None:
        return {**dict.fromkeys(("key", "tok_per_s", "recorded_at", "source")), "path": where}
    said: Json = {"key": found.key, "path": where, "tok_per_s": found.tok_per_s}
    return {**said, "recorded_at": found.recorded_at, "source": found.source}


def plan(work: Work, facts: Json) -> Plan:
    """Never a change. **Runs on:** operator. **Changes:** nothing."""
    threads = sum(len(role.devices) for role in work.target.workload.roles)
    seconds = work.target.benchmark.seconds
    return Plan(
        stage=STAGE,
        measures=(
            f"{threads} threads at once, as in training, in a copy of the compile cache; "
            f"{workload.WARM_UP_S:.0f} s discarded",
            f"tokens counted for {seconds:.0f} s, compared with the baseline",
        ),
        why="This stage only measures.",
    )


def apply(work: Work, facts: Json, plan: Plan) -> Json:
    """Measure, and put the baseline beside it.

    **Runs on:** container. **Changes:** nothing.

    Raises:
        PreconditionFailed: the committed code cannot be read.
        PayloadBroken, CommandTimedOut, OutcomeUnknown: nothing is known to be measured.
    """
    baseline.committed_code(work.target)  # refused here rather than after the measurement
    with work.job("60_benchmark-benchmark") as job:
        document = workload.run_benchmark(
            work.container,
            work.target,
            work.say,
            purpose="measure throughput in training's thread layout",
            job=job,
        )
    measured: dict[str, Any] = document.measured
    device = baseline.measured_device(measured)
    torch = (measured.get("torch") or {}).get("version")
    if device and torch:
        found, where = baseline.find(work.target, device, torch)
    else:
        found, where = None, "the measurement did not come far enough to name devices and torch"
    series, corrected = workload.free_core_series(measured)
    return {
        **measured,
        "series": [*series],
        "free_cores": corrected,
        "params": document.params,
        "errors": list(document.errors),
        "baseline": found.model_dump(mode="json", by_alias=True) if found else None,
        "baseline_at": where,
        "code": baseline.measured_code(measured, work.target),
    }
