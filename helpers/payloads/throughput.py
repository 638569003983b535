"""From the steps that threads took to tokens per second: pure arithmetic.

Sent along with ``benchmark``.  Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

BIN_S = 0.5
KEPT_STEPS = 2000


class Step(NamedTuple):
    """One training step: when it began and ended (``time.perf_counter``), and its tokens."""

    begin_s: float
    end_s: float
    tokens: int

    def tokens_between(self, begin_s: float, end_s: float) -> float:
        """The part of its tokens that falls between two moments, spread evenly over the step."""
        overlap = min(self.end_s, end_s) - max(self.begin_s, begin_s)
        return self.tokens * max(0.0, overlap) / max(self.end_s - self.begin_s, 1e-9)


def summary(workers: Sequence[Any], begin: float, end: float, counted_role: str) -> dict[str, Any]:
    """Totals for each role, and for each worker into its ``facts``.

    Args: workers: things with ``steps``, a list of ``Step``, and ``facts``, a dictionary with
        ``role``. begin: start of the window. end: end of the window. counted_role: whose throughput
        is the throughput.
    """
    roles: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(worker.facts["role"] for worker in workers):
        steps = [worker.steps for worker in workers if worker.facts["role"] == name]
        tokens = sum(step.tokens_between(begin, end) for taken in steps for step in taken)
        roles[name] = {
            "threads": len(steps),
            "tokens": round(tokens, 1),
            "tok_per_s": tokens / (end - begin),
            "series": _series(steps, begin, end),
        }
    for worker in workers:
        worker.facts.update(_thread(worker.steps, begin, end))
    counted = roles[counted_role]
    return {
        "window_s": end - begin,
        "tok_per_s": counted["tok_per_s"],
        "series": counted["series"],
        "roles": roles,
    }


def _series(threads: Iterable[list[Step]], begin: float, end: float) -> list[dict[str, float]]:
    """Tokens per second in bins of equal length; the last bin is left out when it is not whole."""
    tokens = [0.0] * int((end - begin) / BIN_S)
    for step in (step for steps in threads for step in steps):
        first = max(0, int((step.begin_s - begin) / BIN_S))
        last = min(len(tokens) - 1, int((step.end_s - begin) / BIN_S))
        for number in range(first, last + 1):
            start = begin + number * BIN_S
            tokens[number] += step.tokens_between(start, start + BIN_S)
    return [
        {"t_s": i * BIN_S, "tok_per_s": round(count / BIN_S, 3)} for i, count in enumerate(tokens)
    ]


def _thread(steps: list[Step], begin: float, end: float) -> dict[str, Any]:
    inside = [step for step in steps if step.begin_s >= begin and step.end_s <= end]
    tokens = sum(step.tokens_between(begin, end) for step in steps)
    return {
        "steps_completed": len(inside),
        "step_s": _spread([step.end_s - step.begin_s for step in inside]),
        "steps": _kept(inside, begin),
        "tokens": round(tokens, 1),
        "tok_per_s": tokens / (end - begin),
    }


def _spread(durations: list[float]) -> dict[str, float] | None:
    if not durations:
        return None
    ordered = sorted(durations)
    return {
        "median": statistics.median(ordered),
        "p05": ordered[int(0.05 * (len(ordered) - 1))],
        "p95": ordered[math.ceil(0.95 * (len(ordered) - 1))],
        "min": ordered[0],
        "max": ordered[-1],
    }


def _kept(steps: list[Step], begin: float) -> list[dict[str, float]]:
    """The steps for the record; neighbours joined where there are too many."""
    size = math.ceil(len(steps) / KEPT_STEPS) or 1
    groups = [steps[i : i + size] for i in range(0, len(steps), size)]
    return [
        {
            "t_s": round(group[0].begin_s - begin, 6),
            "duration_s": round(statistics.fmean(s.end_s - s.begin_s for s in group), 6),
            "tokens": sum(step.tokens for step in group),
            "steps": len(group),
        }
        for group in groups
    ]
