"""A run's folder: where everything about one attempt is kept, and what can be read back from it.

    runs/20261130T081203Z-sandbox-7f3a/
      run.json          what was asked
      journal.jsonl     every event in order; stage states and the run's outcome are read from it
      notebooks/        executed notebooks
      evidence/         what was measured, one JSON file a stage
      logs/             full output of commands and of cells
      report.html

The folder is never overwritten. This room knows nothing of notebooks' insides or of how the container is
reached.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from helpers.errors import ParameterError
from helpers.record.atomic import write_atomic
from helpers.record.journal import Journal


class StageState(StrEnum):
    """What is known of a stage in a run."""

    PENDING = "pending"
    RUNNING = "running"
    PASSED = "passed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    SKIPPED = "skipped"
    NEEDS_APPROVAL = "needs_approval"
    INTERRUPTED = "interrupted"


class Outcome(StrEnum):
    """How a run ended. ``PLANNED`` is a run that was asked to change nothing."""

    RECOVERED = "recovered"
    DEGRADED = "degraded"
    FAILED = "failed"
    UNKNOWN = "unknown"
    NEEDS_APPROVAL = "needs_approval"
    INTERRUPTED = "interrupted"
    PLANNED = "planned"
    STEPPED = "stepped"


class Asked(BaseModel):
    """What was asked of a run: ``run.json``. Written once, but for ``host_identity``.

    Attributes:
        host_identity: what proved the host and the container when they were first reached; None = not
            yet, or the container is a folder of this machine.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    mode: str  # "run", "plan", or "step" (a person or papermill executes single notebooks)
    approved: bool
    target_name: str
    target_file: str
    target_hash: str
    target: dict[str, JsonValue]
    stages: tuple[str, ...]
    operator: str
    started_at: str
    versions: dict[str, str]
    runbooks_commit: str | None
    host_identity: dict[str, str] | None = None


@dataclass(frozen=True)
class StageRecord:
    """A stage as the journal tells it."""

    name: str
    state: StageState
    started_at: str | None
    elapsed_s: float | None
    summary: str
    verdict: str | None


