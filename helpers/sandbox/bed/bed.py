"""The bed: a host and its containers in one folder. See the package's head."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from helpers.sandbox.bed.host import NODE, Host
from helpers.sandbox.bed.rootfs import UNPRIVILEGED_ROOT, make_rootfs

Backend = Literal["lxc", "namespaces"]


class Bed:
    """A folder with a host and its containers.

    Args:
        folder: all of it; must be readable for everybody, or unprivileged containers cannot start.
        namespace: network namespace for the host; None = this machine's.
        address: where the host's sshd listens.
    """

    def __init__(
        self, folder: Path, *, namespace: str | None = None, address: str = "127.0.0.1"
    ) -> None:
        self.folder = folder.resolve()
        self.host = Host(self.folder, address, namespace)
        self.why_not_lxc = ""

    @classmethod
    def make(
        cls,
        folder: Path,
        *,
        backend: Backend | None = None,
        namespace: str | None = None,
        address: str = "127.0.0.1",
        max_sessions: int = 10,
    ) -> Bed:
        """Make a bed without containers. **Changes:** ``folder``.

        Args:
            folder: all of it.
            backend: None = LXC when its tools are there, else namespaces.
            namespace: as for the class.
            address: as for the class.
            max_sessions: sshd's MaxSessions.
        """
        bed = cls(folder, namespace=namespace, address=address)
        for name in ("shapes", "rootfs", "lxc", "snapshots"):
            (bed.folder / name).mkdir(parents=True, exist_ok=True)
        bed.folder.chmod(0o755)
        bed.host.make(max_sessions=max_sessions)
        bed.set(backend=backend or ("lxc" if shutil.which("lxc-start") else "namespaces"))
        return bed

    def set(
        self,
        *,
        backend: Backend | None = None,
        lock_timeout_s: float = 10.0,
        start_delay_s: float = 0.0,
    ) -> None:
        """How the stand-in behaves from now on; see ``standin.backend.Bed``."""
        settings = {
            "backend": backend or self.backend,
            "lock_timeout_s": lock_timeout_s,
            "start_delay_s": start_delay_s,
        }
        text = "".join(f"{name} {value}\n" for name, value in settings.items())
        temporary = self.folder / "standin.settings.new"
        temporary.write_text(text)
        temporary.rename(self.folder / "standin.settings")

    @property
    def backend(self) -> Backend:
        """What runs the containers."""
        name = (self.folder / "standin.settings").read_text().split()[1]
        return "lxc" if name == "lxc" else "namespaces"

    def add_container(
        self,
        vmid: int,
        *,
        unprivileged: bool = False,
        binds: Iterable[tuple[str, str, str]] = (),
        settings: str = "",
        node: str = NODE,
    ) -> None:
        """Add a stopped container named ``ct<vmid>``. **Changes:** the bed's folder.

        Args:
            vmid: its number.
            unprivileged: its root is nobody on the host; it has no network.
            binds: further folders shown in it: on the host, in the container, ``ro`` or ``rw``.
            settings: further lines of its configuration file, for instance ``lock: backup``.
            node: the member of the cluster that it lives on.
        """
        base = [("/usr", "/usr", "ro")]
        base += [("/opt", "/opt", "ro")] if any(Path("/opt").iterdir()) else []
        python = Path(sys.base_prefix).resolve()
        if not unprivileged and not python.is_relative_to("/usr"):
            base.append((str(python), str(python), "ro"))  # this Python, wherever it lives
        shape = {
            "init": "/init",
            "network": "empty" if unprivileged else "none",
            "binds": [*base, *binds],
        }
        (self.folder / "shapes" / f"{vmid}.json").write_text(json.dumps(shape))
        first_uid = UNPRIVILEGED_ROOT if unprivileged else 0
        make_rootfs(self.rootfs(vmid), f"ct{vmid}", secrets.token_hex(16), first_uid=first_uid)
        lines = {"arch": "amd64", "cores": "2", "hostname": f"ct{vmid}", "memory": "4096"}
        lines |= {
            "ostype": "debian",
            "rootfs": f"local-zfs:subvol-{vmid}-disk-0,size=8G",
            "swap": "0",
        }
        lines |= {"unprivileged": "1"} if unprivileged else {}
        path = self.config(vmid, node)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{name}: {value}\n" for name, value in lines.items()) + settings)

    def rootfs(self, vmid: int) -> Path:
        """A container's root folder, seen from outside."""
        return self.folder / "rootfs" / str(vmid)

    def machine_id(self, vmid: int) -> str:
        """What proves a container's identity."""
        return (self.rootfs(vmid) / "etc" / "machine-id").read_text().strip()

    def config(self, vmid: int, node: str = NODE) -> Path:
        """A container's configuration file, seen from outside."""
        return self.host.etc / "pve" / "nodes" / node / "lxc" / f"{vmid}.conf"

    def start(self, *vmids: int) -> None:
        """Start the host, then these containers; in namespaces where LXC cannot start the first."""
        self.host.start()
        for vmid in vmids:
            done = self.pct("start", vmid, check=False)
            if done.returncode and self.backend == "lxc" and vmid == vmids[0]:
                self.why_not_lxc = done.stderr
                self.set(backend="namespaces")
                done = self.pct("start", vmid, check=False)
            if done.returncode:
                raise RuntimeError(f"container {vmid} does not start: {done.stderr}")

    def pct(self, *words: str | int, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run ``pct`` at the host's own keyboard."""
        argv = self.host.enter(self.folder / "bin" / "pct", *map(str, words))
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise RuntimeError(f"pct {' '.join(map(str, words))}: {done.stderr}")
        return done

    def processes(self, vmid: int) -> list[int]:
        """Processes whose root folder is the container's, as this machine numbers them."""
        mine = self.rootfs(vmid).stat()
        return [p for p in map(int, _numbers()) if _same_root(p, mine)]

    def occupants(self, vmid: int) -> list[int]:
        """The same without the container's first process, what waits for it and what it waits for."""
        inside = self.processes(vmid)
        keeping = {p for p in inside if b"/init" in _words(p)}
        waiting = {_parent(p) for p in keeping}
        return [p for p in inside if p not in waiting and not {p, _parent(p)} & keeping]

    def containers(self) -> list[int]:
        """Containers on the host's own node."""
        return sorted(int(path.stem) for path in self.config(0).parent.glob("[0-9]*.conf"))

    def stop(self) -> None:
        """Stop every container and the host; the folder stays."""
        if self.host.running:
            for vmid in self.containers():
                self.pct("stop", vmid, "--skiplock", "1", check=False)
        self.host.stop()


def _numbers() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  # names are wanted


def _same_root(pid: int, folder: os.stat_result) -> bool:
    try:
        return os.path.samestat(Path(f"/proc/{pid}/root").stat(), folder)
    except OSError:  # it has ended
        return False


def _words(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def default_folder() -> Path:
    """Where the command line keeps its bed. **Changes:** nothing."""
    return Path(os.environ.get("TMPDIR", "/tmp")) / "recover-testbed"
