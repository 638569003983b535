"""Statistics of throughput: how well is a ratio to the baseline known?

The samples are tokens per second in neighbouring bins of half a second. What is compared is their
median, which a short pause does not move (pauses are judged by themselves, as stalls). How well it
is known is said by a bootstrap of blocks:

- Neighbouring bins are not independent, and a step longer than a bin makes them equal. Whole blocks
  are drawn, from anywhere in the series and wrapping around its end (circular block bootstrap:
  Politis and Romano, "A circular block-resampling procedure for stationary data", 1992; blocks
  after Künsch, Ann. Statist. 17, 1989).
- A block is at least n^(1/3) bins long, at least two steps, and twice the lag from which on the
  series no longer resembles itself (autocorrelation below 2/sqrt(n); the rule of thumb of Politis
  and White, "Automatic block-length selection", 2004), but at most a fifth of the series.
- Both series are drawn anew each time and the interval holds the middle 95 % of the ratios of their
  medians (percentile interval: Efron and Tibshirani, "An introduction to the bootstrap", 1993,
  chapter 13).
- The seed is fixed: the same evidence gives the same interval.

What an interval from one process does not hold is the difference between processes; the target's
``tolerance_ratio`` has to be wide enough for it (measured for the sandbox: see its target file).

Pure arithmetic: no I/O, no clock; this room knows nothing of checks.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CONFIDENCE = 0.95
RESAMPLES = 2000
SEED = 20
LEAST_BLOCKS = 5
STALLED_BELOW_RATIO = 0.5


@dataclass(frozen=True)
class Interval:
    """A ratio as measured, and the range that holds it with 95 % confidence."""

    point: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.point:.2f} ({self.low:.2f} to {self.high:.2f})"


def block_bins(series: Sequence[float], step_s: float, bin_s: float) -> int:
    """How many neighbouring bins are drawn together; see the module's head.

    Args:
        series: one sample for each bin.
        step_s: how long a step takes, median.
        bin_s: length of a bin.
    """
    count = len(series)
    least = max(
        math.ceil(math.cbrt(count)), math.ceil(2 * step_s / bin_s), 2 * _memory_bins(series)
    )
    return max(1, min(least, count // LEAST_BLOCKS))


def _memory_bins(series: Sequence[float]) -> int:
    """The first lag at which the series no longer resembles itself."""
    count, mean = len(series), statistics.fmean(series)
    deviations = [value - mean for value in series]
    whole = math.fsum(d * d for d in deviations)
    if whole == 0.0:
        return 1
    for lag in range(1, count // 2):
        shared = sum(a * b for a, b in zip(deviations, deviations[lag:], strict=False))
        if shared / whole < 2 / math.sqrt(count):
            return lag
    return max(1, count // 2)


def median_ratio(
    now: Sequence[float], baseline: Sequence[float], *, now_block: int, baseline_block: int
) -> Interval:
    """The median of ``now`` over that of ``baseline``.

    Args:
        now: samples in the order in which they were taken.
        baseline: likewise.
        now_block: bins of a block in ``now``.
        baseline_block: bins of a block in ``baseline``.
    """
    draw = random.Random(SEED)
    ratios = sorted(
        statistics.median(_resampled(now, now_block, draw))
        / max(statistics.median(_resampled(baseline, baseline_block, draw)), 1e-9)
        for _ in range(RESAMPLES)
    )
    outside = (1 - CONFIDENCE) / 2
    return Interval(
        point=statistics.median(now) / statistics.median(baseline),
        low=ratios[int(outside * RESAMPLES)],
        high=ratios[math.ceil((1 - outside) * RESAMPLES) - 1],
    )


def _resampled(series: Sequence[float], block: int, draw: random.Random) -> list[float]:
    count = len(series)
    drawn: list[float] = []
    while len(drawn) < count:
        # random() and not randrange(): its sequence is promised to stay the same in later Pythons.
        start = int(draw.random() * count)
        drawn += [series[(start + offset) % count] for offset in range(block)]
    return drawn[:count]


def stalled_ratio(series: Sequence[float]) -> float:
    """The share of tokens lost in bins below half of the median: pauses, not noise."""
    median = statistics.median(series)
    lost = sum(median - value for value in series if value < STALLED_BELOW_RATIO * median)
    return lost / (median * len(series)) if median > 0 else 1.0


def lost_ratio(load: Mapping[str, Any], *, corrected: bool = False) -> float | None:
    """The share of throughput that other work may have cost at most; None = not known.

    Cores that others used count only as far as no idle core was left for them; cores that the
    hypervisor took away count whole.

    Args:
        load: what the payload says of the CPU, averages over the window.
        corrected: the samples are corrected for other work, so that only the hypervisor is left.
    """
    names = ("cores", "machine_cores", "own_cores", "other_cores", "stolen_cores")
    values = [load.get(name) for name in names]
    if any(not isinstance(value, (int, float)) for value in values):
        return None
    cores, machine, own, other, stolen = (float(value) for value in values if value is not None)
    idle = max(0.0, cores - machine - stolen)
    taken = stolen if corrected else stolen + max(0.0, other - idle)
    return taken / (own + taken) if own + taken > 0 else 0.0
