"""Things that go wrong, made to go wrong: on the host, in a container, in the configuration.

Every fault acts on the processes and files of one bed, found by number or by path.
"""

from __future__ import annotations

import fcntl
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from helpers.sandbox.bed.bed import Bed
from helpers.sandbox.bed.processes import descendants, send


def kill_sessions(bed: Bed) -> int:
    """Kill the sshd processes of every connection;

    returns how many. The commands they started live on.
    """
    pids = bed.host.sessions()
    send(pids, signal.SIGKILL)
    return len(pids)


@contextmanager
def frozen_sshd(bed: Bed) -> Iterator[None]:
    """sshd accepts, the kernel answers, and nobody reads."""
    pids = [bed.host.pid, *bed.host.sessions()]
    send(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        send(pids, signal.SIGCONT)


def kill_pct(bed: Bed, vmid: int) -> int:
    """Kill what runs ``pct exec`` on the host; returns how many processes that were."""
    wanted = (b"lxc-attach", str(vmid).encode()), (b"nsenter",)
    pids = [p for p in descendants(bed.host.pid) if _is_one_of(p, wanted)]
    send(pids, signal.SIGKILL)
    return len(pids)


def _is_one_of(pid: int, wanted: tuple[tuple[bytes, ...], ...]) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return any(w[0] == words[0].rpartition(b"/")[2] and set(w[1:]) <= set(words) for w in wanted)


@contextmanager
def locked(bed: Bed, vmid: int, why: str = "backup") -> Iterator[None]:
    """The container is locked, as a backup does it."""
    path = bed.config(vmid)
    before = path.read_text()
    path.write_text(f"lock: {why}\n" + before)
    try:
        yield
    finally:
        path.write_text(before)


@contextmanager
def configuration_held(bed: Bed, vmid: int) -> Iterator[None]:
    """Somebody holds the lock of the container's configuration, as a running task does."""
    path = bed.folder / "run" / "lock" / "lxc" / f"pve-config-{vmid}.lock"
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def moved(bed: Bed, vmid: int, node: str = "pve2") -> Iterator[None]:
    """The container has migrated to another member of the cluster."""
    here, there = bed.config(vmid), bed.config(vmid, node)
    there.parent.mkdir(parents=True, exist_ok=True)
    here.rename(there)
    try:
        yield
    finally:
        there.rename(here)


@contextmanager
def small_disk(bed: Bed, vmid: int, path: str, size: str = "64k") -> Iterator[None]:
    """A file system of ``size`` at ``path`` in the container."""
    script = 'mkdir -p -- "$1" && mount -t tmpfs -o "size=$2,mode=755" tmpfs "$1"'
    inside(bed, vmid, "bash", "-c", script, "_", path, size)
    try:
        yield
    finally:
        inside(bed, vmid, "umount", "-l", path)


@contextmanager
def slow_pct(bed: Bed, start_delay_s: float) -> Iterator[None]:
    """Every call of pct takes so much longer."""
    bed.set(start_delay_s=start_delay_s)
    try:
        yield
    finally:
        bed.set()


@contextmanager
def without_pct(bed: Bed) -> Iterator[None]:
    """The host has no pct: it is no Proxmox host."""
    program = bed.folder / "bin" / "pct"
    program.rename(program.with_suffix(".gone"))
    try:
        yield
    finally:
        program.with_suffix(".gone").rename(program)


def inside(bed: Bed, vmid: int, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run something in the container from the host's own keyboard; it must succeed."""
    return bed.pct("exec", vmid, "--", *argv)
