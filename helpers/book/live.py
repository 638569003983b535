"""What a stage says of itself while it works, for whoever watches from another process.

One small file in the run folder, replaced as a whole; it is a courtesy and no part of the record.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from helpers.record.redact import redactor

_NAME = ".live"


def write_live(folder: Path, text: str) -> None:
    """Say what is going on. **Runs on:** operator. **Changes:** ``.live`` in the run folder."""
    part = folder / f"{_NAME}.{os.getpid()}.part"
    # A courtesy must not end an install that is half done: on a full disk nothing is said.
    with suppress(OSError):
        part.write_text(redactor().text(text), encoding="utf-8")
        part.replace(folder / _NAME)


def read_live(folder: Path) -> str:
    """What was said last; empty when nothing was. **Changes:** nothing."""
    try:
        return (folder / _NAME).read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
