"""Is throughput back? The rule of stage 60 that compares with the baseline; a part of its judge.

See the head of ``helpers.judge.benchmark`` for the rule in words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from helpers.judge.throughput import (
    CONFIDENCE,
    Interval,
    block_bins,
    lost_ratio,
    median_ratio,
    stalled_ratio,
)
from helpers.target import Target
from helpers.verdict import Check, Status

LEAST_BINS = 12
LEAST_STEPS = 12
_DEFAULT_BIN_S = 0.5
_RULE = "rule: see the head of helpers/judge/benchmark.py"


def samples(measured: Mapping[str, Any]) -> Check:
    """Whether there is enough to compare. **Changes:** nothing."""
    bins, steps = len(_rates(measured) or ()), _steps(measured)
    enough = bins >= LEAST_BINS and steps >= LEAST_STEPS
    return Check(
        name="samples",
        status=Status.PASS if enough else Status.UNKNOWN,
        measured=f"{bins} bins, {steps} steps",
        expected=f"at least {LEAST_BINS} bins and {LEAST_STEPS} steps of the counted role",
        source=_RULE,
        meaning="" if enough else "Too little to compare: raise the target's benchmark.seconds.",
    )


def throughput(
    measured: Mapping[str, Any],
    base: Mapping[str, Any],
    target: Target,
    *,
    steady: bool,
    quiet: bool,
) -> Check:
    """Whether the ratio to the baseline is what the target asks for. **Changes:** nothing.

    Args:
        measured: of stage 60.
        base: the baseline file.
        target: declares the ratios.
        steady: nothing was compiled while tokens were counted.
        quiet: other work on the machine cost next to nothing.
    """
    declared = target.benchmark
    interval = _interval(measured, base)
    status, meaning = _compare(interval, target, steady=steady, quiet=quiet)
    level = base.get("tok_per_s")
    said = "" if level is None else f" of the baseline's {level:,.0f} tok/s"
    return Check(
        name="throughput",
        status=status,
        measured=None
        if interval is None
        else {
            "tok_per_s": round(interval.point * float(level or 0), 1),
            "baseline_ratio": round(interval.point, 3),
            "low_ratio": round(interval.low, 3),
            "high_ratio": round(interval.high, 3),
            **_uncorrected(measured),
        },
        expected=f"at least {declared.tolerance_ratio:.0%}{said}, by the lower end of the interval",
        source=f"target: benchmark.tolerance_ratio; {CONFIDENCE:.0%} interval, {_RULE}",
        meaning=meaning,
    )


def _uncorrected(measured: Mapping[str, Any]) -> dict[str, float]:
    """What the clock saw, where the compared rate is corrected for other work on the machine."""
    seen = measured.get("tok_per_s")
    return {"as_measured_tok_per_s": round(seen, 1)} if measured.get("free_cores") and seen else {}


def _interval(measured: Mapping[str, Any], base: Mapping[str, Any]) -> Interval | None:
    """The ratio to the baseline and its interval, other work reckoned in; None = not known."""
    now, then = _rates(measured), _known(base.get("samples_tok_per_s"))
    kept = base.get("measured") or {}
    lost = _lost(measured)
    if now is None or lost is None or len(now) < LEAST_BINS or _steps(measured) < LEAST_STEPS:
        return None
    if then is None or len(then) < LEAST_BINS or not base.get("tok_per_s"):
        return None
    ratio = median_ratio(
        now,
        then,
        now_block=block_bins(now, _step_s(measured), _bin_s(measured)),
        baseline_block=block_bins(
            then, kept.get("step_s") or 0.0, kept.get("bin_s") or _DEFAULT_BIN_S
        ),
    )
    lost_then = _lost(kept) or 0.0
    high = ratio.high / (1 - lost) if lost < 1 else float("inf")
    return Interval(ratio.point, ratio.low * (1 - lost_then), high)


def _compare(
    interval: Interval | None, target: Target, *, steady: bool, quiet: bool
) -> tuple[Status, str]:
    declared = target.benchmark
    if interval is None:
        return (
            Status.UNKNOWN,
            "Throughput was not measured, or there is nothing to compare it with.",
        )
    if interval.low >= declared.tolerance_ratio:
        return Status.PASS, ""
    if not steady:
        return Status.UNKNOWN, "Below the baseline, but graphs were compiled meanwhile."
    if interval.high >= declared.tolerance_ratio:
        why = "noise alone" if quiet else "other work on the machine"
        return Status.UNKNOWN, (
            f"{interval} of the baseline: {why} could decide. Measure for longer "
            "(benchmark.seconds) or when the machine is quieter."
        )
    if interval.high >= declared.failed_ratio:
        return (
            Status.DEGRADED,
            f"Training runs at {interval} of the baseline: slower than tolerated.",
        )
    return Status.FAIL, (
        f"Training runs at {interval} of the baseline: it has not come back. Far too slow without "
        "an error is what a muted tracing check or an uncompiled flex_attention looks like."
    )


def stalls(measured: Mapping[str, Any], target: Target) -> Check:
    """Whether training paused, which a median does not show. **Changes:** nothing."""
    rates, lost_to_others = _rates(measured), _lost(measured)
    lost = stalled_ratio(rates) if rates else None
    allowed = 1 - target.benchmark.tolerance_ratio
    status = Status.UNKNOWN if lost is None else Status.PASS
    meaning = "Not measured."
    if lost is not None and lost > allowed:
        status = Status.DEGRADED if lost - (lost_to_others or 0.0) > allowed else Status.UNKNOWN
        meaning = f"Training paused again and again: {lost:.0%} of the tokens were lost that way."
    return Check(
        name="stalls",
        status=status,
        measured=None if lost is None else {"lost_ratio": round(lost, 3)},
        expected=f"at most {allowed:.0%} lost in bins below half of the median",
        source="target: benchmark.tolerance_ratio",
        meaning="" if status is Status.PASS else meaning,
    )


def _rates(measured: Mapping[str, Any]) -> list[float] | None:
    return _known([(one or {}).get("tok_per_s") for one in measured.get("series") or []])


def _known(rates: Sequence[float | None] | None) -> list[float] | None:
    """The rates when all of them are known and any is above nothing."""
    known = [float(rate) for rate in rates or () if rate is not None]
    return known if any(known) and len(known) == len(rates or ()) else None


def _lost(measured: Mapping[str, Any]) -> float | None:
    return lost_ratio(measured.get("load") or {}, corrected=bool(measured.get("free_cores")))


def _bin_s(measured: Mapping[str, Any]) -> float:
    times = [(b or {}).get("t_s") for b in (measured.get("series") or [])[:2]]
    known = [float(time) for time in times if time is not None]
    return known[1] - known[0] if len(known) == 2 else _DEFAULT_BIN_S


def _counted(measured: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    threads = measured.get("threads") or []
    return [t for t in threads if t and t.get("role") == measured.get("counted_role")]


def _steps(measured: Mapping[str, Any]) -> int:
    return sum(thread.get("steps_completed") or 0 for thread in _counted(measured))


def _step_s(measured: Mapping[str, Any]) -> float:
    medians = [(thread.get("step_s") or {}).get("median") for thread in _counted(measured)]
    return max((float(median) for median in medians if median), default=0.0)
