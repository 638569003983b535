"""Files that hold the old content or the new one, at every instant and after every way to die.

Everything in a run folder that is replaced is written through here. This room must not know what
the content means.
"""

from __future__ import annotations

import os
import re
import secrets
from pathlib import Path

from helpers.record.redact import redactor

_PART = re.compile(r"^\..+\.(?P<pid>\d+)-[0-9a-f]{8}\.part$", re.DOTALL)


def write_atomic(
    path: Path, data: bytes | str, *, mode: int | None = None, overwrite: bool = True
) -> None:
    """Replace a file's content as a whole.

    The content goes to a new file in the same folder, is flushed to the disk, and takes the name
    only then; the folder is flushed too. A reader sees the old content or the new one. After a
    kill, a full disk or a power cut the old content is still there; a file that could not be
    completed is removed again, except after SIGKILL (see ``remove_leftovers``). Secrets are masked.

    **Runs on:** operator. **Changes:** ``path``.

    Args:
        path: the file. A symbolic link is replaced, not followed.
        data: its new content; text is encoded as UTF-8 before anything is touched.
        mode: permission bits; None = those of the file replaced, or what the umask gives.
        overwrite: False = an existing file is an error and stays as it is.

    Raises:
        FileExistsError: the file exists and ``overwrite`` is False.
        OSError: the content could not be written; the file is as it was.
    """
    content = redactor().clean(data.encode("utf-8") if isinstance(data, str) else data)
    bits = _mode_of(path) if mode is None else mode
    part = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    descriptor = os.open(part, flags, 0o666 if bits is None else 0o600)
    try:
        try:
            if bits is not None:
                os.fchmod(descriptor, bits)
            _write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if overwrite:
            part.replace(path)
        else:
            path.hardlink_to(part)  # unlike a rename, a link fails when the name is taken
            part.unlink()
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def remove_leftovers(folder: Path) -> tuple[Path, ...]:
    """Remove the incomplete files that killed processes left in a folder.

    Only names that ``write_atomic`` gives are looked at, and only those whose process is gone.

    **Runs on:** operator. **Changes:** removes ``.NAME.PID-XXXXXXXX.part`` files.

    Returns:
        What was removed.
    """
    removed = []
    for candidate in sorted(folder.glob(".*.part")):
        match = _PART.match(candidate.name)
        if match and not _alive(int(match["pid"])):
            candidate.unlink(missing_ok=True)
            removed.append(candidate)
    return tuple(removed)


def _mode_of(path: Path) -> int | None:
    try:
        return path.lstat().st_mode & 0o777 if not path.is_symlink() else None
    except FileNotFoundError:
        return None


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _flush_folder(folder: Path) -> None:
    """Make the new name itself survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it lives and belongs to somebody else
        return True
    return True
