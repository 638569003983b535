"""The Proxmox host over paramiko: one kept connection, a channel for each command.

What is sent here runs on the *host*. Rooms above this one send ``pct`` and nothing else; a recovery
stage has no way to this class. It must not know what a command is for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import paramiko
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_fixed

from helpers.errors import HostUnreachable, LoginRefused
from helpers.reach.channel import ChannelRun, Exchange, OnOutput
from helpers.reach.connection import Connection
from helpers.reach.ssh_settings import HostSettings

_DEAD_AFTER_S = 12.0
_OPEN_TIMEOUT_S = 5.0
# sshd allows 10 sessions on a connection unless told otherwise, and counts one that has just ended
# for a moment longer.
_SEATS = 8
_PIECE_BYTES = 32_768
_LOST = (paramiko.SSHException, EOFError, OSError)
Opened = TypeVar("Opened")


class Host:
    """A host that commands can be sent to; connects when it is first needed.

    Args:
        settings: who it is and how to log in.
        dead_after_s: silence after which the other side counts as gone.
    """

    def __init__(self, settings: HostSettings, *, dead_after_s: float = _DEAD_AFTER_S) -> None:
        self.settings = settings
        self._dead_after_s = dead_after_s
        self._connections: list[Connection] = []  # the last one is the one that is kept
        self._opening = threading.Lock()
        self._seats = threading.BoundedSemaphore(_SEATS)

    @property
    def name(self) -> str:
        """What people call it."""
        return self.settings.alias

    @property
    def key(self) -> str:
        """The key by which the host proved itself, as ssh shows it. Empty = not connected yet."""
        if not self._connections:
            return ""
        key = self._connections[-1].transport.get_remote_server_key()
        return f"{key.get_name()} {key.fingerprint}"

    def run(
        self,
        line: str,
        *,
        stdin: bytes = b"",
        timeout_s: float,
        on_stdout: OnOutput | None = None,
        on_stderr: OnOutput | None = None,
    ) -> Exchange:
        """Have the host's shell run a command line.

        **Runs on:** host. **Changes:** what the line changes.

        Args:
            line: printable ASCII, at most 131,071 bytes.
            stdin: fed to it; its input is closed afterwards.
            timeout_s: for the command once it is sent; the way there has time-outs of its own.
            on_stdout: called with pieces of standard output as they come.
            on_stderr: called with pieces of standard error as they come.

        Raises:
            HostUnreachable, HostKeyMismatch, LoginRefused: nothing was sent.
        """
        with self._seats:
            connection, channel = self._opened(_session)
            deadline = time.monotonic() + timeout_s
            try:
                exchange = ChannelRun(
                    channel, line, stdin=stdin, deadline=deadline, ask=connection.ask
                ).run(on_stdout, on_stderr)
            finally:
                with suppress(*_LOST):  # over a dead connection close() itself fails
                    channel.close()
        if exchange.outcome == "refused":
            raise LoginRefused(
                f"{self.settings} lets {self.settings.user} log in but runs no commands for it.",
                hint="Look for a forced command or a restriction in its authorized_keys.",
            )
        return exchange

    def put(self, data: bytes, path: str) -> None:
        """Write a file on the host through sftp.

        **Runs on:** host. **Changes:** the file, which must not be there yet.

        Raises:
            OSError: the host could not write it.
            HostUnreachable: there was no way to the host, or the connection was lost on the way.
        """
        with self._seats:
            connection, client = self._opened(_sftp)
            try:
                with client, client.open(path, "wx") as file:
                    file.chmod(0o600)
                    file.set_pipelined(True)
                    view = memoryview(data)
                    for start in range(0, len(view), _PIECE_BYTES):
                        file.write(view[start : start + _PIECE_BYTES])
            except _LOST as error:
                if connection.alive and isinstance(error, OSError):
                    raise
                raise HostUnreachable(
                    f"The connection to {self.settings} was lost while a file was sent there.",
                    hint=f"Check the network, then start again. {path} may be left on the host.",
                ) from error

    def close(self) -> None:
        """End the connection; the next command makes a new one. **Changes:** nothing."""
        with self._opening:
            connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()

    def _opened(self, open_on: Callable[[Connection], Opened]) -> tuple[Connection, Opened]:
        """Open something on the kept connection or, when that is dead, on a new one.

        One at a time: paramiko mixes up the failures of two that are opened at once.
        """
        with self._opening:
            kept = self._connections[-1] if self._connections else None
            if kept is not None and kept.alive:
                try:
                    return kept, open_on(kept)
                except paramiko.ChannelException as error:
                    raise self._no_seat(error) from error
                except _LOST:  # nothing was sent yet: a new connection cannot do anything twice
                    pass
            # The one before is not closed: it may be slow only, and others may be running on it.
            self._connections = [c for c in self._connections if c.alive]
            fresh = Connection(self.settings, dead_after_s=self._dead_after_s)
            self._connections.append(fresh)
            try:
                return fresh, open_on(fresh)
            except paramiko.ChannelException as error:
                raise self._no_seat(error) from error
            except _LOST as error:
                fresh.close()
                why = str(error) or type(error).__name__
                raise HostUnreachable(
                    f"{self.settings} accepted the login and then stopped answering: {why}.",
                    hint="Check the network and the load of the host, then start again.",
                ) from error

    def _no_seat(self, error: paramiko.ChannelException) -> HostUnreachable:
        return HostUnreachable(
            f"{self.settings} refuses a further session on the connection: {error.text}.",
            hint="Raise MaxSessions in the host's sshd_config to 10, its default.",
        )


_patiently = retry(
    retry=retry_if_exception_type(paramiko.ChannelException),
    stop=stop_after_delay(_OPEN_TIMEOUT_S),
    wait=wait_fixed(0.2),
    reraise=True,
)


@_patiently
def _session(connection: Connection) -> paramiko.Channel:
    return connection.transport.open_session(timeout=_OPEN_TIMEOUT_S)


@_patiently
def _sftp(connection: Connection) -> paramiko.SFTPClient:
    channel = connection.transport.open_session(timeout=_OPEN_TIMEOUT_S)
    channel.settimeout(_OPEN_TIMEOUT_S)
    channel.invoke_subsystem("sftp")
    return paramiko.SFTPClient(channel)
