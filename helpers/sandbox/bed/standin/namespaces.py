"""Containers as namespaces of util-linux (``unshare``, ``nsenter``), for where LXC cannot start."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from typing import NoReturn

from .backend import Bed, Shape, environment
from .options import Die
from .store import Config

_MOUNTS = """\
mount -t proc proc proc
mount -t sysfs -o ro sysfs sys
mount -t tmpfs tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
mkdir dev/pts dev/shm
for n in null zero full random urandom tty; do : >dev/$n; mount --bind /dev/$n dev/$n; done
mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
mount -t tmpfs tmpfs dev/shm
mkdir -p .old
pivot_root . .old
umount -l /.old
echo >/run/.up
"""
_UNSHARED = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
# Its root is somebody else on the host; a network of its own lets it mount /sys.
_UNPRIVILEGED = [
    "--user",
    "--net",
    "--map-users=100000,0,65536",
    "--map-groups=100000,0,65536",
    "--setuid=0",
    "--setgid=0",
]


class Namespaces:
    """See ``backend.Backend``."""

    def __init__(self, bed: Bed) -> None:
        self._bed = bed

    def _pid_file(self, vmid: str) -> str:
        return f"{self._bed.folder}/run/namespaces-{vmid}.pid"

    def pid(self, vmid: str) -> int | None:
        try:
            with open(self._pid_file(vmid)) as file:
                pid, started = file.read().split()
            fields = _stat(int(pid))
        except (OSError, ValueError):
            return None
        return int(pid) if fields[19] == started and fields[0] not in "ZX" else None

    def running(self, vmid: str) -> bool:
        return self.pid(vmid) is not None

    def start(self, vmid: str, config: Config, shape: Shape) -> None:
        root = self._bed.rootfs(vmid)
        lines = ["set -e", f"hostname {config.hostname}", "mount --make-rprivate /"]
        lines += [f"mount --bind {root} {root}", f"cd {root}"]
        for source, place, mode in shape.binds:
            inside = root + place
            made = f"mkdir -p {inside}" if os.path.isdir(source) else f": >>{inside}"
            lines += [made, f"mount --rbind {source} {inside}"]
            if mode == "ro":
                lines.append(f"mount -o remount,bind,ro {inside}")
        lines += [_MOUNTS, f"exec /usr/bin/setsid -w {shape.init}"]
        unprivileged = config.get("unprivileged") == "1"
        unshared = [*_UNSHARED, *(_UNPRIVILEGED if unprivileged else [])]
        with open(f"{self._bed.folder}/log/namespaces-{vmid}.log", "a") as log:
            process = subprocess.Popen(
                [*unshared, "sh", "-c", "\n".join(lines)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        first = self._wait_until_up(process, vmid)
        with open(self._pid_file(vmid), "w") as file:
            file.write(f"{first} {_stat(first)[19]}")

    def _wait_until_up(self, process: subprocess.Popen[bytes], vmid: str) -> int:
        for _ in range(1000):
            with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
                children = file.read().split()
            if children and os.path.exists(f"/proc/{children[0]}/root/run/.up"):
                return int(children[0])
            if process.poll() is not None:
                break
            time.sleep(0.01)
        raise Die(f"startup for container '{vmid}' failed", 1)

    def stop(self, vmid: str, *, kill: bool, timeout_s: float = 60) -> int:
        pid = self.pid(vmid)
        if pid is None:
            return 1
        os.kill(pid, signal.SIGKILL if kill else signal.SIGTERM)
        for _ in range(int(timeout_s * 100)):
            if not self.running(vmid):
                return 0
            time.sleep(0.01)
        return 1

    def freeze(self, vmid: str, *, on: bool) -> None:
        """Nothing: without a freezer of its own a snapshot is taken of a running container."""

    def enter(self, vmid: str, *, keep_environment: bool, argv: list[bytes]) -> NoReturn:
        pid, folder = str(self.pid(vmid)), os.getcwd()
        if not os.path.isdir(f"/proc/{pid}/root{folder}"):
            folder = "/"
        own = ["nsenter", "-t", pid, "-m", "-p", "-u", "-i", f"--wdns={folder}"]
        if os.readlink(f"/proc/{pid}/ns/user") != os.readlink("/proc/self/ns/user"):
            own += ["-U", "-n"]
        own.append("--")
        words = [word.encode() for word in own] + argv
        child = os.spawnvpe(os.P_NOWAIT, "nsenter", words, environment(keep=keep_environment))
        for number in (signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, signal.SIG_IGN)
        status = os.waitpid(child, 0)[1]
        ended_by_signal = os.WIFSIGNALED(status)
        os._exit(128 + os.WTERMSIG(status) if ended_by_signal else os.WEXITSTATUS(status))


def _stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: state first, start time at 19."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()
