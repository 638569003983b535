"""Work that outlives the connection: started once, followed from anywhere, stopped as a whole.

A job is a folder in the container. Its processes belong to a session of their own and know nothing
of ssh; whoever asks is told how it is and what it has said since. This room knows scripts, bytes
and states, and not what a job is for.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, wait_exponential

from helpers.errors import (
    CommandFailed,
    CommandTimedOut,
    ContainerNotRunning,
    HostUnreachable,
    OutcomeUnknown,
    ParameterError,
    PreconditionFailed,
    TargetError,
)
from helpers.reach.command import Command
from helpers.reach.container import Container, OnOutput
from helpers.reach.job_frames import Frames, JobState
from helpers.reach.job_script import COLLECT, FOLLOW, LOOK, RUN, START, STOP

PATIENCE_S = 300.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_OTHER = 74
_ROUND_S = 60
_SLACK_S = 30.0
Result = TypeVar("Result")


@dataclass(frozen=True)
class JobPlace:
    """Where a job lives: the same place finds the same job again.

    Attributes:
        folder: absolute, in the container; made when it is missing.
        name: one job's; letters, digits, ``.``, ``_`` and ``-``.
    """

    folder: str
    name: str

    def __post_init__(self) -> None:
        if not _NAME.match(self.name) or not self.folder.startswith("/"):
            raise ParameterError(
                f"{self.folder!r} and {self.name!r} name no place for a job.",
                hint="Use an absolute folder and a name of letters, digits, ., _ and -.",
            )

    @property
    def path(self) -> str:
        """The job's own folder."""
        return f"{self.folder.rstrip('/')}/{self.name}"


