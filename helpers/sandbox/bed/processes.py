"""Processes by number: who descends from whom, and ending exactly those."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def descendants(pid: int) -> list[int]:
    """Children of a process, their children, and so on."""
    found: list[int] = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in map(int, tasks.read_text().split()):
                found += [child, *descendants(child)]
    return found


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to those that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def end(pids: Iterable[int], patience_s: float = 5.0) -> None:
    """Ask processes to end, kill those that do not, and wait until they are gone."""
    listed = list(pids)
    send(listed, signal.SIGTERM)
    until = time.monotonic() + patience_s
    while any(map(_lives, listed)) and time.monotonic() < until:
        time.sleep(0.02)
    send(filter(_lives, listed), signal.SIGKILL)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
