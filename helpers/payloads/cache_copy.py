"""A private copy of the compile cache, so that measuring never changes the cache itself.

What is measured may compile, and nobody has approved that the target's cache is filled.  The copy is
made of copied bytes, not of links: a program that writes a file in place cannot reach the original.
Entries are addressed by content and are found in a copy as in their own place (checked with torch
2.13 on a CPU and 2.11 on an H200: every graph a hit, no file written).

The copy is removed at the end; one whose process was killed is removed by the next process that
makes one.  Only the cache that ``TORCHINDUCTOR_CACHE_DIR`` names is copied.  Sent along with the
payloads that need it.  Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import folders
from protocol import Reporter

VARIABLE = "TORCHINDUCTOR_CACHE_DIR"
PREFIX = "recover-measuring-"
IN_USE = "in-use"
SPARE_BYTES = 256 * 1024 * 1024  # for what is compiled meanwhile


def use_copy(reporter: Reporter) -> dict[str, Any] | None:
    """Copy the compile cache and point torch at the copy; call it before torch is imported.

    **Changes:** a folder for temporary files, until the payload ends.

    Returns:
        ``files``, ``bytes`` and ``copied_s``; None where no cache is named.
    """
    cache = os.environ.get(VARIABLE)
    if not cache:
        return None
    started, size = time.perf_counter(), folders.size(cache)
    place = _place(cache, size["bytes"] + SPARE_BYTES)
    _remove_left_behind(place)
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=place)
    reporter.at_end(lambda: shutil.rmtree(folder, ignore_errors=True))
    held = os.open(os.path.join(folder, IN_USE), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX)  # held until the process ends, however it ends
    copy = os.path.join(folder, os.path.basename(os.path.normpath(cache)))
    os.mkdir(copy)
    for path, _ in folders.walk(cache):
        to = os.path.join(copy, os.path.relpath(path, cache))
        os.makedirs(os.path.dirname(to), exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # it went while this was going on
            shutil.copy2(path, to, follow_symlinks=False)
    os.environ[VARIABLE] = copy
    return {**folders.size(copy), "copied_s": time.perf_counter() - started}


def _place(cache: str, needed_bytes: int) -> str:
    """Where there is room: among temporary files, else beside the cache."""
    beside = os.path.dirname(os.path.abspath(cache))
    for place in (tempfile.gettempdir(), beside):
        if os.access(place, os.W_OK) and shutil.disk_usage(place).free >= needed_bytes:
            return place
    raise OSError(
        f"there is no room for a copy of the compile cache ({needed_bytes} bytes), neither in "
        f"{tempfile.gettempdir()} nor beside {cache}"
    )


def _remove_left_behind(place: str) -> None:
    for folder in _left_behind(place):
        shutil.rmtree(folder, ignore_errors=True)


def _left_behind(place: str) -> Iterator[Path]:
    """Copies whose process is gone: nobody holds their lock any more."""
    for folder in Path(place).glob(f"{PREFIX}*"):
        try:
            held = os.open(folder / IN_USE, os.O_RDWR | os.O_CLOEXEC)
        except OSError:  # another user's, or one that is just being made
            continue
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield folder
        except BlockingIOError:
            continue
        finally:
            os.close(held)
