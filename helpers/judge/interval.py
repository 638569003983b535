"""The interval for a failure rate of which few trials are known: Clopper and Pearson's exact one.

Few processes are started, and none or all of them failing is the rule. There Wilson's interval,
which is narrower, covers the truth less often than it says; this one never does (Clopper and
Pearson, Biometrika 26, 1934; Brown, Cai and DasGupta, Statistical Science 16, 2001). Pure
arithmetic.
"""

from __future__ import annotations

import math
from collections.abc import Callable

CONFIDENCE = 0.95
_HALVINGS = 60


def failure_rate(failed: int, trials: int) -> tuple[float, float]:
    """The lowest and the highest rate that so many failures do not speak against.

    **Changes:** nothing.

    Args:
        failed: how many trials failed, 0 to ``trials``.
        trials: how many there were; without any, every rate is possible.
    """
    tail = (1 - CONFIDENCE) / 2
    low = _root(lambda rate: _at_least(failed, trials, rate) - tail) if failed else 0.0
    high = _root(lambda rate: tail - _at_most(failed, trials, rate)) if failed < trials else 1.0
    return low, high


def _at_most(failed: int, trials: int, rate: float) -> float:
    return math.fsum(
        math.comb(trials, k) * rate**k * (1 - rate) ** (trials - k) for k in range(failed + 1)
    )


def _at_least(failed: int, trials: int, rate: float) -> float:
    return 1.0 - _at_most(failed - 1, trials, rate)


def _root(rising: Callable[[float], float]) -> float:
    """Where a function that rises from below 0 to above 0 between 0 and 1 crosses it."""
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if rising(middle) < 0 else (low, middle)
    return (low + high) / 2
