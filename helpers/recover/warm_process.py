"""One process that takes the first steps of every role, device and shape, and what its counts say.

The same process warms a cache and proves it warm: a second one that does the same work finds what
the first one left. This room must not know which cache is in place or what becomes of it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from helpers.reach.payload import PayloadDocument, run_payload
from helpers.recover import workload
from helpers.recover.work import Json, Work
from helpers.target import Target

_DEADLINE_S = 300.0
_DEADLINE_PER_ENTRY_S = 300.0


def run(work: Work, mode: Literal["warm", "prove"], *, in_copy: bool = False) -> PayloadDocument:
    """Take the first steps of every entry with one Python thread and one compile thread.

    **Runs on:** container. **Changes:** the compile cache, where it is not warm; nothing when it works
    in a copy.

    Args:
        work: the stage's surroundings.
        mode: what it is for; the work is the same.
        in_copy: work in a private copy of the cache, for nobody has approved that it is filled.
    """
    doing = "filling the compile cache" if mode == "warm" else "proving that it is warm"
    with work.job(f"40_warm_cache-{mode}") as job:
        return run_payload(
            work.container,
            "warm_cache",
            {**workload.params(work.target), "mode": mode, "in_copy": in_copy},
            python=workload.venv_python(work.target),
            purpose=f"{doing}, one thread",
            env={**workload.environment(work.target), "TORCHINDUCTOR_COMPILE_THREADS": "1"},
            deadline_s=_DEADLINE_S + _DEADLINE_PER_ENTRY_S * len(entries(work.target)),
            changes=not in_copy,
            on_progress=lambda record: work.say(*_said(record, doing)),
            job=job,
        )


def _said(record: Mapping[str, Any], doing: str) -> tuple[str, float | None]:
    if record.get("phase") != "entry":
        return f"{doing}: starting", None
    done, total = int(record.get("done") or 0), int(record.get("total") or 1)
    sizes = ", ".join(f"{name} {size}" for name, size in (record.get("shape") or {}).items())
    where = f"{record.get('role')} on {record.get('device')}, {sizes}"
    return f"{doing}: {where} ({done + 1} of {total})", done / total


def entries(target: Target) -> list[tuple[str, str, Json]]:
    """Every role with each of its distinct devices and each of its shapes. **Changes:** nothing."""
    return [
        (role.name, device, dict(shape))
        for role in target.workload.roles
        for device in dict.fromkeys(role.devices)
        for shape in role.shapes
    ]


def whole(document: PayloadDocument, target: Target) -> bool:
    """Whether every entry got through without an error. **Changes:** nothing."""
    found = _found(document)
    return (
        not document.errors
        and len(found) == len(entries(target))
        and not any(e["error"] for e in found)
    )


def first_steps(document: PayloadDocument) -> list[Json]:
    """How long the first step of each entry took. **Changes:** nothing."""
    return [
        {part: entry[part] for part in ("role", "device", "shape", "first_step_s")}
        for entry in _found(document)
    ]


def proof(document: PayloadDocument, target: Target, cold: list[Json]) -> Json:
    """What the proving process says, beside what the warming one said. **Changes:** nothing.

    Args:
        document: of the proving process.
        target: what was to be covered.
        cold: ``first_steps`` of the process that warmed the cache, in this run or an earlier one.
    """
    measured: dict[str, Any] = document.measured
    counters = (measured.get("totals") or {}).get("counters") or {}
    misses = [counters.get(f"{kind}_miss") for kind in ("fxgraph_cache", "aot_autograd_cache")]
    was = {_name(step): step.get("first_step_s") for step in cold}
    return {
        "prove": document.measured,
        "prove_errors": list(document.errors),
        "proven": whole(document, target)
        and misses == [0, 0]
        and bool(counters.get("fxgraph_cache_hit")),
        "first_steps": [
            {
                **{part: step[part] for part in ("role", "device", "shape")},
                "cold_s": was.get(_name(step)),
                "warm_s": step["first_step_s"],
            }
            for step in first_steps(document)
        ],
    }


def _found(document: PayloadDocument) -> list[Json]:
    entries: Any = document.measured.get("entries") or []
    return list(entries)


def _name(step: Json) -> str:
    return json.dumps([step.get("role"), step.get("device"), step.get("shape")], sort_keys=True)
