"""A command run as a job: what ``Container.run`` promises, and the loss of the connection besides.

This room joins the two and must not know what the command is for.
"""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime

from helpers.errors import CommandError, OutcomeUnknown, TargetError
from helpers.reach.command import Command, CommandResult, End
from helpers.reach.container import Container, OnOutput, ended
from helpers.reach.job import PATIENCE_S, Job, JobPlace
from helpers.reach.job_frames import JobState


def run_as_job(
    container: Container,
    command: Command,
    place: JobPlace,
    *,
    on_stdout: OnOutput | None = None,
    on_stderr: OnOutput | None = None,
    patience_s: float = PATIENCE_S,
) -> CommandResult:
    """Run a command as ``Container.run`` does, but so that it survives the loss of the connection.

    When the same command was started at this place before and nobody has had its result, that one
    is waited for. An interrupt here does not end it.

    **Runs on:** container. **Changes:** the job's folder, and what the command changes.

    Args:
        container: where to.
        command: what to run; its time-out counts from its start in the container.
        place: which job it is.
        on_stdout: called with pieces of standard output, from the first byte on.
        on_stderr: called with pieces of standard error.
        patience_s: how long a lost connection is tried again.

    Raises:
        CommandTimedOut: it was stopped at its deadline.
        OutcomeUnknown: the container was restarted under it, or it was killed.
        PreconditionFailed: the job there does something else.
        CommandFailed, TargetError: as ``Job.start``.
    """
    job = Job(container, place, patience_s=patience_s)
    started_at, start = datetime.now(UTC).isoformat(), time.monotonic()
    job.start(command)
    state, result = _followed(
        container,
        job,
        command,
        started_at,
        start,
        on_stdout=on_stdout,
        on_stderr=on_stderr,
        discard=not command.changes,
    )
    if state.state in ("killed", "lost", "missing"):
        raise _gone(state, place, result)
    return ended(result)


def wait_for_job(
    container: Container, place: JobPlace, *, oldest_s: float, on_stderr: OnOutput | None = None
) -> JobState:
    """Stay with a job that somebody else started until it has ended, and take note of its end.

    **Runs on:** container. **Changes:** a mark in the job's folder.

    Args:
        container: where it is.
        place: which job it is.
        oldest_s: the age at which it is stopped: nothing takes that long.
        on_stderr: called with pieces of its standard error, from the first byte on.

    Raises:
        TargetError, OutcomeUnknown: there was no way to the container for too long.
    """
    purpose = f"wait for what an earlier attempt started: {place.name}"
    command = Command(("job", place.path), purpose, timeout_s=oldest_s)
    started_at, start = datetime.now(UTC).isoformat(), time.monotonic()
    job = Job(container, place)
    return _followed(container, job, command, started_at, start, on_stderr=on_stderr)[0]


def _followed(
    container: Container,
    job: Job,
    command: Command,
    started_at: str,
    start: float,
    *,
    on_stdout: OnOutput | None = None,
    on_stderr: OnOutput | None = None,
    discard: bool = False,
) -> tuple[JobState, CommandResult]:
    """Its end and all it said, which are recorded; stopped when it is older than it may become."""
    out, err = bytearray(), bytearray()
    state = job.follow(
        _both(out.extend, on_stdout),
        _both(err.extend, on_stderr),
        oldest_s=command.timeout_s,
    )
    end: End = "exited" if state.state == "finished" else "unknown"
    if state.state == "running":
        end = "timed_out" if job.stop().state == "killed" else "unknown"
    result = CommandResult(
        command,
        container.name,
        end,
        state.returncode if end == "exited" else None,
        bytes(out),
        bytes(err),
        started_at,
        time.monotonic() - start,
    )
    container.observe(result)
    with suppress(
        TargetError, CommandError
    ):  # then the next run finds this result again: also true
        job.collect(discard=discard)
    return state, result


def _gone(state: JobState, place: JobPlace, result: CommandResult) -> OutcomeUnknown:
    why = {
        "killed": "it was killed",
        "lost": "the container was restarted under it",
        "missing": f"its folder {place.path} is gone",
    }[state.state]
    return OutcomeUnknown(
        f"The job {place.name} did not come to its end ({why}): {result.command.purpose}.",
        result=result,
        hint="Look at the container before you run this again, in a new run.",
        changed="unknown" if result.command.changes else "no",
    )


def _both(kept: OnOutput, told: OnOutput | None) -> OnOutput:
    def take(data: bytes) -> None:
        kept(data)
        if told is not None:
            told(data)

    return take
