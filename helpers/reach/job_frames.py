"""What a job's follower sends, read as it comes: pieces of two streams, and at last the state.

It counts what it has passed on, also of a frame that broke off in the middle: that is where the
next follower goes on.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal

from helpers.reach.container import OnOutput

State = Literal["running", "finished", "killed", "lost", "missing"]


@dataclass(frozen=True)
class JobState:
    """How a job is.

    Attributes:
        state: "finished": it ended by itself. "killed": it was stopped, or vanished without an exit
            code. "lost": the container was restarted under it. "missing": there is no such job.
        returncode: its exit code, where it has written one.
        age_s: seconds since it was started.
    """

    state: State
    returncode: int | None
    age_s: int


class Frames:
    """See the module's head.

    Attributes:
        stdout_bytes: how much of standard output was passed on.
        stderr_bytes: how much of standard error was passed on.
        heard_at: when something came last, on the monotonic clock.
        state: what the last line said; None = it has not come.
    """

    def __init__(
        self, on_stdout: OnOutput | None = None, on_stderr: OnOutput | None = None
    ) -> None:
        self._listeners = {b"O": on_stdout, b"E": on_stderr}
        self._counts = {b"O": 0, b"E": 0}
        self.heard_at = 0.0
        self.begin()

    @property
    def stdout_bytes(self) -> int:
        """See the class."""
        return self._counts[b"O"]

    @property
    def stderr_bytes(self) -> int:
        """See the class."""
        return self._counts[b"E"]

    def begin(self) -> None:
        """A new follower starts to send."""
        self._held = b""
        self._stream, self._left_bytes = b"", 0
        self.state: JobState | None = None

    def feed(self, data: bytes) -> None:
        """Take a piece of what the follower sends."""
        self.heard_at = time.monotonic()
        self._held += data
        while self._held:
            if self._left_bytes:
                self._pass_on(self._held[: self._left_bytes])
            elif b"\n" in self._held:
                line, _, self._held = self._held.partition(b"\n")
                self._line(line)
            else:
                return

    def _pass_on(self, data: bytes) -> None:
        self._held = self._held[len(data) :]
        self._left_bytes -= len(data)
        self._counts[self._stream] += len(data)
        listener = self._listeners[self._stream]
        if listener is not None:
            listener(data)

    def _line(self, line: bytes) -> None:
        word, *rest = line.split()
        if word == b"S":
            name, code, age_s = (item.decode("ascii") for item in rest)
            returncode = None if code == "-" else int(code)
            self.state = JobState(_known(name), returncode, int(age_s))
        elif word in self._listeners:
            self._stream, self._left_bytes = word, int(rest[0])


def _known(name: str) -> State:
    for state in ("running", "finished", "killed", "lost", "missing"):
        if name == state:
            return state
    raise ValueError(f"a job cannot be {name!r}")