class RunFolder:
    """One run's folder on the operator's machine."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journal = Journal(path / "journal.jsonl")

    @classmethod
    def create(cls, runs_root: Path, asked: Mapping[str, Any]) -> RunFolder:
        """Make a new folder for a run.

        **Runs on:** operator. **Changes:** makes ``runs_root/<run id>``; never touches an existing run.

        Args:
            runs_root: the folder of all runs.
            asked: the fields of ``Asked`` but for ``run_id`` and ``started_at``.
        """
        now = datetime.now(UTC)
        run_id = f"{now:%Y%m%dT%H%M%SZ}-{asked['target_name']}-{secrets.token_hex(2)}"
        document = Asked(run_id=run_id, started_at=now.isoformat(), **asked)
        path = runs_root / run_id
        for part in ("notebooks", "evidence", "logs"):
            (path / part).mkdir(parents=True)
        write_atomic(path / "run.json", document.model_dump_json(indent=1))
        folder = cls(path)
        folder.journal.append(
            "run_started", run_id=run_id, mode=document.mode, stages=list(document.stages)
        )
        return folder

    @classmethod
    def open(cls, runs_root: Path, run: str) -> RunFolder:
        """An existing run, given by id, by path, or as ``latest``.

        **Runs on:** operator. **Changes:** nothing.

        Raises:
            ParameterError: there is no such run.
        """
        if run == "latest":
            found = sorted(p.parent for p in runs_root.glob("*/run.json"))
            path = found[-1] if found else runs_root / "latest"
        else:
            path = Path(run).resolve() if os.sep in run else runs_root / run
        if not (path / "run.json").is_file():
            raise ParameterError(
                f"There is no run at {path}.", hint="`recover status` lists the runs."
            )
        return cls(path)

    @property
    def asked(self) -> Asked:
        """What was asked of this run."""
        try:
            return Asked.model_validate_json((self.path / "run.json").read_text(encoding="utf-8"))
        except ValidationError as error:
            raise ParameterError(
                f"{self.path / 'run.json'} is not a run of this version: {error}",
                hint="Read it with the version of this package that wrote it.",
            ) from error

    def keep_host_identity(self, identity: dict[str, str]) -> None:
        """Keep what host and container proved to be. **Changes:** ``run.json``, once; the journal."""
        document = self.asked.model_copy(update={"host_identity": identity})
        write_atomic(self.path / "run.json", document.model_dump_json(indent=1))
        self.journal.append("host_identity", **identity)

    def notebook(self, stage: str) -> Path:
        """Where the executed notebook of a stage lies or will lie."""
        return self.path / "notebooks" / f"{stage}.ipynb"

    def write_evidence(self, stage: str, evidence: Mapping[str, JsonValue]) -> None:
        """Keep what is known of a stage so far. **Changes:** ``evidence/<stage>.json``, atomically."""
        text = json.dumps(evidence, ensure_ascii=False, allow_nan=False, indent=1)
        write_atomic(self.path / "evidence" / f"{stage}.json", text)

    def set_evidence_aside(self, stage: str) -> None:
        """Keep what an earlier attempt at a stage left, out of the way of a new attempt.

        **Changes:** ``evidence/<stage>.*`` goes to ``evidence/earlier/<stage>-<number>/``.
        """
        folder = self.path / "evidence"
        found = sorted(folder.glob(f"{stage}.*"))
        if not found:
            return
        number = 1 + len(list((folder / "earlier").glob(f"{stage}-*")))
        earlier = folder / "earlier" / f"{stage}-{number}"
        earlier.mkdir(parents=True)
        for path in found:
            path.rename(earlier / path.name)

    def set_notebook_aside(self, stage: str) -> None:
        """Keep the executed notebook of an earlier attempt, out of the way of a new one.

        **Changes:** ``notebooks/<stage>.ipynb`` goes to ``notebooks/earlier/<stage>-<number>.ipynb``.
        """
        path = self.notebook(stage)
        if path.exists():
            earlier = path.parent / "earlier"
            earlier.mkdir(exist_ok=True)
            number = 1 + len(list(earlier.glob(f"{stage}-*")))
            path.rename(earlier / f"{stage}-{number}.ipynb")

    def evidence(self, stage: str) -> dict[str, Any] | None:
        """The evidence of a stage, or None when it left none."""
        path = self.path / "evidence" / f"{stage}.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def stage_record(self, stage: str) -> StageRecord:
        """The latest state of a stage, read from the journal."""
        record = StageRecord(stage, StageState.PENDING, None, None, "", None)
        for event in self.journal.events():
            if event.get("stage") != stage:
                continue
            if event["event"] == "stage_started":
                record = StageRecord(stage, StageState.RUNNING, event["at"], None, "", None)
            elif event["event"] == "stage_ended":
                record = StageRecord(
                    stage,
                    StageState(event["state"]),
                    record.started_at,
                    event["elapsed_s"],
                    event["summary"],
                    event["verdict"],
                )
        return record

    def stage_records(self) -> list[StageRecord]:
        """Every stage that was asked for, in order."""
        return [self.stage_record(stage) for stage in self.asked.stages]

    @property
    def outcome(self) -> Outcome | None:
        """How the run ended; None while it runs, or when its runner died without a word."""
        told: Outcome | None = None
        for event in self.journal.events():
            if event["event"] == "run_ended":
                told = Outcome(event["outcome"])
            elif event["event"] in ("stage_started", "run_resumed"):
                told = None  # it was taken up again after it had ended: its end is open
        return told

    @property
    def resumed(self) -> bool:
        """Whether somebody has taken the run up again."""
        return any(event["event"] == "run_resumed" for event in self.journal.events())
