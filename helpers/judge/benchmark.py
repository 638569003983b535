"""Judge of stage 60: is training back at the baseline?

The rule, for r = median throughput now / median throughput of the baseline, with the 95 % interval
of ``helpers.judge.throughput``:

- *pass* (recovered): the interval's lower end is not below the target's ``tolerance_ratio``.
- *degraded*: the interval's upper end is below ``tolerance_ratio``.
- *fail*: the interval's upper end is below ``failed_ratio``, or a thread raised, hung or took no
  step.
- *unknown*: the interval holds ``tolerance_ratio``, so that noise alone would decide; or there is
  no baseline for these devices, this torch and this code; or there are fewer than 12 bins or 12
  steps; or something was compiled while tokens were counted.

Other work on the machine takes throughput away. Where the kernel told how long threads waited for a
core, the samples are already as they would have been without it (``free_cores``), and only what a
hypervisor took is left to reckon with. Otherwise what it may have cost at most (``lost_ratio``)
widens the interval: upwards by the share that it may have cost now, downwards by the share that it
may have cost the baseline. So a loss is not called one while a neighbour could be its cause, a loss
too great for that still is, and a baseline that was taken on a busy machine proves less.

Pauses do not move a median: the tokens that they lost are judged by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from helpers.judge.recovery import samples, stalls, throughput
from helpers.judge.thread_checks import threads
from helpers.judge.throughput import lost_ratio
from helpers.target import Target
from helpers.verdict import Check, Status, Verdict, verdict

QUIET_RATIO = 0.05
MEMORY_RATIO = 1.25
_RULE = "rule: see the head of helpers/judge/benchmark.py"


def judge(evidence: Mapping[str, Any], target: Target) -> Verdict:
    """Judge a throughput measurement against its baseline.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        evidence: of stage 60; ``measured`` may be None, then throughput is unknown.
        target: what is declared.
    """
    measured = evidence.get("measured") or {}
    expected = (evidence.get("facts") or {}).get("expected") or {}
    base = measured.get("baseline") or {}
    checks = [threads(measured, target), _baseline(measured, base, expected)]
    steady, quiet = _compiled(measured), _quiet(measured)
    back = throughput(
        measured,
        base,
        target,
        steady=steady.status is Status.PASS,
        quiet=quiet.status is Status.PASS,
    )
    if not measured:
        return verdict([*checks, back])
    stalled = stalls(measured, target)
    return verdict(
        [
            *checks,
            _code(measured, target),
            samples(measured),
            steady,
            quiet,
            back,
            stalled,
            *_memory(measured, base),
        ]
    )


def _baseline(
    measured: Mapping[str, Any], base: Mapping[str, Any], expected: Mapping[str, Any]
) -> Check:
    found = base.get("tok_per_s") or (None if measured else expected.get("tok_per_s"))
    where = measured.get("baseline_at") or expected.get("path") or "nothing is known of it"
    kept = base.get("measured") or {}
    lost = lost_ratio(kept.get("load") or {}, corrected=bool(kept.get("free_cores")))
    status = Status.UNKNOWN if found is None else Status.PASS
    meaning = f"There is nothing to compare with: {where}. Record one in a healthy environment."
    if found is not None and lost is not None and lost > QUIET_RATIO:
        status = Status.DRIFT
        meaning = (
            f"Other work may have cost it up to {lost:.0%} when it was recorded: it proves less."
        )
    return Check(
        name="baseline",
        status=status,
        measured=found,
        expected="one for these devices, this torch, this code and these roles",
        source=str(where),
        meaning="" if status is Status.PASS else meaning,
    )


def _code(measured: Mapping[str, Any], target: Target) -> Check:
    """Every file that was loaded from the workload's folder, its own among them."""
    ran = [one or {} for one in measured.get("code") or []]
    other = [
        _named(one, target)
        for one in ran
        if one.get("ran") is not None and one["ran"] != one.get("committed")
    ]
    known = all(one.get("ran") is not None for one in ran)
    whole = known and target.workload.file in {one.get("path") for one in ran}
    status = Status.FAIL if other else Status.PASS if whole else Status.UNKNOWN
    return Check(
        name="code measured",
        status=status,
        measured=[*other] if ran else None,
        expected="none that differs from the declared commit",
        source="git, at the target's sources.ref",
        meaning=""
        if status is Status.PASS
        else f"What ran is not what is committed ({', '.join(other)}): run stage 20 again; what the "
        "commit lacks has to be committed or taken away."
        if other
        else "What ran is not known to be what is committed.",
    )


