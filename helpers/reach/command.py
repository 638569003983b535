"""A command for the container and what came of it.

Plain data: this room knows neither how a command travels nor what it is for.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

End = Literal["exited", "signalled", "timed_out", "not_started", "unknown"]


@dataclass(frozen=True)
class Command:
    """One program to run in the container; no shell is involved.

    Attributes:
        argv: program and arguments, passed on byte for byte.
        purpose: what it is for, in words; shown to people and kept in the journal.
        env: variables added to the container's declared environment.
        cwd: folder in the container to start in; None = the container's default.
        stdin: bytes fed to the program; its input is closed after them.
        timeout_s: total time allowed.
        changes: whether the program may change the container (decides what an error says of its state).
        secrets: texts that must be masked wherever the command is written down.
    """

    argv: tuple[str, ...]
    purpose: str
    env: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    cwd: str | None = None
    stdin: bytes = b""
    timeout_s: float = 60.0
    changes: bool = False
    secrets: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = shlex.join(self.argv)
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


@dataclass(frozen=True)
class CommandResult:
    """Everything known of a command that was sent.

    Attributes:
        where: name of the container it ran in.
        end: how it ended. "unknown": it was sent and its end was never seen.
        returncode: exit code; the negative signal number when it was killed; None when it did not end.
        started_at: UTC, ISO 8601.
        elapsed_s: wall-clock seconds from sending it to its end.
    """

    command: Command
    where: str
    end: End
    returncode: int | None
    stdout: bytes
    stderr: bytes
    started_at: str
    elapsed_s: float

    @property
    def ok(self) -> bool:
        """Whether it ran to its end and said yes."""
        return self.end == "exited" and self.returncode == 0

    @property
    def text(self) -> str:
        """Standard output as text; bytes that are not UTF-8 are shown escaped."""
        return self.stdout.decode("utf-8", "backslashreplace")

    def tail(self, lines: int) -> str:
        """The last lines of standard error, or of standard output when that is empty."""
        data = self.stderr if self.stderr.strip() else self.stdout
        return "\n".join(data.decode("utf-8", "backslashreplace").rstrip().splitlines()[-lines:])
