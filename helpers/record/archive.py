"""A run folder as one file that can be kept elsewhere: the same folder always gives the same bytes.

This room must not know what the files mean, except that a reader looks for the report first.
"""

from __future__ import annotations

import io
import os
import secrets
import tarfile
from datetime import datetime
from pathlib import Path

import zstandard

from helpers.errors import ParameterError
from helpers.record.run_folder import RunFolder

ENDING = ".tar.zst"
_FIRST = "report.html"
_LEVEL = 10


def archive(folder: RunFolder, to: Path) -> Path:
    """Write a run folder into one compressed file, its report at the top.

    Names are sorted; dates, owners and permissions are not the machine's: two archives of the same
    content are the same byte for byte.

    **Runs on:** operator. **Changes:** ``to``, as a whole or not at all.

    Args:
        folder: the run.
        to: the file to write; a folder = under the run's id in it.

    Returns:
        The file.

    Raises:
        ParameterError: there is such a file already, or its folder is missing.
    """
    path = to / f"{folder.asked.run_id}{ENDING}" if to.is_dir() else to
    if path.exists():
        raise ParameterError(
            f"{path} is there already.", hint="An archive is never overwritten: name another file."
        )
    if not path.parent.is_dir():
        raise ParameterError(f"There is no folder {path.parent}.", hint="Make it, or name another.")
    part = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            _write(folder, file)
            file.flush()
            os.fsync(file.fileno())
        part.rename(path)
    finally:
        part.unlink(missing_ok=True)
    return path


def _write(folder: RunFolder, file: io.BufferedWriter) -> None:
    run_id, started = folder.asked.run_id, datetime.fromisoformat(folder.asked.started_at)
    # One thread: with several the bytes depend on how many there are.
    compressor = zstandard.ZstdCompressor(level=_LEVEL, threads=0)
    with (
        compressor.stream_writer(file, closefd=False) as compressed,
        tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in _in_order(folder.path):
            entry = tar.gettarinfo(path, f"{run_id}/{path.relative_to(folder.path).as_posix()}")
            entry.mtime, entry.mode = int(started.timestamp()), 0o755 if path.is_dir() else 0o644
            entry.uid = entry.gid = 0
            entry.uname = entry.gname = ""
            if entry.isfile():
                with path.open("rb") as content:
                    tar.addfile(entry, content)
            else:
                tar.addfile(entry)


def _in_order(path: Path) -> list[Path]:
    found = [p for p in path.rglob("*") if not p.name.startswith(".")]
    return sorted(found, key=lambda p: (p.relative_to(path).as_posix() != _FIRST, p.as_posix()))
