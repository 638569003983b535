"""The declared workload, in the form in which payloads take it.

Stages 40 and 60 and the recording of a baseline ask for the same training step in the same
surroundings, and name it by the same hashes; they get both from here. This room must not know what
a stage makes of the answer.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from helpers.reach.container import Container
from helpers.reach.job import JobPlace
from helpers.reach.payload import PayloadDocument, run_payload
from helpers.recover.work import Json
from helpers.target import Target

Say = Callable[[str, float | None], None]

WARM_UP_S = 3.0
WARM_UP_STEPS = 3
# Something is still compiled after so long: the window is counted all the same, and says so.
LONGEST_WARM_UP_S = 60.0
# First steps may compile everything from scratch before the window begins.
_FIRST_STEPS_DEADLINE_S = 600.0
_GPU_LINE = re.compile(r"GPU (\d+): (.+?)(?: \(UUID:.*)?$")


def venv_python(target: Target) -> str:
    """The target's own Python, as a path in the container. **Changes:** nothing."""
    return f"{target.environment.venv}/bin/python"


def params(target: Target) -> Json:
    """Workload, roles and torch threads as the payloads' parameters. **Changes:** nothing."""
    declared = target.workload.model_dump(mode="json")
    return {name: declared[name] for name in ("roles", "torch_threads")} | {
        "workload": declared["file"]
    }


def environment(target: Target) -> dict[str, str]:
    """The variables that name the compile cache. **Changes:** nothing."""
    return {"TORCHINDUCTOR_CACHE_DIR": target.cache.directory}


def roles_hash(target: Target) -> str:
    """SHA-256 of roles, devices, shapes and torch threads. **Changes:** nothing."""
    # What is expected of a run is no part of what is run.
    declared = target.workload.model_dump(mode="json", exclude={"file", "expected_graph_breaks"})
    return hashlib.sha256(json.dumps(declared, sort_keys=True).encode()).hexdigest()


def devices(target: Target) -> list[str]:
    """The distinct devices that the roles name, in the order declared. **Changes:** nothing."""
    return list(dict.fromkeys(device for role in target.workload.roles for device in role.devices))


def device_names(target: Target, machine: Mapping[str, Any]) -> dict[str, str | None]:
    """What an inventory says the declared devices are; None = not said. **Changes:** nothing."""
    lines = (machine.get("nvidia") or {}).get("gpus") or []
    gpus = {f"cuda:{m[1]}": m[2] for line in lines if (m := _GPU_LINE.match(str(line)))}
    gpus.setdefault("cuda", gpus.get("cuda:0", ""))
    return {
        device: (gpus.get(device) or None)
        if device.startswith("cuda")
        else machine.get("cpu_model") or machine.get("architecture")
        for device in devices(target)
    }


def device_text(names: Mapping[str, str | None], cores: int | None) -> str | None:
    """Devices as a baseline names them, for instance ``8 x NVIDIA H200``; None when one is unknown.

    A CPU is named with its cores: the same model with twice the cores is another machine.

    **Changes:** nothing.
    """
    if not names or None in names.values():
        return None
    cpu = names.get("cpu")
    if cpu is not None and cores is None:
        return None
    counts = Counter(name for device, name in names.items() if device != "cpu")
    parts = [
        f"{count} x {name}" for name, count in sorted(counts.items(), key=lambda item: str(item[0]))
    ]
    return " + ".join([*parts, *([f"{cpu}, {cores} cores"] if cpu is not None else [])])


def free_core_series(measured: Mapping[str, Any]) -> tuple[list[dict[str, Any]], bool]:
    """The benchmark's bins with tokens per second as if every core had been free for training.

    The kernel tells how many cores the process used in a bin, and for how many its threads were
    ready and had to wait. Without anyone else it would have had as many as it was ready for, or all
    there are; a rate is raised in that proportion. Threads that wait for a lock or a device are not
    ready, so what training loses by itself stays lost. **Changes:** nothing.

    Returns:
        The bins, each with ``tok_per_s`` so corrected and ``as_measured_tok_per_s`` beside it, and
        whether they were corrected: where the kernel did not tell they are as measured.
    """
    bins = [dict(one) for one in measured.get("series") or []]
    cores = (measured.get("load") or {}).get("cores")
    told = [one.get(name) for one in bins for name in ("own_cores", "own_wait_cores")]
    corrected = cores is not None and bool(bins) and None not in told
    for one in bins:
        one["as_measured_tok_per_s"] = one["tok_per_s"]
        if corrected and one["own_cores"] > 0:
            would_have = min(cores, one["own_cores"] + one["own_wait_cores"])
            one["tok_per_s"] *= would_have / one["own_cores"]
    return bins, corrected


def run_benchmark(
    container: Container, target: Target, say: Say, *, purpose: str, job: JobPlace | None = None
) -> PayloadDocument:
    """Measure throughput in training's own thread layout, for as long as the target says.

    The threads start as training starts them: with the remedy where the target declares it.

    **Runs on:** container. **Changes:** nothing: torch works in a copy of the compile cache.

    Args:
        container: the way to the container.
        target: what is declared of it.
        say: shows progress: what is going on, and how far.
        purpose: what it is for, in words.
        job: as for ``run_payload``.
    """
    seconds = target.benchmark.seconds
    return run_payload(
        container,
        "benchmark",
        {
            **params(target),
            "seconds": seconds,
            "warmup_seconds": WARM_UP_S,
            "warmup_steps": WARM_UP_STEPS,
            "warmup_longest_seconds": LONGEST_WARM_UP_S,
            "prewarm": target.threads.remedy == "prewarm",
        },
        python=venv_python(target),
        purpose=purpose,
        env=environment(target),
        deadline_s=_FIRST_STEPS_DEADLINE_S + LONGEST_WARM_UP_S + seconds,
        on_progress=lambda record: say(*_said(record, seconds)),
        job=job,
    )


def _said(record: Mapping[str, Any], seconds: float) -> tuple[str, float | None]:
    phase, elapsed_s = record.get("phase"), float(record.get("elapsed_s") or 0.0)
    if phase == "first_steps":
        ready, threads = record.get("ready"), record.get("threads")
        return (
            f"first steps: {ready} of {threads} threads have had theirs ({elapsed_s:.0f} s)",
            None,
        )
    if phase == "window":
        return f"counting tokens: {elapsed_s:.0f} of {seconds:.0f} s", min(elapsed_s / seconds, 1.0)
    return {
        "warm_up": "warming up",
        "prewarm": "making every first step in one thread",
        "thread_failed": "a thread has failed",
    }.get(str(phase), "starting"), None
