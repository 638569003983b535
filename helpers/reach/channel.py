"""One command over one channel: both streams drained together, input fed, a deadline for all of it.

paramiko's own ways each hang somewhere: on a full stream that nobody reads, on an answer that does
not come, on a grandchild that keeps a stream open. This room must not know what the command is.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import paramiko

Outcome = Literal["exited", "timed_out", "lost", "refused"]
OnOutput = Callable[[bytes], None]

_LOST = (paramiko.SSHException, EOFError, OSError)
_PIECE_BYTES = 262_144
_WAIT_S = 0.25
# A stream left open counts as quiet after so many answers of the host with no data between them:
# one answer may overtake data that the host had read already, two cannot.
_QUIET_ANSWERS = 3


@dataclass(frozen=True)
class Exchange:
    """What came of a command line that was sent to the host.

    Attributes:
        outcome: "lost": no exit status came. "refused": the host does not run commands.
        status: exit status of the host's shell; None without one.
        connected: whether the connection was still there at the end.
    """

    outcome: Outcome
    status: int | None
    stdout: bytes
    stderr: bytes
    connected: bool


class ChannelRun:
    """One command on one channel.

    Args:
        channel: just opened.
        line: for the host's shell.
        stdin: fed to it; its input is closed afterwards.
        deadline: on the monotonic clock.
        ask: makes the host answer; False when it does not.
    """

    def __init__(
        self,
        channel: paramiko.Channel,
        line: str,
        *,
        stdin: bytes,
        deadline: float,
        ask: Callable[[], bool],
    ) -> None:
        self._channel = channel
        self._transport = channel.get_transport()
        self._deadline = deadline
        self._ask = ask
        self._stdout, self._stderr = bytearray(), bytearray()
        self._refused = self._broken = False
        # Asking for the command waits for the host without a limit, and so may feeding it: both
        # happen aside, so that the deadline holds.
        self._feeder = threading.Thread(
            target=self._feed, args=(line, stdin), name="ssh-feeder", daemon=True
        )

    def run(self, on_stdout: OnOutput | None, on_stderr: OnOutput | None) -> Exchange:
        """Run it to its end, its deadline or the loss of the connection."""
        self._feeder.start()
        quiet = 0
        while not self._at_end():
            if self._take(on_stdout, on_stderr):
                quiet = 0
            elif time.monotonic() > self._deadline:
                return self._exchange("timed_out", None)
            elif self._left_behind():
                quiet = quiet + 1 if self._ask() else _QUIET_ANSWERS
                if quiet >= _QUIET_ANSWERS and not self._take(on_stdout, on_stderr):
                    break
            else:
                self._wait()
        while self._take(on_stdout, on_stderr):
            pass
        status = self._channel.recv_exit_status() if self._channel.exit_status_ready() else -1
        if status >= 0 and not self._broken:
            return self._exchange("exited", status)
        return self._exchange("refused" if self._refused else "lost", None)

    def _feed(self, line: str, stdin: bytes) -> None:
        channel = self._channel
        try:
            channel.exec_command(line)
        except _LOST:
            # A dying connection looks alive for a moment: only an answer proves that it is not that.
            self._refused = self._ask()
            with suppress(*_LOST):
                channel.close()
            return
        data = memoryview(stdin)
        # The program may end before it has read everything; then there is nobody to feed.
        with suppress(*_LOST):
            for start in range(0, len(data), _PIECE_BYTES):
                channel.sendall(data[start : start + _PIECE_BYTES])  # type: ignore[arg-type]
            channel.shutdown_write()

    def _take(self, on_stdout: OnOutput | None, on_stderr: OnOutput | None) -> bool:
        channel = self._channel
        out = self._read(channel.recv) if channel.recv_ready() else b""
        err = self._read(channel.recv_stderr) if channel.recv_stderr_ready() else b""
        self._stdout += out
        self._stderr += err
        if out and on_stdout is not None:
            on_stdout(out)
        if err and on_stderr is not None:
            on_stderr(err)
        return bool(out or err)

    def _read(self, read: Callable[[int], bytes]) -> bytes:
        try:
            return read(_PIECE_BYTES)
        except _LOST:  # reading also tells the host to send more; what was read is gone with that
            self._broken = True
            return b""

    def _at_end(self) -> bool:
        channel = self._channel
        ended = channel.eof_received and channel.exit_status_ready()
        return bool(self._broken or channel.closed or ended)

    def _left_behind(self) -> bool:
        """Whether the command has ended and something it started keeps its streams open."""
        return bool(self._channel.exit_status_ready() and not self._channel.eof_received)

    def _wait(self) -> None:
        wait_s = max(0.0, min(self._deadline - time.monotonic(), _WAIT_S))
        if self._channel.eof_received:
            self._channel.status_event.wait(wait_s)
        else:
            select.select([self._channel], [], [], wait_s)

    def _exchange(self, outcome: Outcome, status: int | None) -> Exchange:
        connected = self._ask() if outcome == "lost" else self._transport.is_active()
        return Exchange(outcome, status, bytes(self._stdout), bytes(self._stderr), connected)