class Job:
    """One job.

    Args:
        container: where it runs.
        place: which job it is.
        patience_s: how long a lost connection is tried again; the job goes on meanwhile.
    """

    def __init__(
        self, container: Container, place: JobPlace, *, patience_s: float = PATIENCE_S
    ) -> None:
        self._container = container
        self._place = place
        self._patience_s = patience_s

    def start(self, command: Command) -> Literal["started", "found"]:
        """Start it, unless it has been started before: a second start finds the first.

        Only one that has ended and was collected is set aside, and a new one started.

        **Runs on:** container. **Changes:** the job's folder, and what the command changes.

        Args:
            command: its time-out is not kept here: see ``as_job``.

        Raises:
            PreconditionFailed: the job there does something else.
            CommandFailed: it could not be started.
            TargetError, OutcomeUnknown: there was no way to the container for too long.
        """
        spec = _spec(command)
        want = hashlib.sha256(command.stdin).hexdigest()
        argv = ("bash", "-c", START, RUN, self._place.path, spec, want, *command.argv)
        starting = replace(
            command, argv=argv, purpose=f"start as a job: {command.purpose}", timeout_s=120
        )
        result = self._patiently(lambda: self._container.run(starting))
        if result.returncode == _OTHER:
            raise PreconditionFailed(
                f"The job {self._place.name} is there already and does something else.",
                hint=f"Look at {self._place.path} in the container, or use another run.",
            )
        if not result.ok:
            raise CommandFailed(
                f"Could not start the job {self._place.name}: {command.purpose}.",
                result=result,
                hint=f"Check space and permissions of {self._place.folder} in the container.",
                changed="no",
            )
        return "started" if result.text.strip() == "started" else "found"

    def look(self) -> JobState:
        """How it is now. **Runs on:** container. **Changes:** nothing."""
        return self._told(LOOK, "look at a job")

    def collect(self, *, discard: bool = False) -> JobState:
        """Take note of its end: the next start at this place starts anew.

        **Runs on:** container. **Changes:** a mark in the job's folder.

        Args:
            discard: remove the folder of a job that has finished: it changed nothing, and what it
                said is recorded, so that measuring leaves nothing behind.
        """
        how = "discard" if discard else "keep"
        return self._told(COLLECT, "take note of a job's end", how, observed=False)

    def stop(self, grace_s: int = 10) -> JobState:
        """End all of it: asked first, made to after ``grace_s``.

        **Runs on:** container. **Changes:** the job's processes are gone.
        """
        return self._told(STOP, "stop a job", str(grace_s), timeout_s=grace_s + 60)

    def follow(
        self,
        on_stdout: OnOutput,
        on_stderr: OnOutput,
        *,
        oldest_s: float | None = None,
    ) -> JobState:
        """Stay with it until it has ended: every byte it has said since its start, once.

        **Runs on:** container. **Changes:** nothing.

        Args:
            on_stdout: called with pieces of its standard output, from the first byte on.
            on_stderr: called with pieces of its standard error.
            oldest_s: the job's age at which it is left alone, running.

        Raises:
            TargetError, OutcomeUnknown: there was no way to the container for too long. The job is
                not concerned: follow it again.
        """
        frames = Frames(on_stdout, on_stderr)
        while True:
            state = self._patiently(lambda: self._follow_once(frames, oldest_s), frames)
            if state.state != "running" or (oldest_s is not None and state.age_s >= oldest_s):
                return state

    def _follow_once(self, frames: Frames, oldest_s: float | None) -> JobState:
        frames.begin()
        known = (str(frames.stdout_bytes), str(frames.stderr_bytes))
        times = (str(_ROUND_S), str(0 if oldest_s is None else math.ceil(oldest_s)))
        command = self._command(
            FOLLOW, "follow a job", *known, *times, timeout_s=_ROUND_S + _SLACK_S
        )
        result = self._container.run(command, on_stdout=frames.feed, observed=False)
        if frames.state is None:
            raise OutcomeUnknown(
                f"The way to the job {self._place.name} broke off.",
                result=result,
                hint="The job is not concerned: run the stage again to follow on.",
                changed="no",
            )
        return frames.state

    def _told(
        self,
        script: str,
        purpose: str,
        *words: str,
        timeout_s: float = 60.0,
        observed: bool = True,
    ) -> JobState:
        command = self._command(script, purpose, *words, timeout_s=timeout_s)
        result = self._patiently(lambda: self._container.run(command, observed=observed))
        frames = Frames()
        frames.feed(result.stdout)
        if frames.state is None:
            raise CommandFailed(
                f"Nothing is known of the job {self._place.name}.",
                result=result,
                hint=f"Look at {self._place.path} in the container.",
                changed="unknown",
            )
        return frames.state

    def _command(self, script: str, purpose: str, *words: str, timeout_s: float) -> Command:
        argv = ("bash", "-c", script, "job", self._place.path, *words)
        return Command(argv, f"{purpose}: {self._place.name}", timeout_s=timeout_s)

    def _patiently(self, contact: Callable[[], Result], frames: Frames | None = None) -> Result:
        """Try again while the connection is bad, at most ``patience_s`` after the last byte."""
        begin = time.monotonic()

        def too_long(_: RetryCallState) -> bool:
            heard = max(begin, frames.heard_at if frames else begin)
            return time.monotonic() - heard > self._patience_s

        retrying = Retrying(
            retry=retry_if_exception(_is_transient),
            stop=too_long,
            wait=wait_exponential(multiplier=0.25, max=5),
            reraise=True,
        )
        return retrying(contact)


def _is_transient(error: BaseException) -> bool:
    """Whether it may pass by itself: the way is bad, or the container is just starting."""
    passing = (HostUnreachable, OutcomeUnknown, CommandTimedOut, ContainerNotRunning)
    return isinstance(error, passing) or type(error) is TargetError


def _spec(command: Command) -> str:
    """Tells whether two commands would do the same."""
    fields = [list(command.argv), sorted(command.env.items()), command.cwd]
    text = json.dumps(fields) + hashlib.sha256(command.stdin).hexdigest()
    return hashlib.sha256(text.encode()).hexdigest()
