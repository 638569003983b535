"""The record of one stage while it goes on: its evidence and its lines in the journal.

Every way out of a phase, whatever it is, ends the stage in the journal before anybody else hears of it.
This room must not know what a stage looks at, plans or does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from helpers.book.binding import Binding
from helpers.book.progress import Progress
from helpers.errors import (
    Changed,
    CommandTimedOut,
    NeedsApproval,
    OutcomeUnknown,
    PayloadError,
    RunbookError,
    VerificationFailed,
)
from helpers.record.run_folder import StageState
from helpers.recover.left_jobs import wait_for_left_jobs
from helpers.verdict import Status, Verdict

# After these nobody knows what happened: the stage is unknown, not failed.
_UNKNOWN = (OutcomeUnknown, CommandTimedOut, PayloadError)


@dataclass
class Phase:
    """A phase that goes on.

    Attributes:
        ends_as: the stage's state when the phase raises; None = as the error says.
    """

    ends_as: StageState | None = None


class Keeping:
    """What is known of a stage, on disk at every step.

    Attributes:
        evidence: what stands in the run folder as the stage's evidence.

    Args:
        binding: the stage's run folder and name.
        live: the progress line of whatever phase is going on.
    """

    def __init__(self, binding: Binding, live: Progress) -> None:
        self.evidence: dict[str, Any] = binding.empty_evidence()
        self._binding = binding
        self._live = live
        self._open = False
        self._started = time.monotonic()
        earlier = binding.folder.stage_record(binding.name).state is not StageState.PENDING
        self._may_be_left = binding.kind.reaches and (earlier or binding.folder.resumed)
        binding.folder.set_evidence_aside(binding.name)
        self._begin()

    @contextmanager
    def phase(self, phase: str) -> Iterator[Phase]:
        """Keep the record true whatever happens inside."""
        if not self._open:
            self._begin()
        going_on = Phase()
        try:
            with self._live.phase(phase):
                yield going_on
        except BaseException as error:
            self._fail(going_on.ends_as or state_after(error), phase, error)
            raise

    def wait_for_left_work(self) -> None:
        """Wait for what an earlier attempt, whose runner or kernel was killed, left going on.

        **Runs on:** container. **Changes:** the journal, which says what was found.
        """
        if self._may_be_left:
            for job in wait_for_left_jobs(self._binding.work):
                self.event("left_work", said=str(job), **asdict(job))
            self._may_be_left = False

    def end(self, state: StageState, summary: str) -> None:
        """The stage's last word. **Changes:** evidence and journal; the way to the container is closed."""
        self._binding.container.close()  # a further cell that needs it opens it again
        self.evidence.update(state=state.value, ended_at=datetime.now(UTC).isoformat())
        verdict = self.evidence["verdict"]
        status = Verdict.model_validate(verdict).status.value if verdict else None
        elapsed_s = round(time.monotonic() - self._started, 3)
        self.save()
        self.event(
            "stage_ended", state=state.value, elapsed_s=elapsed_s, summary=summary, verdict=status
        )
        self._open = False

    def event(self, event: str, **fields: Any) -> None:
        """One line of the journal. **Changes:** the journal."""
        self._binding.folder.journal.append(event, stage=self._binding.name, **fields)

    def save(self) -> None:
        """What is known so far. **Changes:** the evidence file, atomically."""
        self._binding.folder.write_evidence(self._binding.name, self.evidence)

    def _begin(self) -> None:
        self._open = True
        self._started = time.monotonic()
        self.evidence.update(state=StageState.RUNNING.value, ended_at=None, error=None)
        self.save()  # a stage that is killed from here on has left word that it began
        self.event(
            "stage_started", pid=os.getpid(), notebook_sha256=self._binding.notebook_sha256()
        )

    def _fail(self, state: StageState, phase: str, error: BaseException) -> None:
        known = isinstance(error, RunbookError)
        what = error.what if isinstance(error, RunbookError) else str(error)
        if state is StageState.INTERRUPTED:
            what = f"interrupted in its cell {phase!r}"
        self.evidence["error"] = {
            "type": type(error).__name__,
            "phase": phase,
            "what": what,
            "state": error.state if isinstance(error, RunbookError) else "It is not known.",
            "hint": error.hint if isinstance(error, RunbookError) else "Read the traceback.",
        }
        self.end(state, what if known else f"{type(error).__name__}: {what}")


def state_after(error: BaseException) -> StageState:
    """What is known of a stage that an error has ended. **Changes:** nothing."""
    if isinstance(error, NeedsApproval):
        return StageState.NEEDS_APPROVAL
    if isinstance(error, VerificationFailed):
        unknown = error.verdict.status is Status.UNKNOWN
        return StageState.UNKNOWN if unknown else StageState.FAILED
    if isinstance(error, _UNKNOWN):
        return StageState.UNKNOWN
    return StageState.INTERRUPTED if isinstance(error, KeyboardInterrupt) else StageState.FAILED


@dataclass(frozen=True)
class ActionFailure:
    """How an action ended that did not come to its end."""

    state: StageState
    said: str
    changed: Changed

    @classmethod
    def of(cls, error: BaseException, *, changing: bool) -> ActionFailure:
        """What an error says of the action that it ended.

        Args:
            error: whatever was raised.
            changing: whether the action was to change anything.
        """
        state = state_after(error)
        said = {
            StageState.UNKNOWN: "It is not known how the action ended",
            StageState.INTERRUPTED: "The action was interrupted",
        }.get(state, "The action failed")
        if not changing:
            return cls(state, f"{said}; it was to change nothing.", "no")
        changed = error.changed if isinstance(error, RunbookError) else "unknown"
        return cls(state, f"{said}; what it left behind is in the journal.", changed)
