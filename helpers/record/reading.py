"""What a run folder says, read and put in order for a reader. No HTML, no judgement of its own.

A pure reader: whatever is missing or unreadable is said to be so, and the rest is told all the
same. This room must not know how stages measure; of their evidence it reads what every stage has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError

from helpers.plan import Plan
from helpers.record.happenings import happenings
from helpers.record.run_folder import Asked, Outcome, RunFolder, StageRecord, StageState
from helpers.verdict import Check, Status, Verdict

PREFLIGHT_STAGE = "00_preflight"


@dataclass(frozen=True)
class StageReading:
    """One stage: what the journal and its evidence say."""

    record: StageRecord
    verdict: Verdict | None
    error: Mapping[str, str] | None
    evidence: Mapping[str, Any]
    plan: Plan | None

    @property
    def deciding(self) -> Check | None:
        """The check that decided the verdict; None when there is no verdict, or all is well."""
        if self.verdict is None or self.verdict.status.good:
            return None
        return self.verdict.deciding


@dataclass(frozen=True)
class ChangeReading:
    """One change: what was meant, and how far it came.

    Attributes:
        phase: the journal's last word on it: begins, done, failed or undone.
        error: why it failed or was undone.
    """

    stage: str
    phase: str
    change: Mapping[str, str]
    error: str | None


@dataclass(frozen=True)
class Reading:
    """Everything that a report is made of.

    Attributes:
        outcome: how the run ended; None when the journal does not hold its end.
        summary: the sentence that the run's end carries; empty when there is none.
        happenings: when and what happened besides the stages.
        findings: what was wrong at the start; None when that was never found out.
        lock: the environment as it was resolved; None when there is no such file.
        last_event: the journal's last whole line; None when there is none.
        problems: what shows that the journal was altered, and what could not be read.
    """

    asked: Asked
    outcome: Outcome | None
    summary: str
    stages: tuple[StageReading, ...]
    findings: tuple[Check, ...] | None
    changes: tuple[ChangeReading, ...]
    happenings: tuple[tuple[str, str], ...]
    commands: tuple[Mapping[str, Any], ...]
    lock: str | None
    journal_head: str
    journal_events: int
    last_event: Mapping[str, Any] | None
    problems: tuple[str, ...]

    def stage(self, name: str) -> StageReading | None:
        """A stage of this run; None when it was not asked for."""
        return next((s for s in self.stages if s.record.name == name), None)

    @property
    def open_plans(self) -> list[tuple[str, Plan]]:
        """Plans with changes that nobody has approved yet, by stage."""
        return [
            (stage.record.name, stage.plan)
            for stage in self.stages
            if stage.record.state is StageState.NEEDS_APPROVAL and stage.plan is not None
        ]

    @property
    def elapsed_s(self) -> float | None:
        """From the run's start to the journal's last entry."""
        if self.last_event is None:
            return None
        start, end = self.asked.started_at, str(self.last_event.get("at", ""))
        try:
            return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
        except (TypeError, ValueError):
            return None


def read_run(folder: RunFolder) -> Reading:
    """Read a run folder, however little of it there is.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        ParameterError: run.json is missing or of another version: nothing says what this folder is.
    """
    asked = folder.asked
    problems = list(folder.journal.problems())
    events = list(folder.journal.events())
    names = [*asked.stages, *_unasked(events, asked.stages)]
    stages = tuple(_stage(folder, name, problems) for name in names)
    ends = [event for event in events if event.get("event") == "run_ended"]
    return Reading(
        asked=asked,
        outcome=_outcome(ends, problems),
        summary=str(ends[-1].get("summary", "")) if ends else "",
        stages=stages,
        findings=_findings(stages, problems),
        changes=_changes(events),
        happenings=tuple(happenings(events)),
        commands=tuple(e for e in events if e.get("event") == "command"),
        lock=_lock(folder),
        journal_head=folder.journal.head(),
        journal_events=len(events),
        last_event=events[-1] if events else None,
        problems=tuple(problems),
    )


def _outcome(ends: Sequence[Mapping[str, Any]], problems: list[str]) -> Outcome | None:
    if not ends:
        return None
    word = ends[-1].get("outcome")
    if word in list(Outcome):
        return Outcome(word)
    problems.append(f"the journal names an outcome that this version does not know: {word!r}")
    return Outcome.UNKNOWN


def _unasked(events: Iterable[Mapping[str, Any]], asked: Sequence[str]) -> list[str]:
    """Stages that somebody ran in this run by hand, beside those it was made for."""
    started = [e.get("stage") for e in events if e.get("event") == "stage_started"]
    return sorted({s for s in started if isinstance(s, str)} - set(asked))


def _stage(folder: RunFolder, name: str, problems: list[str]) -> StageReading:
    record = folder.stage_record(name)
    try:
        evidence = folder.evidence(name) or {}
    except ValueError as error:  # not JSON, not UTF-8
        problems.append(f"evidence/{name}.json cannot be read: {error}")
        evidence = {}
    verdict = evidence.get("verdict")
    checks = _checks(verdict.get("checks"), name, problems) if verdict else None
    error_said = evidence.get("error")
    return StageReading(
        record=record,
        plan=_plan(evidence.get("plan"), name, problems),
        verdict=Verdict(checks=tuple(checks)) if checks is not None else None,
        error={k: str(v) for k, v in error_said.items()} if error_said else None,
        evidence=evidence,
    )


def _plan(raw: object, name: str, problems: list[str]) -> Plan | None:
    if raw is None:
        return None
    try:
        return Plan.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]["msg"]
        problems.append(f"evidence/{name}.json holds a plan that cannot be read: {first}")
        return None


def _checks(raw: object, name: str, problems: list[str]) -> list[Check]:
    found = []
    for entry in raw if isinstance(raw, list) else []:
        try:
            found.append(Check.model_validate(entry))
        except ValidationError as error:
            first = error.errors()[0]["msg"]
            problems.append(f"evidence/{name}.json holds a check that cannot be read: {first}")
    return found


def _findings(stages: Iterable[StageReading], problems: list[str]) -> tuple[Check, ...] | None:
    """What was wrong before anything was done; None when preflight never found out how it was."""
    preflight = next((s for s in stages if s.record.name == PREFLIGHT_STAGE), None)
    if preflight is None or preflight.evidence.get("facts") is None:
        return None
    found = _checks(preflight.evidence.get("findings"), PREFLIGHT_STAGE, problems)
    return tuple(check for check in found if check.status is not Status.PASS)


def _changes(events: Iterable[Mapping[str, Any]]) -> tuple[ChangeReading, ...]:
    """The last word on every change, in the order in which they began."""
    last: dict[tuple[str, ...], ChangeReading] = {}
    for event in events:
        if event.get("event") != "change" or not isinstance(event.get("change"), dict):
            continue
        change = {str(k): str(v) for k, v in event["change"].items()}
        stage, error = str(event.get("stage", "")), event.get("error")
        key = (stage, change.get("what", ""), change.get("where", ""))
        phase = str(event.get("phase", ""))
        last[key] = ChangeReading(stage, phase, change, None if error is None else str(error))
    return tuple(last.values())


def _lock(folder: RunFolder) -> str | None:
    path = folder.path / "evidence" / "10_environment.lock.txt"
    return path.read_text(encoding="utf-8", errors="backslashreplace") if path.exists() else None
