"""Two network namespaces and a cable between them that can be pulled.

A pulled cable is what a dead network looks like to TCP: no answer, no error, only silence. Nothing
of this machine's own network is touched; the addresses exist in the namespaces only.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

CLIENT_ADDRESS = "192.0.2.1"  # TEST-NET-1: documentation addresses
HOST_ADDRESS = "192.0.2.2"
_NEW_NETWORK = 0x40000000
Result = TypeVar("Result")


class Network:
    """See the module's head."""

    def __init__(self) -> None:
        self._tag = f"bed{secrets.token_hex(3)}"
        self._client, self.host = f"{self._tag}-client", f"{self._tag}-host"
        for name in (self._client, self.host):
            _ip("netns", "add", name)
        far = ("peer", "name", "cable", "netns", self.host)
        _ip("link", "add", "cable", "netns", self._client, "type", "veth", *far)
        for name, address in ((self._client, CLIENT_ADDRESS), (self.host, HOST_ADDRESS)):
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")

    def pull(self) -> None:
        """Pull the cable at the host's end."""
        _ip("-n", self.host, "link", "set", "cable", "down")

    def plug(self) -> None:
        """Plug it in again."""
        _ip("-n", self.host, "link", "set", "cable", "up")

    def as_client(self, work: Callable[[], Result]) -> Result:
        """Run ``work`` in a thread whose sockets belong to the client's side."""
        results: list[Result] = []
        errors: list[BaseException] = []

        def inside() -> None:
            try:
                _enter(Path("/run/netns") / self._client)
                results.append(work())
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=inside)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]
        return results[0]

    def close(self) -> None:
        """Remove both namespaces and with them the cable."""
        for name in (self._client, self.host):
            _ip("netns", "delete", name)


def _enter(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).setns(descriptor, _NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"cannot enter {path}")
    finally:
        os.close(descriptor)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
