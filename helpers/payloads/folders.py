"""What lies in a folder, while others may be writing to it.

Sent along with the payloads that need it.  Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path


def walk(folder: str | Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every file under a folder with its facts; links are not followed.

    A folder that is not there holds nothing, and what vanishes meanwhile is left out. **Changes:**
    nothing.
    """
    waiting = [os.fspath(folder)]
    while waiting:
        try:
            entries = list(os.scandir(waiting.pop()))
        except FileNotFoundError:
            continue
        for entry in entries:
            try:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    yield entry.path, entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue


def size(folder: str | Path) -> dict[str, int]:
    """Number and bytes of the files under a folder. **Changes:** nothing."""
    sizes = [facts.st_size for _, facts in walk(folder)]
    return {"files": len(sizes), "bytes": sum(sizes)}


def utc(seconds: float) -> str:
    """A moment as UTC, ISO 8601."""
    return (
        datetime.fromtimestamp(seconds, timezone.utc)
        .isoformat(timespec="seconds")
        .replace("+00:00", "Z")
    )
