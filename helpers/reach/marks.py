"""What the line around a command says on standard error, told apart from the command's own output.

Exit codes alone do not tell pct's failure from the command's: pct says 2 for a container that is
missing, and so may any program. The marks do: did it start, was it the right container, did it end?
"""

from __future__ import annotations

import re
from collections.abc import Callable

_MARK = b"\x1e"
_LONGEST = 4096


class MarkedStream:
    """Standard error as it comes: marks are noted, and only the command's own output is passed on.

    Args:
        token: what the marks begin with.
        listener: called with pieces of the command's own output.

    Attributes:
        pid: the shell around the command, as the container numbers it; None = it did not start.
        returncode: the command's exit code, as that shell saw it; None = its end was not seen.
        absent: whether the program could not be started.
        stranger: what another container said of itself; None = it was the right one.
        before: what pct, lxc and the host's shell said before the command started.
        output: the command's own output.
    """

    def __init__(self, token: str, listener: Callable[[bytes], None] | None) -> None:
        self._begin = _MARK + token.encode() + b" "
        self._listener = listener
        self._held = b""
        self.pid: int | None = None
        self.returncode: int | None = None
        self.absent = False
        self.stranger: str | None = None
        self.before = bytearray()
        self.output = bytearray()

    def feed(self, data: bytes) -> None:
        """Take a piece of the stream."""
        self._held += data
        while (start := self._held.find(self._begin)) >= 0:
            end = self._held.find(_MARK, start + len(self._begin))
            if end < 0:
                break
            self._own(self._held[:start])
            self._note(self._held[start + len(self._begin) : end].decode("ascii", "replace"))
            self._held = self._held[end + 1 :]
        keep = self._could_begin()
        self._own(self._held[: len(self._held) - keep])
        self._held = self._held[len(self._held) - keep :]

    def close(self) -> None:
        """The stream has ended: what was held back because it looked like a mark was none."""
        self._own(self._held)
        self._held = b""

    def _could_begin(self) -> int:
        """Length of the end of what is held that may be the beginning of a mark."""
        start = self._held.rfind(self._begin)
        if start >= 0 and len(self._held) - start < _LONGEST:
            return len(self._held) - start
        longest = min(len(self._begin) - 1, len(self._held))
        fits = (n for n in range(longest, 0, -1) if self._begin.startswith(self._held[-n:]))
        return next(fits, 0)

    def _own(self, data: bytes) -> None:
        if not data:
            return
        if self.pid is None:
            self.before += data
        elif self.returncode is None:  # what comes later is said by what the command left behind
            self.output += data
            if self._listener is not None:
                self._listener(data)

    def _note(self, text: str) -> None:
        word, _, rest = text.partition(" ")
        if word == "started":
            self.pid = int(rest)
        elif word == "ended":
            self.returncode = int(rest)
        elif word == "absent":
            self.absent = True
        elif word == "stranger":
            self.stranger = re.sub(r"[^ -~]", "?", rest)[:200]
