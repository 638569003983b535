"""Containers as real LXC containers, started and entered with LXC's own tools."""

from __future__ import annotations

import os

from .options import Die

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from .backend import Bed, Shape
    from .store import Config


class Lxc:
    """See ``backend.Backend``."""

    def __init__(self, bed: Bed) -> None:
        self._bed = bed
        self._path = f"{bed.folder}/lxc"

    def pid(self, vmid: str) -> int | None:
        import subprocess

        argv = ["lxc-info", "-P", self._path, "-n", vmid, "-p", "-H"]
        text = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.strip()
        return int(text) if text.isdigit() else None

    def running(self, vmid: str) -> bool:
        wanted = f"@{self._path}/{vmid}/command"  # the monitor's abstract socket
        with open("/proc/net/unix") as file:
            return any(line.rstrip("\n").endswith(" " + wanted) for line in file)

    def start(self, vmid: str, config: Config, shape: Shape) -> None:
        import subprocess

        os.makedirs(f"{self._path}/{vmid}", exist_ok=True)
        with open(f"{self._path}/{vmid}/config", "w") as file:
            file.write("\n".join(self._settings(vmid, config, shape)) + "\n")
        base = ["-P", self._path, "-n", vmid]
        started = subprocess.run(["lxc-start", *base, "-d"], stdin=subprocess.DEVNULL, check=False)
        if started.returncode:
            raise Die(f"startup for container '{vmid}' failed", 1)
        subprocess.run(["lxc-wait", *base, "-s", "RUNNING", "-t", "10"], check=False)

    def _settings(self, vmid: str, config: Config, shape: Shape) -> list[str]:
        lines = [
            f"lxc.uts.name = {config.hostname}",
            f"lxc.rootfs.path = dir:{self._bed.rootfs(vmid)}",
            "lxc.mount.auto = proc:mixed sys:ro",
            "lxc.mount.entry = tmpfs run tmpfs rw,mode=755,create=dir 0 0",
            "lxc.mount.entry = tmpfs dev/shm tmpfs rw,create=dir 0 0",
            "lxc.autodev = 1",
            "lxc.pty.max = 64",
            f"lxc.net.0.type = {shape.network}",
            "lxc.apparmor.profile = unconfined",
            f"lxc.init.cmd = {shape.init}",
            f"lxc.log.file = {self._bed.folder}/log/lxc-{vmid}.log",
            "lxc.log.level = WARN",
        ]
        for source, place, mode in shape.binds:
            kind = "dir" if os.path.isdir(source) else "file"
            inside = place.lstrip("/")
            lines.append(f"lxc.mount.entry = {source} {inside} none bind,{mode},create={kind} 0 0")
        if config.get("unprivileged") == "1":
            lines += ["lxc.idmap = u 0 100000 65536", "lxc.idmap = g 0 100000 65536"]
        return lines + [f"{name} = {value}" for name, value in config.raw]

    def stop(self, vmid: str, *, kill: bool, timeout_s: float = 60) -> int:
        import subprocess

        how = ["-k"] if kill else ["--nokill", "-t", f"{timeout_s:.0f}"]
        return subprocess.run(
            ["lxc-stop", "-P", self._path, "-n", vmid, *how], check=False
        ).returncode

    def freeze(self, vmid: str, *, on: bool) -> None:
        import subprocess

        tool = "lxc-freeze" if on else "lxc-unfreeze"
        subprocess.run([tool, "-P", self._path, "-n", vmid], check=False)

    def enter(self, vmid: str, *, keep_environment: bool, argv: list[bytes]) -> NoReturn:
        kept = "--keep-env" if keep_environment else "--clear-env"
        own = ["lxc-attach", "-P", self._path, "-n", vmid, kept, "--"]
        os.execvp("lxc-attach", [word.encode() for word in own] + argv)
