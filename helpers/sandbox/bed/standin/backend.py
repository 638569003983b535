"""What runs a container: one small interface, and the bed's settings that every part needs."""

from __future__ import annotations

import os

# ``typing``, ``dataclasses`` and ``json`` are half of Python's start: `pct exec` does without them.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn, Protocol

    from .store import Config
else:
    Protocol = object

STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Bed:
    """The bed's folder and how its stand-in behaves, read anew by every call.

    Attributes:
        backend: ``lxc`` or ``namespaces``.
        lock_timeout_s: how long a configuration lock is waited for; 10 on a real host.
        start_delay_s: how long every call waits first; a real pct needs 0.3 for Perl's start.
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(f"{folder}/standin.settings") as file:
            settings = dict(line.split() for line in file)
        self.backend = settings["backend"]
        self.lock_timeout_s = float(settings["lock_timeout_s"])
        self.start_delay_s = float(settings["start_delay_s"])

    def rootfs(self, vmid: str) -> str:
        """The container's root folder, as the host sees it."""
        return f"{self.folder}/rootfs/{vmid}"

    def shape(self, vmid: str) -> Shape:
        """What the bed adds to the container's configuration file."""
        return Shape(f"{self.folder}/shapes/{vmid}.json")


class Shape:
    """How a container of the bed is built.

    Attributes:
        init: its first program.
        network: LXC's network type: ``none`` shares the host's, ``empty`` is loopback only.
        binds: folders shown in it: on the host, in the container, ``ro`` or ``rw``.
    """

    def __init__(self, path: str) -> None:
        import json

        with open(path) as file:
            told = json.load(file)
        self.init: str = told["init"]
        self.network: str = told["network"]
        self.binds: list[list[str]] = told["binds"]


class Backend(Protocol):
    """Starts, stops and enters containers."""

    def pid(self, vmid: str) -> int | None:
        """The container's first process, as the host numbers it."""

    def running(self, vmid: str) -> bool: ...

    def start(self, vmid: str, config: Config, shape: Shape) -> None: ...

    def stop(self, vmid: str, *, kill: bool, timeout_s: float = 60) -> int:
        """Exit code of whatever stopped it."""

    def freeze(self, vmid: str, *, on: bool) -> None: ...

    def enter(self, vmid: str, *, keep_environment: bool, argv: list[bytes]) -> NoReturn:
        """Become the command in the container."""


def backend_of(bed: Bed) -> Backend:
    """The one the bed was made with."""
    if bed.backend == "lxc":
        from .lxc import Lxc

        return Lxc(bed)
    from .namespaces import Namespaces

    return Namespaces(bed)


def environment(*, keep: bool) -> dict[bytes, bytes]:
    """What a program in the container is given when the backend does not decide it."""
    base = dict(os.environb) if keep else {b"PATH": STANDARD_PATH.encode()}
    return {**base, b"container": b"lxc"}
