"""What a picture shows, as plain data with its alternative text. ``plots`` draws it.

Kept apart from the drawing, so that whoever only chooses what to show does not load matplotlib.
This room must not know where the data comes from.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from helpers.record.wording import seconds_text, tok_per_s_text, visible


@dataclass(frozen=True)
class Throughput:
    """Throughput over time against a baseline.

    Attributes:
        samples: (seconds since the measurement began, tok/s); in order of time.
        baseline_tok_per_s: None = there is no baseline.
        tolerance_ratio: share of the baseline from which on training counts as recovered.
        corrected: whether the samples are corrected for other work on the machine.
    """

    samples: tuple[tuple[float, float], ...]
    baseline_tok_per_s: float | None = None
    tolerance_ratio: float | None = None
    corrected: bool = False

    @property
    def alt(self) -> str:
        """What the picture shows, in words."""
        rates = [rate for _, rate in self.samples]
        if not rates:
            return "Throughput over time: nothing was measured."
        median = statistics.median(rates)
        said = (
            f"Throughput over {seconds_text(self.samples[-1][0])}"
            f"{', corrected for other work on the machine' if self.corrected else ''}: "
            f"median {tok_per_s_text(median)}, between {tok_per_s_text(min(rates))} "
            f"and {tok_per_s_text(max(rates))}"
        )
        if self.baseline_tok_per_s is None:
            return f"{said}. There is no baseline."
        said += f"; baseline {tok_per_s_text(self.baseline_tok_per_s)}"
        if self.tolerance_ratio is None:
            return f"{said}."
        floor = self.baseline_tok_per_s * self.tolerance_ratio
        return f"{said}, recovered from {tok_per_s_text(floor)} on."


@dataclass(frozen=True)
class FirstStep:
    """The first step of one role and shape, with a cold and with a warm compile cache."""

    label: str
    cold_s: float | None
    warm_s: float | None


@dataclass(frozen=True)
class FirstSteps:
    """First steps, cold beside warm."""

    rows: tuple[FirstStep, ...]

    @property
    def alt(self) -> str:
        """What the picture shows, in words."""
        said = [
            f"{visible(row.label)}, {time_text(row.cold_s)} cold, {time_text(row.warm_s)} warm"
            for row in self.rows
        ]
        return f"Time of the first step: {'; '.join(said) or 'nothing was measured'}."


Picture = Throughput | FirstSteps


def time_text(seconds: float | None) -> str:
    """A time, or that there is none."""
    return "not measured" if seconds is None else seconds_text(seconds)
