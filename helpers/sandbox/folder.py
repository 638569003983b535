"""A sandbox's folder: what lies where in it, how it is known to be ours, how it is removed.

    {root}/sandbox.json     says that the folder is a sandbox, and what was broken in it
    {root}/sandbox.yaml     its target file
    {root}/repository       the training scripts, in git
    {root}/container        what a container's file system would be
    {root}/bed              in a sandbox of kind pct: host and container, see ``sandbox.bed``
    {root}/baselines        accepted measurements of the healthy state
    {root}/healthy          what was written down of the healthy state: lock and lists
    {root}/wheels           stand-ins built on the spot
    {root}/kept             what costs minutes to make, kept for the next sandbox here

Only these are ever removed, and only beside a ``sandbox.json`` of ours that names this very folder.
This room must not know how a sandbox is made or broken.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from helpers.errors import ParameterError, PreconditionFailed
from helpers.recover.container_lock import hold, sandbox_key

Kind = Literal["sandbox", "pct"]
MADE_BY = "recover sandbox"
_NOTE = "sandbox.json"
_KEPT = "kept"
_LOCK = ".lock"
# Removed in this order; the note goes last, so that a removal cut short can be taken up again.
_PARTS = ("container", "bed", "repository", "baselines", "healthy", "wheels", "sandbox.yaml", _NOTE)


class Note(BaseModel):
    """``sandbox.json``: what the folder is.

    Attributes:
        root: the folder it was made in; a copy or a moved folder is no sandbox.
        kind: "pct" has a container behind a host, on a bed of this machine.
        state: "making" until everything is in place; "removing" while it is taken away.
        started_at: when making it began, UTC.
        faults: what was broken on purpose.
        steps: name, seconds, and whether it was made or reused, for each step of making it.
    """

    # What another version of this program wrote besides is no reason to refuse its sandbox.
    model_config = ConfigDict(frozen=True, extra="ignore")

    made_by: Literal["recover sandbox"] = "recover sandbox"
    root: str
    kind: Kind = "sandbox"
    state: Literal["making", "ready", "removing"]
    started_at: str
    faults: tuple[str, ...] = ()
    steps: tuple[dict[str, JsonValue], ...] = ()


@dataclass(frozen=True)
class SandboxFolder:
    """The folder of a sandbox, made or yet to be made. Asking for one touches nothing."""

    root: Path

    @property
    def note_file(self) -> Path:
        """Where the note is."""
        return self.root / _NOTE

    @property
    def target_file(self) -> Path:
        """The sandbox's own target file."""
        return self.root / "sandbox.yaml"

    @property
    def repository(self) -> Path:
        """The git repository of the training scripts."""
        return self.root / "repository"

    @property
    def container(self) -> Path:
        """What stands for the container's file system."""
        return self.root / "container"

    @property
    def bed(self) -> Path:
        """In a sandbox of kind pct: the folder of its host and container."""
        return self.root / "bed"

    @property
    def wheels(self) -> Path:
        """Wheels built on the spot."""
        return self.root / "wheels"

    @property
    def healthy(self) -> Path:
        """What was written down of the healthy state."""
        return self.root / "healthy"

    @property
    def kept(self) -> Path:
        """What outlives a sandbox for the next one here."""
        return self.root / _KEPT

    def note(self) -> Note | None:
        """The note, or None when the folder is not there or holds nothing but what was kept.

        **Runs on:** operator. **Changes:** nothing.

        Raises:
            ParameterError: the folder holds something and is no sandbox of ours.
        """
        refuse_dangerous(self.root)
        if not self.note_file.is_file():
            self._refuse_foreign()
            return None
        try:
            note = Note.model_validate_json(self.note_file.read_bytes())
        except ValidationError as error:
            raise ParameterError(
                f"{self.note_file} is not the note of a sandbox: {error.errors()[0]['msg']}.",
                hint="Give another folder with --root. If this one is useless, remove it yourself.",
            ) from error
        if note.root != str(self.root):
            raise ParameterError(
                f"{self.root} says that it was made as {note.root}: it is a copy, or it was moved.",
                hint="A sandbox works only where it was made: give another folder with --root.",
            )
        return note

    def _refuse_foreign(self) -> None:
        if not self.root.exists():
            return
        if not self.root.is_dir():
            raise ParameterError(
                f"{self.root} is a file.", hint="Give the path of a folder that does not exist yet."
            )
        foreign = sorted(p.name for p in self.root.iterdir() if p.name not in (_KEPT, _LOCK))
        if foreign:
            raise ParameterError(
                f"{self.root} is not a sandbox: it has no {_NOTE}, but {', '.join(foreign[:3])}"
                f"{' and more' if len(foreign) > 3 else ''}.",
                hint="Give a folder that does not exist yet. Nothing in this one was touched.",
            )

    def write_note(self, note: Note) -> None:
        """Write the note whole or not at all. **Changes:** ``sandbox.json``."""
        part = self.note_file.with_suffix(".part")
        part.write_text(note.model_dump_json(indent=1) + "\n", encoding="utf-8")
        part.replace(self.note_file)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder while it is made or removed.

        **Runs on:** operator. **Changes:** makes the folder and a lock file in it.

        Raises:
            PreconditionFailed: another process is at it, or a run recovers what is in it.
        """
        self.root.mkdir(parents=True, exist_ok=True)
        try:
            with (
                FileLock(self.root / _LOCK, timeout=0),
                hold(sandbox_key(self.root), name=f"The sandbox in {self.root}", run_id=None),
            ):
                yield
        except Timeout as error:
            raise PreconditionFailed(
                f"Another process is making or removing the sandbox in {self.root}.",
                hint="Wait for it, or give another folder with --root.",
            ) from error

    def remove(self, note: Note, *, kept: bool) -> list[str]:
        """Take away what a sandbox consists of, and nothing else.

        **Runs on:** operator. **Changes:** the sandbox's parts are deleted; with ``kept`` also what
        was kept.

        Args:
            note: the folder's note, as ``note`` gave it: whoever has none has nothing to remove.
            kept: whether to remove what is kept for the next sandbox too.

        Returns:
            The names of what was removed.

        Raises:
            ParameterError: a part of it is a symbolic link.
        """
        parts = [*((_KEPT,) if kept else ()), *_PARTS]
        there = [self.root / name for name in parts if os.path.lexists(self.root / name)]
        links = [path.name for path in there if path.is_symlink()]
        if links:
            raise ParameterError(
                f"{self.root} holds {', '.join(links)} as a symbolic link; a sandbox never does.",
                hint="Look where it leads and remove the link yourself. Nothing was removed.",
            )
        self.write_note(note.model_copy(update={"state": "removing"}))
        for path in there:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        return [path.name for path in there]


def refuse_dangerous(root: Path) -> None:
    """Refuse folders that nobody means as a sandbox. **Runs on:** operator. **Changes:** nothing.

    Raises:
        ParameterError: it is relative, the file system's root, a home folder or above one, a mount
            point, or reached through a symbolic link.
    """
    why = None
    if not root.is_absolute():
        why = "is not an absolute path"
    elif root.is_symlink():
        why = "is a symbolic link"
    elif root.resolve() != root:
        why = f"is reached through a symbolic link; its real path is {root.resolve()}"
    elif Path.home().resolve().is_relative_to(root):
        why = "is your home folder, or holds it"
    elif root.is_mount():
        why = "is a mount point"
    elif Path(__file__).resolve().is_relative_to(root):
        why = "holds this program"
    if why is not None:
        raise ParameterError(
            f"{root} {why}.",
            hint="Give a folder of its own, for instance --root ~/sandbox. Nothing was touched.",
        )
