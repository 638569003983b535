"""The error tree: every failure sorted by what the operator does next.

RunbookError                      .hint: what to do next    .changed: "no" | "yes" | "unknown"
├── ParameterError                fix the parameter or the target file; nothing was touched
├── PreconditionFailed            follow the hint; nothing was touched
├── TargetError                   fix the way in
│   ├── HostUnreachable
│   ├── HostKeyMismatch
│   ├── LoginRefused
│   ├── WrongTarget
│   ├── ContainerNotFound
│   ├── ContainerNotRunning
│   ├── ContainerLocked
│   └── ContainerElsewhere
├── CommandError     .result      read the last ten lines; the full log is in the run folder
│   ├── CommandFailed
│   ├── CommandTimedOut
│   └── OutcomeUnknown            the connection was lost: ask the target what happened
├── PayloadError     .result      the script broke, not the machine
│   └── PayloadBroken             no JSON document came back, whatever the exit code said
├── VerificationFailed .verdict   roll back or escalate
├── NeedsApproval    .plan_hash   read the plan, approve it, resume
└── ChainStopped     .stage .notebook

This room knows nothing but itself: results, verdicts and plans are carried, never inspected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from pathlib import Path

    from helpers.reach.command import CommandResult
    from helpers.verdict import Verdict

Changed = Literal["no", "yes", "unknown"]

_STATE = {
    "no": "Nothing was changed on the target.",
    "yes": "The target was changed; the journal lists every change with its undo.",
    "unknown": "It is not known whether the target was changed; look before you go on.",
}


class RunbookError(Exception):
    """Root of the tree. Its text is three sentences: what failed, the state now, what to do next.

    Args:
        what: what failed, one sentence.
        hint: what the operator does next, in the imperative.
        changed: whether the target was changed by the step that failed.
    """

    def __init__(self, what: str, *, hint: str, changed: Changed = "no") -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.changed: Changed = changed

    @property
    def state(self) -> str:
        """The machine's state now, as a sentence."""
        return _STATE[self.changed]

    def __str__(self) -> str:
        return f"{self.what}\n  State: {self.state}\n  Next:  {self.hint}"

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows instead of a traceback: the three sentences (IPython's own protocol)."""
        return [f"{type(self).__name__}: {self}"]


class ParameterError(RunbookError):
    """A parameter or a target file is wrong. Raised before anything is touched."""


class PreconditionFailed(RunbookError):
    """Something the stage needs is not there. Raised before anything is touched."""


class TargetError(RunbookError):
    """The way to the target does not work."""


class HostUnreachable(TargetError):
    """The host did not answer."""


class HostKeyMismatch(TargetError):
    """The host's key is unknown or not the one on file."""


class LoginRefused(TargetError):
    """The host answered and refused the login."""


class WrongTarget(TargetError):
    """What answered is not what the target file declares."""


class ContainerNotFound(TargetError):
    """There is no such container."""


class ContainerNotRunning(TargetError):
    """The container exists and is stopped."""


class ContainerLocked(TargetError):
    """The container is locked by a backup, a snapshot or a migration."""


class ContainerElsewhere(TargetError):
    """The container lives on another member of the cluster."""


class CommandError(RunbookError):
    """A command in the container went wrong; ``result`` holds all that is known of it."""

    def __init__(
        self, what: str, *, result: CommandResult, hint: str, changed: Changed = "unknown"
    ) -> None:
        super().__init__(what, hint=hint, changed=changed)
        self.result = result

    def __str__(self) -> str:
        tail = self.result.tail(lines=10)
        return f"{super().__str__()}\n{tail}" if tail else super().__str__()


class CommandFailed(CommandError):
    """The command ran to its end and said no."""


class CommandTimedOut(CommandError):
    """The command was ended at its deadline."""


class OutcomeUnknown(CommandError):
    """The command was sent and its end was never seen."""


class PayloadError(RunbookError):
    """A payload could not measure; ``result`` holds its output."""

    def __init__(
        self, what: str, *, result: CommandResult, hint: str, changed: Changed = "no"
    ) -> None:
        super().__init__(what, hint=hint, changed=changed)
        self.result = result

    def __str__(self) -> str:
        tail = self.result.tail(lines=10)
        return f"{super().__str__()}\n{tail}" if tail else super().__str__()


class PayloadBroken(PayloadError):
    """The payload's last line of output is not its JSON document."""


class VerificationFailed(RunbookError):
    """A stage ran and its verdict is not a pass."""

    def __init__(self, what: str, *, verdict: Verdict, hint: str, changed: Changed = "yes") -> None:
        super().__init__(what, hint=hint, changed=changed)
        self.verdict = verdict


class NeedsApproval(RunbookError):
    """A plan with changes waits for the operator's approval."""

    def __init__(self, what: str, *, plan_hash: str, hint: str) -> None:
        super().__init__(what, hint=hint, changed="no")
        self.plan_hash = plan_hash


class ChainStopped(RunbookError):
    """The chain ended before its last stage."""

    def __init__(
        self, what: str, *, stage: str, notebook: Path, hint: str, changed: Changed
    ) -> None:
        super().__init__(what, hint=hint, changed=changed)
        self.stage = stage
        self.notebook = notebook
