"""One attempt to execute one notebook: what the caller wants of it, and what has become of it.

Plain data that the engine, the client and the caller share. This room must not know papermill.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from helpers.book.signals import StopRequests

Outcome = Literal["completed", "failed", "interrupted", "kernel_died", "timed_out", "stopped_early"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Progress:
    """Where an execution is, for a live line.

    Attributes:
        notebook: the notebook's name without its ending, for instance ``30_verify_torch``.
        cell_number: which of the code cells runs, from 1; 0 before the first.
        cells_total: how many code cells there are to run.
        label: the cell's first tag, else the heading above it.
        elapsed_s: since the notebook was started.
        cell_elapsed_s: since this cell was started.
        note: what a person should know now (stopping, cannot save); mostly empty.
    """

    notebook: str
    cell_number: int
    cells_total: int
    label: str
    elapsed_s: float
    cell_elapsed_s: float
    note: str = ""


OnProgress = Callable[[Progress], None]


@dataclass(frozen=True)
class Failure:
    """Why a notebook did not come to its end.

    Attributes:
        outcome: the kind of end.
        ename: its name, for instance an exception's.
        evalue: the sentence that goes with it.
        details: further lines for the reader of the notebook.
    """

    outcome: Outcome
    ename: str
    evalue: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class FailedCell:
    """Which cell ended a notebook: its index in the notebook as executed, its id and first tag."""

    index: int
    cell_id: str | None
    tag: str | None


@dataclass
class Attempt:
    """See the module's head.

    Attributes:
        notebook: the notebook's name without its ending.
        stops: requests to stop, counted by signal handlers.
        on_progress: told of every cell's start and twice a second while a cell runs.
        spill_folder: where output too long for the notebook goes; None = nothing is shortened.
        cell_timeout_s: longest time for one cell; None = no limit.
        kernel_env: variables for the kernel, besides this process's own.
        kernel_cwd: the kernel's working directory.
        prestart_next: start the next notebook's kernel as soon as this one's is up.
        failure: why it did not come to its end; None = it did, or has not yet.
        failed_cell: the cell in which that was.
        cells_run: how many code cells were started.
        cells_total: how many there are to run.
        finished: the engine has closed the notebook.
        saved: the notebook on disk is the one in memory.
        save_errors: what could not be recorded, each once.
        note: what is going on besides the cell, for the live line.
        unsaved: what could not be recorded just now, for the live line.
        started_at: when the attempt began, UTC.
        started_s: the same by a clock that never steps back.
    """

    notebook: str
    stops: StopRequests
    on_progress: OnProgress | None = None
    spill_folder: Path | None = None
    cell_timeout_s: float | None = None
    kernel_env: Mapping[str, str] = field(default_factory=dict)
    kernel_cwd: Path = field(default_factory=Path.cwd)
    prestart_next: bool = False

    failure: Failure | None = None
    failed_cell: FailedCell | None = None
    cells_run: int = 0
    cells_total: int = 0
    finished: bool = False
    saved: bool = False
    save_errors: list[str] = field(default_factory=list)
    note: str = ""
    unsaved: str = ""
    started_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    started_s: float = field(default_factory=time.monotonic)

    @property
    def elapsed_s(self) -> float:
        """Since the attempt began, by a clock that never steps back."""
        return time.monotonic() - self.started_s

    def tell(self, label: str, cell_elapsed_s: float) -> None:
        """Report where the execution is.

        A listener that fails (its terminal is gone, say) is dropped: watching must not stop a
        recovery.

        **Runs on:** operator. **Changes:** nothing.
        """
        if self.on_progress is None:
            return
        progress = Progress(
            notebook=self.notebook,
            cell_number=self.cells_run,
            cells_total=self.cells_total,
            label=label,
            elapsed_s=self.elapsed_s,
            cell_elapsed_s=cell_elapsed_s,
            note="; ".join(filter(None, (self.note, self.unsaved))),
        )
        try:
            self.on_progress(progress)
        except Exception:  # whatever a stranger's callback raises
            self.on_progress = None
            _log.exception("the progress listener failed and is no longer called")

    def could_not_save(self, what: str) -> None:
        """Keep and report that something could not be recorded; the execution goes on.

        **Runs on:** operator. **Changes:** nothing.
        """
        self.unsaved = f"not saved: {what}"
        if what not in self.save_errors:
            self.save_errors.append(what)
            _log.error("could not be recorded, the execution goes on: %s", what)
