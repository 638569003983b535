"""Checks and verdicts: what was measured, what was expected, and how they compare.

Everything here is plain data without I/O or clock, so that a verdict can be recomputed years later from
an evidence file and a target alone. This room must not know how anything was measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, JsonValue


class Status(StrEnum):
    """How one comparison came out. A measured bad value outranks one that could not be measured."""

    PASS = "pass"
    DRIFT = "drift"
    UNKNOWN = "unknown"
    DEGRADED = "degraded"
    FAIL = "fail"

    @property
    def severity(self) -> int:
        """0 (pass) to 4 (fail), the order in which the members are written."""
        return list(Status).index(self)

    @property
    def good(self) -> bool:
        """Whether the chain may go on: a pass, or a difference that breaks no rule."""
        return self in (Status.PASS, Status.DRIFT)

    @property
    def symbol(self) -> str:
        """One character that tells the status apart without colour."""
        return {"pass": "✓", "drift": "≈", "unknown": "?", "degraded": "▼", "fail": "✗"}[self.value]


class Check(BaseModel):
    """One named comparison of a measured value with an expectation.

    Attributes:
        name: short and stable, for instance ``torch version``; the same in every run.
        status: how it came out.
        measured: what was found; None when it could not be measured.
        expected: the value or rule it is compared with, as a reader would say it.
        source: where the expectation comes from (a field of the target, the baseline, a rule).
        meaning: what it means for the operator when it is not a pass; empty when it is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    status: Status
    measured: JsonValue = None
    expected: str = ""
    source: str = ""
    meaning: str = ""


class Verdict(BaseModel):
    """The checks of one stage and the worst of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    checks: tuple[Check, ...]

    @property
    def status(self) -> Status:
        """The worst status of the checks; without any check nothing was measured: unknown."""
        return max(
            (c.status for c in self.checks), key=lambda s: s.severity, default=Status.UNKNOWN
        )

    @property
    def deciding(self) -> Check | None:
        """The first check that has the verdict's status: the one to name in a sentence."""
        return next((c for c in self.checks if c.status is self.status), None)

    def __getitem__(self, name: str) -> Check:
        """The check called ``name``; KeyError when there is none."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)


def verdict(checks: Iterable[Check]) -> Verdict:
    """Gather checks into a verdict."""
    return Verdict(checks=tuple(checks))


def equal(
    name: str, measured: JsonValue, expected: JsonValue, *, source: str, meaning: str
) -> Check:
    """Compare for equality: None measured is unknown, an equal value passes, another fails."""
    compared = Status.PASS if measured == expected else Status.FAIL
    status = Status.UNKNOWN if measured is None else compared
    return Check(
        name=name,
        status=status,
        measured=measured,
        expected=str(expected),
        source=source,
        meaning="" if status is Status.PASS else meaning,
    )
