"""Who uses a sandbox right now: processes that run from its folder or stand in it.

Nothing is ended here; whoever would be hurt by a removal is named, and a person decides.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil

from helpers.errors import PreconditionFailed
from helpers.sandbox.bed.bed import Bed


def refuse_while_used(folder: Path) -> None:
    """Refuse when something uses the folder, and name it.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        PreconditionFailed: something does.
    """
    users = list(_users(str(folder)))
    if users:
        named = "\n".join(f"  {line}" for line in users)
        raise PreconditionFailed(
            f"{len(users)} process{'es use' if len(users) > 1 else ' uses'} {folder}:\n{named}",
            hint="End it yourself, or let it end, then start again. Nothing was removed.",
        )


def refuse_while_occupied(bed: Bed, vmid: int) -> None:
    """The same for a container on a bed: refuse when anything runs in it.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        PreconditionFailed: something does.
    """
    pids = bed.occupants(vmid) if bed.rootfs(vmid).is_dir() else []
    if pids:
        raise PreconditionFailed(
            f"Something runs in container {vmid} of {bed.folder}: pids {', '.join(map(str, pids))}.",
            hint="End it yourself, or let it end, then start again. Nothing was removed.",
        )


def _users(folder: str) -> Iterator[str]:
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        try:
            how = _how(process, f"{folder}/")
            if how:
                yield f"pid {process.pid}, {how}: {' '.join(process.cmdline())[:200]}"
        except (psutil.Error, OSError):
            continue  # it ended meanwhile, or is another user's, who has no business in our folder


def _how(process: psutil.Process, inside: str) -> str:
    words = process.cmdline()
    if not words:
        return ""  # a kernel thread, or one that has ended and waits for its parent
    if f"{process.exe()}/".startswith(inside) or (
        words[0].startswith("/") and words[0].startswith(inside)
    ):
        return "started from there"
    if f"{process.cwd()}/".startswith(inside):
        return "has its working folder there"
    if any(file.path.startswith(inside) for file in process.open_files()):
        return "has a file open there"
    # A venv's Python is a link: what it has loaded tells where it runs from.
    maps = Path(f"/proc/{process.pid}/maps")
    if maps.exists() and inside in maps.read_text(encoding="utf-8", errors="surrogateescape"):
        return "runs code from there"
    return ""
