"""Containers' configuration files and their lock, as PVE::AbstractConfig keeps them.

Knows files, not containers.
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import sys

from .options import Die

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

NODE = "pve"
_FOLDER = f"/etc/pve/nodes/{NODE}/lxc"  # on the bed's host, which has an /etc of its own


class Section:
    """One section of a configuration file: plain settings and raw ``lxc.`` lines."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.raw: list[tuple[str, str]] = []

    def get(self, name: str, default: str = "") -> str:
        """A setting's text, or the default."""
        return self.settings.get(name, default)

    def text(self) -> str:
        """The section as it stands in the file."""
        settings = "".join(f"{k}: {self.settings[k]}\n" for k in sorted(self.settings))
        return settings + "".join(f"{k}: {v}\n" for k, v in self.raw)

    def copy(self, *, without: tuple[str, ...] = ()) -> Section:
        """The same section, some settings aside."""
        copied = Section()
        copied.settings = {k: v for k, v in self.settings.items() if k not in without}
        copied.raw = list(self.raw)
        return copied


class Config(Section):
    """A container's configuration: its own section and one for each snapshot."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshots: dict[str, Section] = {}

    @property
    def hostname(self) -> str:
        """What the container calls itself."""
        return self.get("hostname")

    def refuse_locked(self) -> None:
        """What a change of state does first."""
        if self.get("lock"):
            raise Die(f"CT is locked ({self.get('lock')})")


def vmids() -> list[str]:
    """The containers of this node."""
    names = (name for name in os.listdir(_FOLDER) if re.fullmatch(r"[0-9]+\.conf", name))
    return sorted((name[:-5] for name in names), key=int)


def load(vmid: str) -> Config:
    """Read a container's configuration."""
    try:
        with open(f"{_FOLDER}/{vmid}.conf") as file:
            text = file.read()
    except FileNotFoundError:
        relative = f"nodes/{NODE}/lxc/{vmid}.conf"
        raise Die(f"Configuration file '{relative}' does not exist", 2) from None
    config = Config()
    section: Section = config
    for line in text.splitlines():
        header = re.match(r"\[(\S+)\]$", line)
        raw = re.match(r"(lxc\.[a-z0-9_\-.]+)\s*[:=]\s*(.*)$", line)
        setting = re.match(r"([a-z][a-z_]*\d*):\s*(.*)$", line)
        if header:
            section = config.snapshots[header[1]] = Section()
        elif raw:
            section.raw.append((raw[1], raw[2]))
        elif setting:
            section.settings[setting[1]] = setting[2]
    config.settings.setdefault("hostname", f"CT{vmid}")
    return config


def save(vmid: str, config: Config) -> None:
    """Write a container's configuration, whole or not at all."""
    text = config.text()
    for name in sorted(config.snapshots):
        text += f"\n[{name}]\n{config.snapshots[name].text()}"
    temporary = f"{_FOLDER}/.{vmid}.{os.getpid()}"
    with open(temporary, "w") as file:
        file.write(text)
    os.rename(temporary, f"{_FOLDER}/{vmid}.conf")


class ConfigLock:
    """AbstractConfig.pm:329: an flock, waited for 10 s (the bed can shorten that)."""

    def __init__(self, folder: str, vmid: str, timeout_s: float) -> None:
        self._path = f"{folder}/pve-config-{vmid}.lock"
        self._timeout_s = timeout_s
        self._fd = -1

    def __enter__(self) -> ConfigLock:
        os.makedirs(os.path.dirname(self._path), exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return self
        except BlockingIOError:
            print("trying to acquire lock...", file=sys.stderr, flush=True)
        before = signal.signal(signal.SIGALRM, self._give_up)
        signal.setitimer(signal.ITIMER_REAL, self._timeout_s)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        print(" OK", file=sys.stderr, flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def _give_up(self, *_: object) -> NoReturn:
        raise Die(f"can't lock file '{self._path}' - got timeout", 4)
