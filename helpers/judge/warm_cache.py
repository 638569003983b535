"""Judge of stage 40: did a second process find everything it needed in the compile cache?

What counts is the proving process alone: it took the first steps of every declared role, device and
shape and must have found each graph (no miss), some graph at all (a hit), and no more of a step
left uncompiled than the target expects (graph breaks). How much faster that made the first steps is
told and never fails: it depends on the machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from helpers.target import Target
from helpers.verdict import Check, Status, Verdict, verdict

SLOW_START_RATIO = 0.8
_LINE_CHARACTERS = 300  # torch's errors can list thousands of frames in one line
_PROOF = "the proving process's own counters"
_ROLES = "target: workload.roles"


def judge(evidence: Mapping[str, Any], target: Target) -> Verdict:
    """Judge whether the compile cache is warm.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        evidence: of stage 40; ``measured`` may be None, then only the cache's record is judged.
        target: what is declared.
    """
    measured = evidence.get("measured") or {}
    checks = [] if measured else [_recorded_as_warm(evidence.get("facts") or {})]
    if measured.get("warm"):
        checks.append(_warming(measured))
    proof = measured.get("prove") or {}
    counters = (proof.get("totals") or {}).get("counters") or {}
    checks += [
        _coverage(proof, measured, target),
        _misses(counters),
        _hits(counters),
        _breaks(proof, target),
        _nothing_written(proof),
        *_bypasses(counters),
        *_first_steps(measured),
        *_record(measured),
    ]
    return verdict(checks)


def _recorded_as_warm(facts: Mapping[str, Any]) -> Check:
    misfits = facts.get("misfits")
    status = Status.UNKNOWN if misfits is None else Status.DRIFT if misfits else Status.PASS
    meaning = (
        "Nothing is known of the cache." if misfits is None else f"Cold: {'; '.join(misfits)}."
    )
    return Check(
        name="recorded as warm",
        status=status,
        measured=misfits,
        expected="no reason against it",
        source="the record that the cache carries",
        meaning="" if status is Status.PASS else meaning,
    )


def _warming(measured: Mapping[str, Any]) -> Check:
    problems = _problems(measured["warm"], measured.get("warm_errors"))
    where = measured.get("half_warm")
    state = f"The old cache is back in place; the half-warm one is at {where}." if where else ""
    return Check(
        name="warming",
        status=Status.FAIL if problems else Status.PASS,
        measured=[*problems],
        expected="no errors",
        source="the warming process",
        meaning=f"The workload did not get through its first steps: {problems[0]} {state}".strip()
        if problems
        else "",
    )


def _problems(document: Mapping[str, Any], errors: Iterable[Mapping[str, Any]] | None) -> list[str]:
    entries = _entries(document)
    found = [
        f"{_label(entry)}: {_first_line(entry['error'])}" for entry in entries if entry.get("error")
    ]
    told = {str(entry.get("error")) for entry in entries}
    for error in [error or {} for error in errors or []]:
        text = f"{error.get('type')}: {_first_line(error.get('message'))}"
        if not any(_first_line(error.get("message")) in other for other in told):
            found.append(f"{error.get('where')}: {text}")
    return found


def _coverage(proof: Mapping[str, Any], measured: Mapping[str, Any], target: Target) -> Check:
    wanted = [
        {"role": role.name, "device": device, "shape": dict(shape)}
        for role in target.workload.roles
        for device in dict.fromkeys(role.devices)
        for shape in role.shapes
    ]
    entries = _entries(proof)
    done = {_label(e) for e in entries if not e.get("error") and e.get("first_step_s") is not None}
    missing = [_label(entry) for entry in wanted if _label(entry) not in done]
    problems = _problems(proof, measured.get("prove_errors"))
    status = Status.PASS if not missing and not problems else Status.FAIL
    meaning = f"The proving process failed: {problems[0]}" if problems else ""
    if missing and not problems:
        status = Status.UNKNOWN
        meaning = f"Not proven: {'; '.join(missing)}."
    return Check(
        name="coverage",
        status=status,
        measured=f"{len(wanted) - len(missing)} of {len(wanted)}" if proof else None,
        expected=f"all {len(wanted)}: every role on each of its devices with each of its shapes",
        source=_ROLES,
        meaning=meaning,
    )


def _misses(counters: Mapping[str, Any]) -> Check:
    found = [counters.get("fxgraph_cache_miss"), counters.get("aot_autograd_cache_miss")]
    total = None if None in found else sum(count or 0 for count in found)
    status = Status.UNKNOWN if total is None else Status.FAIL if total else Status.PASS
    return Check(
        name="cache misses",
        status=status,
        measured=total,
        expected="0",
        source=_PROOF,
        meaning={
            Status.PASS: "",
            Status.UNKNOWN: "The proving process did not count its misses.",
            Status.FAIL: "The cache is not warm for what training does: something in the code or "
            "the environment differs from process to process. If it is an old cache, rename its "
            "folder and run this stage again.",
        }[status],
    )


def _hits(counters: Mapping[str, Any]) -> Check:
    hits = counters.get("fxgraph_cache_hit")
    status = Status.UNKNOWN if hits is None else Status.PASS if hits else Status.FAIL
    return Check(
        name="cache hits",
        status=status,
        measured=hits,
        expected="at least 1",
        source=_PROOF,
        meaning={
            Status.PASS: "",
            Status.UNKNOWN: "The proving process did not count its hits.",
            Status.FAIL: "Nothing was found: the workload is not compiled, or caching is off.",
        }[status],
    )


def _breaks(proof: Mapping[str, Any], target: Target) -> Check:
    """The entry with the most graph breaks: a graph that an earlier entry traced breaks no more."""
    allowed = target.workload.expected_graph_breaks
    counts = [(e.get("counters") or {}).get("graph_breaks") for e in _entries(proof)]
    known = [int(count) for count in counts if count is not None]
    most = max(known, default=None)
    reasons = (proof.get("reasons") or {}).get("graph_breaks") or []
    status = Status.PASS if known and len(known) == len(counts) else Status.UNKNOWN
    if most is not None and most > allowed:
        status = Status.FAIL
    return Check(
        name="graph breaks",
        status=status,
        measured=most,
        expected=f"at most {allowed} in the first steps of any role, device and shape",
        source="target: workload.expected_graph_breaks",
        meaning={
            Status.PASS: "",
            Status.UNKNOWN: "The proving process did not count its graph breaks.",
            Status.FAIL: f"Parts of a step run uncompiled: {'; '.join(reasons) or 'no reason'}. If "
            "healthy training does so too, declare how many (workload.expected_graph_breaks).",
        }[status],
    )


def _nothing_written(proof: Mapping[str, Any]) -> Check:
    totals = proof.get("totals") or {}
    before, after = totals.get("cache_before"), totals.get("cache_after")
    known = before is not None and after is not None
    status = Status.UNKNOWN if not known else Status.PASS if before == after else Status.DRIFT
    return Check(
        name="nothing written",
        status=status,
        measured=after,
        expected=f"{before}, as before the proof" if known else "as before the proof",
        source="the cache's folder",
        meaning={
            Status.PASS: "",
            Status.UNKNOWN: "The cache was not measured before and after the proof.",
            Status.DRIFT: "The proving process wrote files that the cache lacks: it is not complete.",
        }[status],
    )


def _bypasses(counters: Mapping[str, Any]) -> Iterator[Check]:
    """Told only where it happens: a graph that cannot be cached is compiled at every start."""
    kinds = ("fxgraph_cache_bypass", "aot_autograd_cache_bypass")
    count = sum(counters.get(kind) or 0 for kind in kinds)
    if count:
        yield Check(
            name="cache bypasses",
            status=Status.DRIFT,
            measured=count,
            expected="0",
            source=_PROOF,
            meaning="torch cannot cache these graphs: they are compiled again at every start.",
        )


def _first_steps(measured: Mapping[str, Any]) -> Iterator[Check]:
    """First steps with a cold and with a warm cache, together; told where both are known."""
    steps = [step or {} for step in measured.get("first_steps") or []]
    pairs = [(step.get("cold_s"), step.get("warm_s")) for step in steps]
    known = [(cold, warm) for cold, warm in pairs if cold and warm is not None]
    if not known:
        return
    cold_s, warm_s = (sum(values) for values in zip(*known, strict=True))
    ratio = warm_s / cold_s
    yield Check(
        name="first steps",
        status=Status.PASS if ratio <= SLOW_START_RATIO else Status.DRIFT,
        measured={
            "cold_s": round(cold_s, 2),
            "warm_s": round(warm_s, 2),
            "warm_cold_ratio": round(ratio, 3),
        },
        expected=f"warm at most {SLOW_START_RATIO:.0%} of cold",
        source="information only",
        meaning=""
        if ratio <= SLOW_START_RATIO
        else "The cache is warm and saves little time here.",
    )


def _record(measured: Mapping[str, Any]) -> Iterator[Check]:
    if measured.get("proven") and not measured.get("recorded"):
        yield Check(
            name="record",
            status=Status.DRIFT,
            expected="left in the cache",
            source="stage 40",
            meaning="The cache is warm and carries no record of it: the next run warms it again.",
        )


def _entries(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [entry or {} for entry in document.get("entries") or []]


def _label(entry: Mapping[str, Any]) -> str:
    shape = json.dumps(entry.get("shape"), sort_keys=True)
    return f"{entry.get('role')} on {entry.get('device')} {shape}"


def _first_line(text: object) -> str:
    lines = str(text or "no reason was given").strip().splitlines()
    return lines[0][:_LINE_CHARACTERS] if lines else "no reason was given"
