"""What stands in ``set-aside.json``: how an environment was moved, to take that up or back.

It is written before the first change, so that what was killed half-way can be found, finished and
undone.  A part of ``set_aside`` and ``inventory``; sent along with them.  Standard library only,
Python 3.9 and newer.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import relocation

RECORD = "set-aside.json"


def write_record(
    root: Path,
    aside: Path,
    all_rewrites: list[relocation.Rewrite],
    all_links: list[relocation.Link],
) -> None:
    """Write down, before anything is done, how to take it back."""
    record = {
        "venv": str(root),
        "aside": str(aside),
        "moves": [
            [os.fsdecode(m.before), os.fsdecode(m.after)] for m in relocation.moves(root, aside)
        ],
        "rewritten": [
            {
                "path": r.path,
                "sha256_before": r.before,
                "sha256_after": r.after,
                "first_line": None if r.first_line is None else os.fsdecode(r.first_line),
            }
            for r in all_rewrites
        ],
        "links": [link._asdict() for link in all_links],
    }
    relocation.replace(root / RECORD, json.dumps(record, indent=1).encode())


def remove_record(root: Path) -> None:
    """Leave the environment as it was: the record was ours."""
    with contextlib.suppress(FileNotFoundError):
        (root / RECORD).unlink()


def read_record(root: Path) -> dict[str, Any] | None:
    """How the environment at ``root`` was set aside; None when it was not, or was moved since."""
    if not (root / RECORD).is_file():
        return None
    record: dict[str, Any] = json.loads((root / RECORD).read_bytes())
    return record if os.path.realpath(record["aside"]) == os.path.realpath(root) else None


def unfinished(aside: Path) -> list[str]:
    """What a set-aside that was cut short has not reached: it still points at the old path."""
    record = read_record(aside)
    if record is None:
        return []
    files = [e["path"] for e in record["rewritten"] if _has(aside / e["path"], e["sha256_before"])]
    return files + [e["path"] for e in record["links"] if _points(aside / e["path"], e["before"])]


def finish(aside: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Rewrite what a set-aside that was cut short has not reached; what cannot be is told."""
    record = read_record(aside)
    if record is None:
        raise FileNotFoundError(f"{aside} was not set aside by this program")
    pairs = [(os.fsencode(before), os.fsencode(after)) for before, after in record["moves"]]
    all_moves = [
        relocation.Move(relocation.whole_path(before), before, after) for before, after in pairs
    ]
    done, left = [], []
    for entry in record["rewritten"]:
        path = aside / entry["path"]
        if _has(path, entry["sha256_before"]):
            content, _ = relocation.moved(path.read_bytes(), all_moves)
            if relocation.sha256(content) != entry["sha256_after"]:
                left.append({"path": entry["path"], "reason": "it would become another file"})
                continue
            relocation.replace(path, content)
            done.append(entry["path"])
    for link in record["links"]:
        if _points(aside / link["path"], link["before"]):
            relocation.relink(aside / link["path"], link["after"])
            done.append(link["path"])
    return done, left


def _has(path: Path, sha256: str) -> bool:
    return (
        path.is_file() and not path.is_symlink() and relocation.sha256(path.read_bytes()) == sha256
    )


def _points(path: Path, target: str) -> bool:
    return path.is_symlink() and os.readlink(path) == target


def undo(aside: Path) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Give each file the bytes it had, where their hash proves that these are they."""
    record = json.loads((aside / RECORD).read_bytes())
    restored, not_restored = [], []
    for entry in record["rewritten"]:
        path = aside / entry["path"]
        content = path.read_bytes()
        if relocation.sha256(content) != entry["sha256_before"]:
            content = _backwards(content, record["moves"], entry["first_line"])
            if relocation.sha256(content) != entry["sha256_before"]:
                not_restored.append(
                    {"path": entry["path"], "reason": "somebody else has changed it since"}
                )
                continue
            relocation.replace(path, content)
        restored.append({"path": entry["path"], "sha256": entry["sha256_before"]})
    for link in record["links"]:
        if os.readlink(aside / link["path"]) != link["before"]:
            relocation.relink(aside / link["path"], link["before"])
    return restored, not_restored


def _backwards(content: bytes, all_moves: list[list[str]], first_line: str | None) -> bytes:
    if first_line is not None:
        content = os.fsencode(first_line) + b"\n" + content.split(b"\n", 3)[3]
    for before, after in all_moves:
        content = content.replace(os.fsencode(after), os.fsencode(before))
    return content
