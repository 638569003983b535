"""``pct push`` and ``pct pull``: copies that say nothing when they fail, as the real ones do."""

from __future__ import annotations

import ctypes
import grp
import os
import pwd
from collections.abc import Callable

from .backend import Backend, Bed
from .options import Arguments, Die
from .store import ConfigLock, load
from .worker import in_worker

_NEW_MOUNTS = 0x00020000
_NEW_USERS = 0x10000000


def push(bed: Bed, backend: Backend, given: Arguments) -> None:
    """Copy a file of the host into the container, in place."""
    vmid = given.vmid
    with ConfigLock(f"{bed.folder}/run/lock/lxc", vmid, bed.lock_timeout_s):
        if not backend.running(vmid):
            raise Die("can only push files to a running CT")
        unprivileged = load(vmid).get("unprivileged") == "1"

        def copy() -> None:
            pid = backend.pid(vmid)
            try:
                source = os.open(given.named["file"].encode(), os.O_RDONLY)
            except OSError:
                raise Die(f"failed to open {given.named['file']} for reading") from None
            _load_name_service()
            users = os.open(f"/proc/{pid}/ns/user", os.O_RDONLY) if unprivileged else None
            _join(f"/proc/{pid}/ns/mnt", _NEW_MOUNTS)
            if users is not None:
                if _libc().setns(users, _NEW_USERS):
                    raise Die("failed to enter the container's user namespace")
                os.setgid(0)
                os.setuid(0)
            _copy_unchecked(source, _create(given.named["destination"], given))

        in_worker(copy)  # what became of it is not asked: the exit code stays 0


def pull(bed: Bed, backend: Backend, given: Arguments) -> None:
    """Copy a file of the container to the host; the destination is truncated first."""
    vmid = given.vmid
    with ConfigLock(f"{bed.folder}/run/lock/lxc", vmid, bed.lock_timeout_s):
        if not backend.running(vmid):
            where = "at /usr/share/perl5/PVE/CLI/pct.pm line 664."
            raise Die(f"can only pull files from a running VM {where}")

        def copy() -> None:
            pid = backend.pid(vmid)
            destination = _create(given.named["destination"], given)
            _join(f"/proc/{pid}/ns/mnt", _NEW_MOUNTS)
            try:
                source = os.open(given.named["path"].encode(), os.O_RDONLY)
            except OSError as error:
                raise Die(f"failed to open {given.named['path']}: {error.strerror}") from None
            _copy_unchecked(source, destination)

        in_worker(copy)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _join(path: str, kind: int) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    if _libc().setns(descriptor, kind):
        raise Die(f"failed to enter {path}: {os.strerror(ctypes.get_errno())}")
    os.close(descriptor)
    os.chdir("/")


def _create(path: str, given: Arguments) -> int:
    """pct.pm:514: opened in place; a file that is there keeps its owner and its mode."""
    uid = _number(given.text("user"), lambda name: pwd.getpwnam(name).pw_uid, "uid for")
    gid = _number(given.text("group"), lambda name: grp.getgrnam(name).gr_gid, "gid for")
    mode = _mode(given.text("perms"))
    try:
        try:
            descriptor = os.open(path.encode(), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0)
            if mode is None:
                mask = os.umask(0)
                os.umask(mask)
                mode = 0o666 & ~mask
        except OSError:
            descriptor = os.open(path.encode(), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    except OSError as error:
        raise Die(f"failed to create file: {path}: {error.strerror}") from None
    if mode is not None:
        os.fchmod(descriptor, mode)
    if uid != -1 or gid != -1:
        try:
            os.fchown(descriptor, uid, gid)
        except OSError as error:
            raise Die(f"failed to change file owner: {error.strerror}") from None
    return descriptor


def _mode(text: str | None) -> int | None:
    if text is None:
        return None
    text = text if text.startswith("0") else "0" + text
    try:
        return int(text, 16 if text[:2].lower() == "0x" else 8)
    except ValueError:
        raise Die(f"invalid mode: '{text}'") from None


def _number(value: str | None, look_up: Callable[[str], int], what: str) -> int:
    if value is None:
        return -1
    if value.isdigit():
        return int(value)
    try:
        return look_up(value)
    except KeyError:
        raise Die(f"failed to get {what}: {value}") from None


def _load_name_service() -> None:
    """Have the C library load what it looks names up with while the root is still the host's."""
    pwd.getpwuid(0)
    grp.getgrgid(0)


def _copy_unchecked(source: int, destination: int) -> None:
    """File::Copy::copy with its answer thrown away (pct.pm:682, 791): short copies go unnoticed."""
    try:
        while data := os.read(source, 1 << 20):
            while data:
                data = data[os.write(destination, data) :]
    except OSError:
        pass
    try:
        os.close(destination)
    except OSError:
        pass
