"""A wire that can be cut, frozen and slowed: a TCP relay on loopback before the bed's sshd.

What it does to a connection is exact: so many bytes let through, so long a silence. A wire that
swallows packets, so that even the kernel gets no answer, is in ``network``.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

_CHUNK_BYTES = 65536


class Relay:
    """Listens on loopback and passes everything on.

    Args:
        target: where to.
        delay_s: how long every piece waits on its way, in each direction.
    """

    def __init__(self, target: tuple[str, int], *, delay_s: float = 0.0) -> None:
        self._target = target
        self._delay_s = delay_s
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open = threading.Event()
        self._open.set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._left_bytes: dict[bool, int] = {}
        self.accepted = 0
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    @property
    def port(self) -> int:
        """Where clients connect."""
        return int(self._listener.getsockname()[1])

    def cut(self) -> None:
        """End every connection now; new ones are accepted."""
        pairs, self._pairs = self._pairs, []
        for pair in pairs:
            _close(*pair)

    def cut_after(
        self, *, sent_bytes: int | None = None, received_bytes: int | None = None
    ) -> None:
        """End every connection once clients have sent, or received, so many more bytes."""
        for sent, left_bytes in ((True, sent_bytes), (False, received_bytes)):
            if left_bytes is not None:
                self._left_bytes[sent] = left_bytes

    def freeze(self) -> None:
        """Pass nothing on until ``thaw``; connections stay open, new ones get no answer."""
        self._open.clear()

    def thaw(self) -> None:
        """Pass on what waited."""
        self._open.set()

    def close(self) -> None:
        """End everything."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept
        self._listener.close()
        self._open.set()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed: the end
                return
            self.accepted += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._open.wait()
        try:
            server = socket.create_connection(self._target)
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._pairs.append((client, server))
        threading.Thread(target=self._pass, args=(server, client, False), daemon=True).start()
        self._pass(client, server, True)

    def _pass(self, source: socket.socket, destination: socket.socket, sent: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                self._open.wait()
                if self._delay_s:
                    time.sleep(self._delay_s)
                if sent in self._left_bytes:
                    self._left_bytes[sent] -= len(data)
                    if self._left_bytes[sent] < 0:
                        del self._left_bytes[sent]
                        self.cut()
                        return
                destination.sendall(data)
        _close(source, destination)


def _close(*ends: socket.socket) -> None:
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
