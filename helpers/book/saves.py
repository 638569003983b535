"""How an executed notebook gets onto the disk: often, whole, and never in the way of the run.

papermill opens its output with ``open(path, "w")``: whoever kills it then leaves an empty notebook,
and a full disk leaves half of one over a good one. This room must not know kernels.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from papermill.engines import NotebookExecutionManager
from papermill.iorw import LocalHandler, papermill_io, write_ipynb

from helpers.book.attempt import Attempt, FailedCell, Failure
from helpers.book.cells import Cell, Notebook, first_tag, runs
from helpers.book.failures import engine_failed, error_output, interrupted
from helpers.errors import PreconditionFailed
from helpers.record.atomic import remove_leftovers, write_atomic

SAVE_EVERY_S = 0.5
SLOWEST_SAVE_EVERY_S = 1.5  # with the time a save takes, still within the two seconds promised
SKIPPED = "skipped"


class AtomicFiles(LocalHandler):  # type: ignore[misc]  # papermill is untyped
    """papermill's files on this machine, replaced as a whole or not at all."""

    def write(self, buf: str, path: str) -> None:
        """Save a notebook.

        **Runs on:** operator. **Changes:** ``path``.

        Args:
            buf: the notebook as JSON.
            path: relative paths are relative to where papermill was started.

        Raises:
            ValueError: it holds NaN or Infinity, which no JSON reader but Python's opens.
            OSError: it could not be written; what was there still is.
        """
        place = local_path(path, self._cwd)
        if place.exists() and not place.is_file():
            super().write(buf, path)  # /dev/stdout and its like have nothing to replace
            return
        json.loads(buf, parse_constant=_refuse_constant)
        # Half a surrogate pair cannot be UTF-8; "\udc80" is the JSON escape of what it stood for.
        write_atomic(place, buf.encode("utf-8", errors="backslashreplace"))


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON: nothing but Python could open the notebook")


def local_path(path: str, folder: str | None = None) -> Path:
    """Where a path really lies; a symbolic link is followed, so that the link itself stays."""
    return (Path(folder or ".") / path).resolve()


def is_local(path: str | None) -> bool:
    """Whether papermill would write to this path with its handler for local files."""
    return path is not None and papermill_io.get_handler(path) is papermill_io.get_handler("./")


def save_atomically() -> None:
    """Make papermill in this process write local files atomically, relative paths too.

    papermill asks the handlers registered last first, but for a path without a known beginning it
    takes the *first* ever registered as "local", so another one cannot be put in its place. Its
    handler object is public, though, and giving that one object another class reaches every local
    path and no other kind.

    **Runs on:** operator. **Changes:** papermill's handler for local files in this process.
    """
    papermill_io.get_handler("./").__class__ = AtomicFiles


class NotebookRecord(NotebookExecutionManager):  # type: ignore[misc]  # papermill is untyped
    """The executed notebook: what papermill's manager keeps, told truly and saved without harm.

    It differs in three things. A cell that never ran stays pending. A save that fails is reported
    and does not stop the run. Saves are spaced: asked for twenty times in a second, it saves twice.

    Attributes:
        before_save: called before each save, to bring the outputs up to date.
    """

    def __init__(
        self,
        nb: Notebook,
        output_path: str | None,
        attempt: Attempt,
        *,
        progress_bar: bool | dict[str, object],
        log_output: bool,
    ) -> None:
        super().__init__(
            nb,
            output_path=output_path,
            progress_bar=progress_bar,
            log_output=log_output,
            autosave_cell_every=0,  # papermill's autosave waits for messages; ours is a timer
        )
        self.before_save: Callable[[], None] = lambda: None
        self._attempt = attempt
        self._unsaved = False
        self._next_save_s = 0.0
        nb.metadata.papermill["outcome"] = None  # an input may be an executed notebook itself
        if is_local(output_path):
            remove_leftovers(local_path(str(output_path)).parent)

    def save(self) -> None:
        """Something has changed: what papermill calls at every step."""
        self.changed()
        self.save_if_due()

    def changed(self) -> None:
        """The notebook in memory is newer than the one on disk."""
        self._unsaved = True

    def save_if_due(self) -> None:
        """Save when something has changed and the last save is long enough ago."""
        if self._unsaved and time.monotonic() >= self._next_save_s:
            self.save_now()

    def save_now(self) -> None:
        """Save, and report a failure instead of raising it."""
        started_s = time.monotonic()
        try:
            self.before_save()
            if self.output_path:
                write_ipynb(self.nb, self.output_path)
        except Exception as error:  # whatever it is, the recovery is worth more than its record
            self._attempt.saved = False
            self._attempt.could_not_save(f"{self.output_path}: {error}")
        else:
            self._unsaved = False
            self._attempt.saved, self._attempt.unsaved = True, ""
        took_s = time.monotonic() - started_s
        pause_s = min(max(SAVE_EVERY_S, 10 * took_s), SLOWEST_SAVE_EVERY_S)
        self._next_save_s = time.monotonic() + pause_s

    def cell_failed(self, index: int, failure: Failure) -> None:
        """Mark a cell as the one that ended the notebook, with an output that names why."""
        cell = self.nb.cells[index]
        shown = [(o.ename, o.evalue) for o in cell.outputs if o.output_type == "error"]
        if (failure.ename, failure.evalue) not in shown:
            cell.outputs.append(error_output(failure))
        self.cell_exception(cell)
        self.nb.metadata.papermill["outcome"] = failure.outcome
        self._attempt.failure = failure
        self._attempt.failed_cell = FailedCell(index, cell.get("id"), first_tag(cell))

    def first_cell_failed(self, failure: Failure) -> None:
        """No cell could run: tell it where the reader looks first, in the first code cell."""
        index = next((i for i, cell in enumerate(self.nb.cells) if runs(cell)), None)
        if index is None:
            raise PreconditionFailed(
                f"The notebook has no cell to run, and its kernel did not start: {failure.evalue}",
                hint="Look at the notebook.",
            )
        self.cell_failed(index, failure)

    def cell_skipped(self, cell: Cell) -> None:
        """Mark a cell that is not meant to run. **Changes:** its state."""
        cell.metadata.papermill["status"] = SKIPPED

    def notebook_complete(self) -> None:
        """Close the notebook. What was not run stays pending; what was running has failed."""
        self.end_time = self.now()
        told = self.nb.metadata.papermill
        told["end_time"] = self.end_time.isoformat()
        told["duration"] = (self.end_time - self.start_time).total_seconds()
        self._name_what_was_cut_off()
        told["outcome"] = told["outcome"] or "completed"
        self.cleanup_pbar()
        self.save_now()
        self._attempt.finished = True

    def _name_what_was_cut_off(self) -> None:
        """An exception of the engine itself, or the third Ctrl-C, leaves no reason behind."""
        if self._attempt.failure:
            return
        for index, cell in enumerate(self.nb.cells):
            state = cell.metadata.papermill["status"]
            if runs(cell) and state in (self.RUNNING, self.PENDING):
                stops, started = self._attempt.stops, state == self.RUNNING
                reason = interrupted(stops, started=started) if stops.count else engine_failed()
                self.cell_failed(index, reason)
                return
