"""The journal of a run: every event in order, on disk before the next thing is done.

One JSON document a line; each line carries the hash of the line before, so that a changed, removed or
inserted line shows. Runner and kernels append to the same file, one at a time. This room must not know
what the events mean.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock
from pydantic import JsonValue

from helpers.record.redact import redactor

_FIRST = "0" * 64


class Journal:
    """Append-only events of one run.

    Args:
        path: the file; made with the first event.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path.with_name(f".{path.name}.lock"))

    def append(self, event: str, **fields: JsonValue) -> dict[str, Any]:
        """Write one event and return it once it is on disk.

        **Runs on:** operator. **Changes:** the journal.

        Args:
            event: its kind, for instance ``stage_started``.
            fields: its content, plain JSON.

        Raises:
            OSError: it could not be written; nothing half-written counts as a line.
        """
        with self._lock, self.path.open("a+b") as file:
            _end_torn_line(file.fileno())
            lines = self._lines()
            entry = {
                "seq": len(lines),
                "at": datetime.now(UTC).isoformat(),
                "prev": line_hash(lines[-1]) if lines else _FIRST,
                "event": event,
                **fields,
            }
            text = json.dumps(entry, ensure_ascii=False, allow_nan=False).encode()
            line = redactor().clean(text) + b"\n"
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        return entry

    def events(self) -> Iterator[dict[str, Any]]:
        """Every event in order; a line torn by a crash is left out (``problems`` names it)."""
        for line in self._lines():
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def problems(self) -> list[str]:
        """What shows that the journal is not as it was written; empty when nothing does."""
        found, prev = [], _FIRST
        for number, line in enumerate(self._lines()):
            try:
                entry: Mapping[str, Any] = json.loads(line)
            except ValueError:
                found.append(f"line {number + 1} is not whole")
                prev = line_hash(line)
                continue
            if entry.get("prev") != prev:
                found.append(f"line {number + 1} does not follow from the line before it")
            prev = line_hash(line)
        return found

    def head(self) -> str:
        """Hash of the last line: it stands for the whole journal."""
        lines = self._lines()
        return line_hash(lines[-1]) if lines else _FIRST

    def _lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines() if self.path.exists() else []


def line_hash(line: bytes) -> str:
    """SHA-256 of a line without its line end."""
    return hashlib.sha256(line.rstrip(b"\n")).hexdigest()


def _end_torn_line(descriptor: int) -> None:
    """A crash may have left a line without its end: end it, so that the next event stands on its own."""
    size = os.lseek(descriptor, 0, os.SEEK_END)
    if size and os.pread(descriptor, 1, size - 1) != b"\n":
        os.write(descriptor, b"\n")
