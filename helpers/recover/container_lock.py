"""One at a time on a container: a lock on the operator's machine, and who holds it.

What is locked is the container, by the way that leads to it: another target file, another name or
another runs folder make no difference. What proves that the right one was reached (``identity``)
is left out of the key on purpose: it could only give one container two locks. The kernel releases a
lock when its holder dies, so a dead holder's lock is free; what it left tells who it was. The lock
keeps apart what one operator starts on one machine; this room knows nothing of other operators.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import psutil
from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, ValidationError

from helpers.errors import PreconditionFailed
from helpers.reach.ssh_settings import resolve
from helpers.target import SandboxReach, Target

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Holder(BaseModel):
    """Who holds the lock. A process is told from a later one with its number by start and boot."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run_id: str | None
    pid: int
    process_started_s: float
    boot_id: str
    machine: str
    operator: str

    def __str__(self) -> str:
        process = f"process {self.pid} of {self.operator} on {self.machine}"
        return f"run {self.run_id}, {process}" if self.run_id else process

    @property
    def lives(self) -> bool:
        """Whether this very process runs on this machine now."""
        if (self.machine, self.boot_id) != (socket.gethostname(), _boot_id()):
            return False
        try:
            return psutil.Process(self.pid).create_time() == self.process_started_s
        except psutil.NoSuchProcess:
            return False


def container_key(target: Target) -> str:
    """What tells the target's container from any other, as a file name.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        ParameterError: the ssh configuration is wrong.
    """
    reach = target.reach
    if isinstance(reach, SandboxReach):
        return sandbox_key(Path(reach.root).expanduser())
    config = Path(reach.ssh_config).expanduser() if reach.ssh_config else None
    host = resolve(reach.host, user=reach.user, port=reach.port, config=config)
    return _hashed("pct", host.hostname, str(host.port), str(reach.vmid))


def sandbox_key(root: Path) -> str:
    """The same for the sandbox in a folder. **Changes:** nothing."""
    return _hashed("sandbox", os.path.realpath(root))


def _hashed(*way: str) -> str:
    return hashlib.sha256(json.dumps(way).encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Held:
    """A lock that is held.

    Attributes:
        before: who held it and died without releasing it; None when it was free.
    """

    before: Holder | None
    _told: Path

    def call(self, run_id: str | None) -> None:
        """Name the run that holds it. **Changes:** what is told of the holder."""
        part = self._told.with_suffix(".part")
        part.write_text(_myself(run_id).model_dump_json(indent=1), encoding="utf-8")
        part.replace(self._told)


@contextmanager
def hold(key: str, *, name: str, run_id: str | None) -> Iterator[Held]:
    """Hold a container's lock.

    **Runs on:** operator. **Changes:** files in the operator's state folder, nothing in the container.

    Args:
        key: which container.
        name: what people call it.
        run_id: the run to name as the holder; None where there is none, or none yet.

    Raises:
        PreconditionFailed: somebody else holds it, who is named; nothing was touched.
    """
    lock, told = _files(key)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise _refused(name, _read(told)) from error
    try:
        before = _read(told)
        if before is not None and before.lives and before.pid != os.getpid():
            raise _refused(name, before)  # its lock file was removed under it
        held = Held(before, told)
        held.call(run_id)
        try:
            yield held
        finally:
            told.unlink(missing_ok=True)
    finally:
        lock.release()


def holder(key: str) -> Holder | None:
    """Who says to hold a container's lock now, or died holding it. **Changes:** nothing."""
    return _read(_files(key)[1])


def _files(key: str) -> tuple[FileLock, Path]:
    folder = Path(platformdirs.user_state_dir("recover-runbooks", appauthor=False)) / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PreconditionFailed(
            f"Locks cannot be kept in {folder}: {error}.",
            hint="Make that folder writable, or name another one in XDG_STATE_HOME.",
        ) from error
    return FileLock(folder / f"{key}.lock"), folder / f"{key}.holder.json"


def _refused(name: str, who: Holder | None) -> PreconditionFailed:
    named = str(who) if who else "a process that has not said who it is"
    return PreconditionFailed(
        f"{name} is held by {named}.",
        hint="Wait for it, or stop it; `recover status` shows the runs.",
    )


def _myself(run_id: str | None) -> Holder:
    return Holder(
        run_id=run_id,
        pid=os.getpid(),
        process_started_s=psutil.Process().create_time(),
        boot_id=_boot_id(),
        machine=socket.gethostname(),
        operator=getpass.getuser(),
    )


def _boot_id() -> str:
    """This machine's running time: its number on Linux, its beginning elsewhere."""
    with suppress(OSError):
        return _BOOT_ID.read_text(encoding="ascii").strip()
    return f"{psutil.boot_time():.0f}"


def _read(told: Path) -> Holder | None:
    try:
        return Holder.model_validate_json(told.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValidationError):  # not written yet, or not whole
        return None
