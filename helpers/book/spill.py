"""The whole text of a cell, in a file of its own once it is long.

This room must not know what a notebook is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

SPILL_CHARS = 128_000  # what is held in memory before a file is made


class SpillFile:
    """Everything a cell printed, carriage returns included, in the order in which it arrived.

    Args:
        folder: where the file goes; made when it is needed. An existing file is never touched.
        stem: the file's name without its ending.
        seen_from: the folder that the file's place is told relative to.
        report: told what could not be written; the cell goes on.
    """

    def __init__(
        self, folder: Path, stem: str, seen_from: Path, report: Callable[[str], None]
    ) -> None:
        self._folder = folder
        self._stem = stem
        self._seen_from = seen_from
        self._report = report
        self._held: list[str] = []
        self._held_chars = 0
        self._file: TextIOWrapper | None = None
        self._path: Path | None = None
        self._lost = ""

    def write(self, text: str) -> None:
        """Add text."""
        if self._lost:
            return
        self._held.append(text)
        self._held_chars += len(text)
        if self._held_chars > SPILL_CHARS:
            self.must_exist()
            self._hand_over()

    def must_exist(self) -> None:
        """Make the file now: something is left out of the notebook, or is about to be."""
        if self._file or self._lost:
            return
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path, self._file = self._create()
        except OSError as error:
            self._give_up(error)

    def flush(self) -> None:
        """Put everything written so far where another process can read it, if there is a file."""
        if self._file:
            self._hand_over()
        try:
            if self._file:
                self._file.flush()
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """No more text comes."""
        self.flush()
        if self._file:
            self._file.close()
            self._file = None

    def whereabouts(self) -> str:
        """Where the whole text is, or why it is not, as half a sentence."""
        if self._lost:
            return f"the whole text is lost: {self._lost}"
        if self._path is None:
            return "the whole text is not written yet"
        return f"the whole text is in {os.path.relpath(self._path, self._seen_from)}"

    def _create(self) -> tuple[Path, TextIOWrapper]:
        number = 1
        while True:
            ending = ".log" if number == 1 else f"-{number}.log"
            path = self._folder / f"{self._stem}{ending}"
            try:
                # Text from outside may hold half a surrogate pair, which UTF-8 cannot.
                return path, path.open("x", encoding="utf-8", errors="backslashreplace", newline="")
            except FileExistsError:
                number += 1

    def _hand_over(self) -> None:
        if self._file is None:
            return
        try:
            self._file.writelines(self._held)
        except OSError as error:
            self._give_up(error)
        self._held, self._held_chars = [], 0

    def _give_up(self, error: OSError) -> None:
        """A full disk must not stop the cell: say so once and keep only what the notebook keeps."""
        self._lost = str(error)
        self._held, self._held_chars = [], 0
        self._report(f"the whole output of {self._stem}: {error}")
        if self._file:
            with suppress(OSError):  # closing flushes, which is what has just failed
                self._file.close()
            self._file = None
