"""What pct says, in the words of the error tree.

pct has no codes for its errors: they are told by its messages. This room reads text and runs
nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from helpers.errors import (
    ContainerLocked,
    ContainerNotFound,
    ContainerNotRunning,
    PreconditionFailed,
    TargetError,
    WrongTarget,
)

_LIST = re.compile(r"(?P<vmid>\d+)\s+(?P<state>\S+)\s")
_SNAPSHOT = re.compile(
    r"\s*`->\s+(?P<name>\S+)\s+(?:(?P<at>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)\s+)?(?P<text>.*)"
)
# Columns of `pct list`: VMID, Status, Lock and Name. Where there is no lock its column is empty.
_LOCK, _NAME = slice(22, 34), 35


@dataclass(frozen=True)
class Listed:
    """One container of `pct list`."""

    vmid: int
    state: str
    lock: str | None
    name: str


@dataclass(frozen=True)
class Snapshot:
    """One snapshot of `pct listsnapshot`; ``current`` is the present."""

    name: str
    taken_at: str | None
    description: str


Refusal = TargetError | PreconditionFailed


def refusal(host: str, vmid: int, status: int | None, said: str) -> Refusal:
    """The error for what pct, or the host's shell in its place, said instead of doing it.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        host: its name, for people.
        vmid: the container's number.
        status: the exit status that came with it.
        said: standard error.
    """
    text = said.strip()
    if status == 127 and re.search(r"\bpct\b.*not found", text):
        return no_pct(host)
    if "does not exist" in text and f"/{vmid}.conf" in text:
        return not_found(host, vmid)
    if lock := re.search(r"CT is locked \((.*?)\)", text):
        return locked(host, vmid, lock[1])
    if "can't lock file" in text:
        return locked(host, vmid, "another task holds its configuration")
    if re.search(r"not running|running CT|running VM", text):
        return not_running(host, vmid)
    if "snapshot feature is not available" in text:
        return PreconditionFailed(
            f"Container {vmid} on {host} cannot be snapshotted.",
            hint="A bind mount or its storage forbids that. Make a backup, or go on without.",
        )
    return TargetError(
        f"pct on {host} refused (exit code {status}): {text or 'it said nothing'}",
        hint=f"Run the same on {host} by hand and read what it says.",
    )


def no_pct(host: str) -> WrongTarget:
    """The host is not a Proxmox host, or not for this login."""
    return WrongTarget(
        f"{host} has no pct: it is not a Proxmox host, or this login is not root's.",
        hint="Check host and user in the target file and in the ssh configuration.",
    )


def not_found(host: str, vmid: int) -> ContainerNotFound:
    """No member of the cluster has it."""
    return ContainerNotFound(
        f"There is no container {vmid} on {host}.",
        hint="Check vmid and host in the target file; `pct list` on the host shows what there is.",
    )


def not_running(host: str, vmid: int) -> ContainerNotRunning:
    """It is stopped."""
    return ContainerNotRunning(
        f"Container {vmid} on {host} is not running.",
        hint=f"Find out why it was stopped, then start it on the host: pct start {vmid}.",
    )


def locked(host: str, vmid: int, why: str) -> ContainerLocked:
    """Somebody else is at work on it."""
    return ContainerLocked(
        f"Container {vmid} on {host} is locked ({why}).",
        hint="Wait until that has finished. Unlock by hand only when nothing is at work on it.",
    )


def read_list(text: str) -> tuple[Listed, ...]:
    """The rows of `pct list`. **Changes:** nothing."""
    rows = ((found, line) for line in text.splitlines() if (found := _LIST.match(line)))
    return tuple(
        Listed(int(f["vmid"]), f["state"], line[_LOCK].strip() or None, line[_NAME:].strip())
        for f, line in rows
    )


def read_config(text: str) -> dict[str, str]:
    """The settings of `pct config`. **Changes:** nothing."""
    pairs = (line.partition(": ") for line in text.splitlines() if ": " in line)
    return {name: value for name, _, value in pairs}


def read_state(text: str) -> Literal["running", "stopped"] | None:
    """The state in `pct status`; None = it says something else. **Changes:** nothing."""
    if re.search(r"^status: running$", text, re.MULTILINE):
        return "running"
    return "stopped" if re.search(r"^status: stopped$", text, re.MULTILINE) else None


def read_snapshots(text: str) -> tuple[Snapshot, ...]:
    """The lines of `pct listsnapshot`, oldest first. **Changes:** nothing."""
    found = (_SNAPSHOT.match(line) for line in text.splitlines())
    return tuple(Snapshot(f["name"], f["at"], f["text"].strip()) for f in found if f)
