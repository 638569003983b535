"""One ssh connection, through jump hosts where the settings name some, and a watch over it.

paramiko sets no TCP_NODELAY and does not notice a peer that is gone; both are done here. This room
knows how to get through and whether the other side still answers, not what for.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import paramiko

from helpers.errors import HostUnreachable, TargetError
from helpers.reach.host_keys import KnownHosts
from helpers.reach.login import log_in
from helpers.reach.ssh_settings import HostSettings

# What went wrong is in the errors raised; without this paramiko prints it on the terminal as well.
logging.getLogger("paramiko").addHandler(logging.NullHandler())

_KEEPALIVE = "keepalive@openssh.com"
_LOST = (paramiko.SSHException, EOFError, OSError)


class Wire:
    """The stream under a connection: a socket, or a channel of the jump host before it.

    paramiko reads and writes through it, and it counts what was heard.
    """

    def __init__(self, inner: socket.socket | paramiko.Channel) -> None:
        self._inner = inner
        self.heard = 0

    def recv(self, limit_bytes: int) -> bytes:
        """Read, and note that something was heard."""
        data = self._inner.recv(limit_bytes)
        self.heard += 1
        return data

    def send(self, data: bytes) -> int:
        """Write as much as fits."""
        return self._inner.send(data)

    def settimeout(self, timeout_s: float | None) -> None:
        """How long reading and writing may block."""
        self._inner.settimeout(timeout_s)

    def getpeername(self) -> object:
        """Who is at the other end, for paramiko's log."""
        return self._inner.getpeername()

    def close(self) -> None:
        """End it."""
        self._inner.close()

    @property
    def _closed(self) -> bool:  # paramiko asks its socket under this name
        return bool(self._inner._closed)  # type: ignore[union-attr]  # both have it


class Connection:
    """A connection that is logged in.

    Args:
        settings: where to and how.
        dead_after_s: silence after which the other side counts as gone, though asked.

    Raises:
        HostUnreachable: it did not answer in time.
        HostKeyMismatch: its key is unknown or another one.
        LoginRefused: it accepted no key.
    """

    def __init__(self, settings: HostSettings, *, dead_after_s: float) -> None:
        self._settings = settings
        self._transports: list[paramiko.Transport] = []
        self._asking = threading.Lock()
        try:
            for before, hop in zip(
                (None, *settings.jumps), (*settings.jumps, settings), strict=True
            ):
                wire = Wire(self._channel_to(hop) if before else _dial(hop, dead_after_s))
                self._transports.append(_shake_hands(wire, hop))
        except BaseException:
            self.close()
            raise
        self._watch = _Watch(self, wire, dead_after_s)
        self._watch.start()

    @property
    def transport(self) -> paramiko.Transport:
        """The connection to the host itself, as paramiko has it."""
        return self._transports[-1]

    @property
    def alive(self) -> bool:
        """Whether nothing says that it is dead."""
        return self.transport.is_active()

    def ask(self) -> bool:
        """Ask the host for any answer, and wait for it. False = the connection is dead."""
        with self._asking, suppress(*_LOST):
            self.transport.global_request(_KEEPALIVE, wait=True)
        return self.alive

    def close(self) -> None:
        """End it, from the far end to the near one."""
        for transport in reversed(self._transports):
            with suppress(*_LOST):  # closing what is dead already may say so
                transport.close()

    def _channel_to(self, hop: HostSettings) -> paramiko.Channel:
        here = self._transports[-1]
        address = (hop.hostname, hop.port)
        with _as_unreachable(hop):
            return here.open_channel(
                "direct-tcpip", address, ("127.0.0.1", 0), timeout=hop.connect_timeout_s
            )


class _Watch(threading.Thread):
    """Notices that nobody answers any more: asks after a while of silence, then gives up.

    It counts its own beats rather than looking at a clock: a program that was stopped and goes on
    must not take its own absence for the other side's.
    """

    _BEAT_S = 0.5

    def __init__(self, connection: Connection, wire: Wire, dead_after_s: float) -> None:
        super().__init__(name="ssh-watch", daemon=True)
        self._connection = connection
        self._wire = wire
        self._dead_after_beats = max(2, round(dead_after_s / self._BEAT_S))

    def run(self) -> None:
        silent, heard = 0, self._wire.heard
        pause = threading.Event()
        while self._connection.alive:
            pause.wait(self._BEAT_S)
            if self._wire.heard != heard:
                silent, heard = 0, self._wire.heard
                continue
            silent += 1
            if silent == max(1, self._dead_after_beats // 3):
                threading.Thread(target=self._connection.ask, daemon=True).start()
            if silent >= self._dead_after_beats:
                self._connection.close()


def _dial(settings: HostSettings, dead_after_s: float) -> socket.socket:
    with _as_unreachable(settings):
        line = socket.create_connection(
            (settings.hostname, settings.port), timeout=settings.connect_timeout_s
        )
    options = {
        (socket.IPPROTO_TCP, socket.TCP_NODELAY): 1,
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
    }
    # Where the system has them: its own keepalive, and how long sent data may stay unanswered.
    for name, value in (
        ("TCP_KEEPIDLE", dead_after_s / 3),
        ("TCP_KEEPINTVL", dead_after_s / 6),
        ("TCP_KEEPCNT", 3),
        ("TCP_USER_TIMEOUT", dead_after_s * 1000),
    ):
        if hasattr(socket, name):
            options[(socket.IPPROTO_TCP, getattr(socket, name))] = max(1, round(value))
    for (level, option), number in options.items():
        line.setsockopt(level, option, number)
    return line


def _shake_hands(wire: Wire, settings: HostSettings) -> paramiko.Transport:
    known = KnownHosts(settings)
    transport = paramiko.Transport(wire)  # type: ignore[arg-type]  # it is enough of a socket
    transport.daemon = True
    timeout_s = settings.connect_timeout_s
    transport.banner_timeout = transport.handshake_timeout = transport.auth_timeout = timeout_s
    security = transport.get_security_options()
    wanted = [a for a in known.algorithms() if a in security.key_types]
    # Authenticated and encrypted in one go: a third faster than the cipher that paramiko prefers.
    fast = [c for c in security.ciphers if c.endswith("-gcm@openssh.com")]
    security.ciphers = (*fast, *(c for c in security.ciphers if c not in fast))
    security.key_types = (*wanted, *(a for a in security.key_types if a not in wanted))
    try:
        with _as_unreachable(settings):
            transport.start_client(timeout=2 * timeout_s)
            key = transport.get_remote_server_key()
        known.check(key)
        log_in(transport, settings)
    except BaseException:
        transport.close()
        raise
    return transport


@contextmanager
def _as_unreachable(settings: HostSettings) -> Iterator[None]:
    """Whatever goes wrong on the way is the way's fault."""
    try:
        yield
    except TargetError:
        raise
    except _LOST as error:
        through = " through " + ", ".join(j.alias for j in settings.jumps) if settings.jumps else ""
        why = str(error) or type(error).__name__
        raise HostUnreachable(
            f"{settings} was not reached{through}: {why}.",
            hint=f"Make `ssh {settings.alias} true` work from this machine, then start again.",
        ) from error
