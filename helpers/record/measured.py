"""The numbers that a report takes out of the evidence: throughput then and now, first steps.

The one place in this wing that knows field names of the stages' evidence. Everything may be
missing: what is not there, or is no number, was not measured.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helpers.record.pictures import FirstStep, FirstSteps, Throughput
from helpers.record.reading import PREFLIGHT_STAGE, Reading
from helpers.record.wording import value_text

BENCHMARK_STAGE = "60_benchmark"
WARM_CACHE_STAGE = "40_warm_cache"
_LOG_VALUES = 10


@dataclass(frozen=True)
class Rates:
    """Throughput in tok/s: in the training log before the run, of the baseline, and measured now.

    None = not measured. ``baseline`` and ``now`` are corrected for other work on the machine where
    that could be done; ``…_as_measured`` is what the clock saw then, and what the log compares with.

    Attributes:
        before_said: where "before" is from, or why there is none.
    """

    before: float | None
    baseline: float | None
    now: float | None
    now_as_measured: float | None
    baseline_as_measured: float | None
    before_said: str

    @property
    def before_ratio(self) -> float | None:
        """The log's throughput as a share of what the clock saw for the baseline."""
        reference = self.baseline_as_measured or self.baseline
        return self.before / reference if self.before is not None and reference else None

    @property
    def now_ratio(self) -> float | None:
        """This run's throughput as a share of the baseline's."""
        return self.now / self.baseline if self.now is not None and self.baseline else None

    @property
    def highest(self) -> float:
        """The largest of the three, for bars beside each other; 0 when there is none."""
        return max(
            (v for v in (self.before, self.baseline, self.now) if v is not None), default=0.0
        )


def rates(reading: Reading) -> Rates:
    """Before, baseline and now: medians, as the benchmark's judge compares them.

    "Before" is the median of the last values in the training log as preflight found it; a log that
    is older than the environment tells nothing of it.

    **Runs on:** operator. **Changes:** nothing.
    """
    samples = _samples(reading)
    logged = _numbers(_at(reading, PREFLIGHT_STAGE, "facts", "training_log", "tok_per_s"))
    stale = _log_is_older(reading)
    known = bool(logged) and not stale
    return Rates(
        before=statistics.median(logged[-_LOG_VALUES:]) if known else None,
        before_said="the training log is older than the environment"
        if stale
        else "in the training log",
        baseline_as_measured=_number(
            _at(reading, BENCHMARK_STAGE, "measured", "baseline", "measured", "mean_tok_per_s")
        ),
        baseline=_baseline(reading),
        now=statistics.median(rate for _, rate in samples) if samples else None,
        now_as_measured=_number(_at(reading, BENCHMARK_STAGE, "measured", "tok_per_s"))
        if _corrected(reading)
        else None,
    )


def throughput_plot(reading: Reading) -> Throughput | None:
    """The benchmark over time; None when it was not measured.

    **Runs on:** operator. **Changes:** nothing.
    """
    samples = _samples(reading)
    if not samples:
        return None
    declared = reading.asked.target.get("benchmark")
    tolerance = declared.get("tolerance_ratio") if isinstance(declared, dict) else None
    return Throughput(
        samples=tuple(samples),
        baseline_tok_per_s=_baseline(reading),
        tolerance_ratio=_number(tolerance),
        corrected=_corrected(reading),
    )


def first_steps_plot(reading: Reading) -> FirstSteps | None:
    """First steps with a cold and with a warm cache; None when neither was measured.

    **Runs on:** operator. **Changes:** nothing.
    """
    rows: dict[str, FirstStep] = {}
    entries = _at(reading, WARM_CACHE_STAGE, "measured", "first_steps")
    for entry in entries if isinstance(entries, list) else []:
        cold_s, warm_s = (_number(_within(entry, k)) for k in ("cold_s", "warm_s"))
        if cold_s is None and warm_s is None:
            continue
        label = _label(entry)
        # A further thread of a role on the same device finds compiled what the first one compiled.
        rows.setdefault(label, FirstStep(label, cold_s, warm_s))
    return FirstSteps(tuple(rows.values())) if rows else None


def _log_is_older(reading: Reading) -> bool:
    written = _at(reading, PREFLIGHT_STAGE, "facts", "training_log", "mtime")
    made = _at(reading, PREFLIGHT_STAGE, "facts", "packages", "created_at")
    return isinstance(written, str) and isinstance(made, str) and written < made


def _corrected(reading: Reading) -> bool:
    return bool(_at(reading, BENCHMARK_STAGE, "measured", "free_cores"))


def _samples(reading: Reading) -> tuple[tuple[float, float], ...]:
    raw = _at(reading, BENCHMARK_STAGE, "measured", "series")
    samples = []
    for entry in raw if isinstance(raw, list) else []:
        t_s, rate = (_number(_within(entry, k)) for k in ("t_s", "tok_per_s"))
        if t_s is not None and rate is not None:
            samples.append((t_s, rate))
    return tuple(samples)


def _baseline(reading: Reading) -> float | None:
    used = _number(_at(reading, BENCHMARK_STAGE, "measured", "baseline", "tok_per_s"))
    if used is not None:
        return used
    return _number(_at(reading, BENCHMARK_STAGE, "facts", "expected", "tok_per_s"))


def _label(entry: object) -> str:
    role, device, shape = (_within(entry, k) for k in ("role", "device", "shape"))
    sizes = shape.items() if isinstance(shape, Mapping) else ()
    said = ", ".join(f"{name} {value_text(size)}" for name, size in sizes)
    return " · ".join(str(part) for part in (role, device, said) if part)


def _at(reading: Reading, stage: str, *path: str) -> object:
    """A field of a stage's evidence; None when any part of the path is not there."""
    read = reading.stage(stage)
    value: object = read.evidence if read else None
    for name in path:
        value = _within(value, name)
    return value


def _within(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) else None


def _numbers(values: object) -> list[float]:
    if not isinstance(values, Sequence) or isinstance(values, str):
        return []
    return [n for n in map(_number, values) if n is not None]