def _named(one: Mapping[str, Any], target: Target) -> str:
    name = str(one.get("path")).removeprefix(f"{target.sources.deploy_to}/")
    return name if one.get("committed") is not None else f"{name}, not in the commit"


def _compiled(measured: Mapping[str, Any]) -> Check:
    compiling = measured.get("compile") or {}
    count = (compiling.get("window") or {}).get("compilations")
    reasons = (compiling.get("reasons") or {}).get("recompilations") or []
    meaning = "It is not known whether anything was compiled while tokens were counted."
    if count:
        meaning = (
            "Graphs were compiled while tokens were counted: this was no steady training. Measure "
            "again; if it stays so, the workload compiles all the time "
            f"({'; '.join(reasons) or 'no reason given'})."
        )
    return Check(
        name="compiled in window",
        status=Status.PASS if count == 0 else Status.UNKNOWN,
        measured=count,
        expected="0",
        source=_RULE,
        meaning="" if count == 0 else meaning,
    )


def _quiet(measured: Mapping[str, Any]) -> Check:
    load = measured.get("load") or {}
    lost, corrected = lost_ratio(load), bool(measured.get("free_cores"))
    others = [str(p.get("command"))[:60] for p in load.get("heaviest_others") or []]
    status = Status.UNKNOWN if lost is None else Status.PASS
    meaning = "It is not known what else the machine was doing."
    if lost is not None and lost > QUIET_RATIO:
        status = Status.DRIFT
        meaning = (
            f"Other work took up to {lost:.0%} of the throughput "
            f"({'; '.join(others) or 'processes that cannot be seen from here'}); the samples are "
            f"{'corrected for it' if corrected else 'not corrected for it'}."
        )
    return Check(
        name="machine quiet",
        status=status,
        measured=None if lost is None else {"lost_to_others_ratio": round(lost, 3)},
        expected=f"at most {QUIET_RATIO:.0%} lost to other work",
        source="the kernel's account of CPU time",
        meaning="" if status is Status.PASS else meaning,
    )


def _memory(measured: Mapping[str, Any], base: Mapping[str, Any]) -> Iterator[Check]:
    """Peak memory beside the baseline's: a drift is told, since no rule is declared for it."""
    now, then = _peaks(measured.get("memory")), _peaks((base.get("measured") or {}).get("memory"))
    for place, before in then.items():
        peak = now.get(place)
        more = None if peak is None else peak / before
        status = Status.UNKNOWN if more is None else Status.PASS
        if more is not None and more > MEMORY_RATIO:
            status = Status.DRIFT
        yield Check(
            name=f"memory {place}",
            status=status,
            measured=None if peak is None else {"peak_bytes": peak},
            expected=f"at most {MEMORY_RATIO:.2f} × the baseline's {before / 1e6:,.0f} MB",
            source="the baseline",
            meaning=""
            if status is Status.PASS
            else "Not measured."
            if more is None
            else f"{more:.1f} × the baseline's memory: is something running that is not compiled?",
        )


def _peaks(memory: Mapping[str, Any] | None) -> dict[str, float]:
    """Peak bytes of each GPU; of the process where there is none."""
    devices = (memory or {}).get("devices") or {}
    peaks = {device: (peak or {}).get("peak_allocated_bytes") for device, peak in devices.items()}
    peaks = peaks or {"process": (memory or {}).get("peak_rss_bytes")}
    return {place: float(peak) for place, peak in peaks.items() if peak}
