"""Which files of a virtual environment know its path, and how they are made to know another.

A part of ``set_aside``; sent along with it.  Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TEXT_LIMIT_BYTES = 4 * 1024 * 1024
FIRST_LINE_LIMIT_BYTES = 127  # older kernels cut the line there, newer ones at 255
# The places, in every kind of virtual environment, where its own path is written down.
PLACES = (
    "bin/*",
    "pyvenv.cfg",
    "lib/python3*/site-packages/*.pth",
    "lib/python3*/site-packages/*.egg-link",
    "share/jupyter/kernels/*/kernel.json",
)
# What an installer writes when a path is too long or has a space: a shell line that Python reads
# as a string.
SHELL_FIRST_LINE = b"#!/bin/sh\n'''exec' \"%s\" %s\"$0\" \"$@\"\n' '''\n"


class Move(NamedTuple):
    """A path as it is written in files, and what is to be written instead."""

    pattern: re.Pattern[bytes]
    before: bytes
    after: bytes


class Rewrite(NamedTuple):
    """One file's new content; ``first_line`` is the old one where it had to change its form."""

    path: str
    before: str
    after: str
    content: bytes
    first_line: bytes | None


class Link(NamedTuple):
    """A symbolic link whose target lies inside the environment, written absolutely."""

    path: str
    before: str
    after: str


def moves(venv: Path, aside: Path) -> list[Move]:
    """The ways in which the environment's path may be written."""
    pairs = {os.fsencode(venv): os.fsencode(aside)}
    if not venv.is_symlink():  # a folder above it may be a link
        real = os.path.join(os.path.realpath(venv.parent), venv.name)
        pairs.setdefault(
            os.fsencode(real), os.fsencode(os.path.join(os.path.dirname(real), aside.name))
        )
    return [Move(whole_path(before), before, after) for before, after in pairs.items()]


def whole_path(path: bytes) -> re.Pattern[bytes]:
    """That path and what lies in it: not ``/root/venv2``, not ``/mnt/root/venv``."""
    return re.compile(rb"(?:(?<=://)|(?<![\w.\-/]))" + re.escape(path) + rb"(?![\w.\-])")


def rewrites(root: Path, all_moves: list[Move]) -> tuple[list[Rewrite], list[dict[str, str]]]:
    """New contents of the files that mention the path, and the files that cannot be helped."""
    found, left = [], []
    for path in _files(root):
        content = _text(path)
        name = str(path.relative_to(root))
        if content is None:
            continue
        new, first_line = moved(content, all_moves)
        if new == content:
            continue
        if new.startswith(b"#!") and len(new.partition(b"\n")[0]) > FIRST_LINE_LIMIT_BYTES:
            left.append(
                {"path": name, "reason": "its first line would be longer than the kernel reads"}
            )
            continue
        found.append(Rewrite(name, sha256(content), sha256(new), new, first_line))
    return found, left


def moved(content: bytes, all_moves: list[Move]) -> tuple[bytes, bytes | None]:
    """A file's content with the new path, and its first line where that had to change its form."""
    new = content
    for move in all_moves:
        new = move.pattern.sub(lambda _match, after=move.after: after, new)
    return (content, None) if new == content else _fit_first_line(content, new)


def _files(root: Path) -> Iterator[Path]:
    for place in PLACES:
        for path in sorted(root.glob(place)):
            if path.is_file() and not path.is_symlink():
                yield path


def _text(path: Path) -> bytes | None:
    """A file's content unless it is a program of machine code or too large to be a script."""
    with path.open("rb") as file:
        start = file.read(8192)
        if b"\0" in start or os.fstat(file.fileno()).st_size > TEXT_LIMIT_BYTES:
            return None
        return start + file.read()


def _fit_first_line(old: bytes, new: bytes) -> tuple[bytes, bytes | None]:
    """Give a Python script whose first line has become too long the form without a limit."""
    line, _, rest = new.partition(b"\n")
    found = re.match(rb"#!\s*(/\S*python[\d.]*)[ \t]*(.*)$", line)
    if not found or len(line) <= FIRST_LINE_LIMIT_BYTES:
        return new, None
    arguments = found.group(2).strip()
    head = SHELL_FIRST_LINE % (found.group(1), arguments + b" " if arguments else b"")
    return head + rest, old.partition(b"\n")[0]


def links(root: Path, all_moves: list[Move]) -> list[Link]:
    """Absolute links from the environment into itself."""
    found = []
    for path in [*sorted(root.glob("bin/*")), root / "lib64"]:
        if path.is_symlink():
            target = os.fsencode(os.readlink(path))
            new = target
            for move in all_moves:
                if target.startswith(move.before + b"/"):
                    new = move.after + target[len(move.before) :]
            if new != target:
                found.append(
                    Link(str(path.relative_to(root)), os.fsdecode(target), os.fsdecode(new))
                )
    return found


def replace(path: Path, content: bytes) -> None:
    """Put new content in a file's place with the old one's mode, owner and time."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_bytes(content)
        if path.exists():
            facts = path.stat()
            if os.geteuid() == 0:
                os.chown(part, facts.st_uid, facts.st_gid)
            os.chmod(part, facts.st_mode & 0o7777)
            os.utime(part, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        os.replace(part, path)
    finally:
        with contextlib.suppress(FileNotFoundError):
            part.unlink()


def relink(path: Path, target: str) -> None:
    """Point a link elsewhere, at once."""
    part = path.with_name(f".{path.name}.part")
    with contextlib.suppress(FileNotFoundError):
        part.unlink()
    os.symlink(target, part)
    os.replace(part, path)


def mentioning(root: Path, path: Path) -> list[str]:
    """Files that still name ``path``."""
    pattern = whole_path(os.fsencode(path))
    return [
        str(file.relative_to(root)) for file in _files(root) if pattern.search(_text(file) or b"")
    ]


def console_scripts(root: Path) -> list[Path]:
    """Scripts that start this environment's Python, without an option that hides who it is."""
    roots = b"|".join(re.escape(os.fsencode(path)) for path in (root, os.path.realpath(root)))
    inside = rb"(?:" + roots + rb")/bin/python[\d.]*"
    plain = re.compile(rb"#!\s*" + inside + rb"[ \t]*\n")
    shell = re.compile(rb"#!/bin/sh\n'''exec' [\"']?" + inside + rb"[\"']? \"\$0\" \"\$@\"\n")
    scripts = []
    for path in sorted(root.glob("bin/*")):
        if path.is_file() and not path.is_symlink() and os.access(path, os.X_OK):
            content = _text(path) or b""
            if plain.match(content) or shell.match(content):
                scripts.append(path)
    return scripts


def sha256(content: bytes) -> str:
    """Hash of a file's content."""
    return hashlib.sha256(content).hexdigest()
