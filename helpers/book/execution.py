"""Execute one notebook and say truly how it ended.

This room must not know chains, runs or stages.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import papermill
from nbclient.exceptions import DeadKernelError
from papermill.exceptions import PapermillExecutionError
from pydantic import JsonValue

from helpers.book import engine as engine  # registers the engine and the atomic saves
from helpers.book import papermill_entry as papermill_entry  # also where nothing is installed
from helpers.book.attempt import Attempt, OnProgress, Outcome, Progress
from helpers.book.parameters import check_parameters
from helpers.book.signals import stop_requests
from helpers.errors import PreconditionFailed
from helpers.record.atomic import write_atomic

__all__ = ["Execution", "OnProgress", "Outcome", "Progress", "execute"]


@dataclass(frozen=True)
class Execution:
    """How the execution of a notebook ended.

    Attributes:
        outcome: "completed" means that every code cell ran to its end and none raised.
        failed_cell_index: of the cell that ended it, in the notebook as it was run. papermill puts
            two marker cells into the archived one; look the cell up by its id there.
        failed_cell_id: that cell's id.
        failed_cell_tag: that cell's first tag.
        ename: the name of what ended it: an exception's, CellTimeoutError, DeadKernelError…
        evalue: the sentence that goes with it.
        cells_run: how many code cells were started.
        cells_total: how many there are to run.
        started_at: when, UTC.
        elapsed_s: how long, by a clock that never steps back.
        signal: what asked the runner to stop, when it was interrupted.
        saved: whether the executed notebook is on disk as it is.
        save_errors: what could not be recorded, each once.
    """

    outcome: Outcome
    failed_cell_index: int | None
    failed_cell_id: str | None
    failed_cell_tag: str | None
    ename: str | None
    evalue: str | None
    cells_run: int
    cells_total: int
    started_at: datetime
    elapsed_s: float
    signal: str | None
    saved: bool
    save_errors: tuple[str, ...]


def execute(
    notebook: Path,
    out: Path,
    parameters: Mapping[str, JsonValue],
    *,
    on_progress: OnProgress | None = None,
    spill_folder: Path | None = None,
    cell_timeout_s: float | None = None,
    kernel_env: Mapping[str, str] | None = None,
    prestart_next: bool = False,
) -> Execution:
    """Execute a notebook in a kernel of its own and archive it.

    Nothing that happens inside the notebook is raised: not an exception, a dead kernel or a
    time-out. Nor is Ctrl-C, SIGTERM or SIGHUP while it runs: the cell is interrupted, its
    ``finally`` blocks run (at most ten seconds; a second signal ends it at once), the record is on
    disk, and the outcome is "interrupted". A signal that comes after the last cell is handed on
    when everything is saved: it then does what it would have done outside, KeyboardInterrupt in the
    case of Ctrl-C.

    The kernel runs in the notebook's folder, as in JupyterLab, with RECOVER_BATCH=1.

    **Runs on:** operator. **Changes:** ``out``, ``spill_folder``, and what the cells change.

    Args:
        notebook: the source; it is not touched.
        out: where the executed notebook goes, saved as it grows. It must not exist.
        parameters: values for the notebook's parameters cell, checked as one document.
        on_progress: told of every cell's start, and twice a second while one runs.
        spill_folder: where output too long for the notebook goes, whole; made when it is needed.
        cell_timeout_s: longest time for one cell.
        kernel_env: variables for the kernel, besides this process's own.
        prestart_next: start a kernel for a next call with equal ``kernel_env`` meanwhile. Whoever
            says so calls ``drop_prestarted`` in the end.

    Returns:
        How it ended.

    Raises:
        ParameterError: the parameters are wrong; nothing ran.
        PreconditionFailed: ``out`` exists or has no folder, or a cell hides failures; nothing ran.
    """
    checked = check_parameters(notebook, parameters)
    with stop_requests() as stops:
        attempt = Attempt(
            notebook=notebook.stem,
            stops=stops,
            on_progress=on_progress,
            spill_folder=spill_folder,
            cell_timeout_s=cell_timeout_s,
            kernel_env=dict(kernel_env or {}),
            kernel_cwd=notebook.resolve().parent,
            prestart_next=prestart_next,
        )
        _claim(out, notebook, attempt)
        _run(notebook, out, checked, attempt)
    if stops.first and attempt.failure is None:
        signal.raise_signal(stops.first)
    return _told(attempt)


def _claim(out: Path, notebook: Path, attempt: Attempt) -> None:
    """Take the output's name before another execution does: the notebook as it is, nothing run."""
    try:
        write_atomic(out, notebook.read_bytes(), overwrite=False)
    except FileExistsError as error:
        raise PreconditionFailed(
            f"{out} exists, and an executed notebook is never overwritten.",
            hint="Start a new run, or set the file aside.",
        ) from error
    except FileNotFoundError as error:
        raise PreconditionFailed(
            f"There is no folder {out.parent}.", hint="Make it first."
        ) from error
    except OSError as error:
        attempt.could_not_save(f"{out}: {error}")


def _run(notebook: Path, out: Path, parameters: Mapping[str, JsonValue], attempt: Attempt) -> None:
    try:
        # What ended the notebook is in the attempt; papermill's exceptions say less.
        with suppress(PapermillExecutionError, DeadKernelError, KeyboardInterrupt):
            papermill.execute_notebook(
                _literal(notebook),
                _literal(out),
                parameters=dict(parameters),
                engine_name="runbook",
                progress_bar=False,
                attempt=attempt,
            )
    except (OSError, ValueError) as error:
        if not attempt.finished:
            raise
        # It was papermill's own last save, which only adds a mark where a cell failed.
        attempt.saved = False
        attempt.could_not_save(f"{out}: {error}")


def _literal(path: Path) -> str:
    """A path for papermill, which takes braces in it for places to fill in."""
    return str(path).replace("{", "{{").replace("}", "}}")


def _told(attempt: Attempt) -> Execution:
    failure, cell = attempt.failure, attempt.failed_cell
    return Execution(
        outcome=failure.outcome if failure else "completed",
        failed_cell_index=cell.index if cell else None,
        failed_cell_id=cell.cell_id if cell else None,
        failed_cell_tag=cell.tag if cell else None,
        ename=failure.ename if failure else None,
        evalue=failure.evalue if failure else None,
        cells_run=attempt.cells_run,
        cells_total=attempt.cells_total,
        started_at=attempt.started_at,
        elapsed_s=attempt.elapsed_s,
        signal=attempt.stops.name or None,
        saved=attempt.saved,
        save_errors=tuple(attempt.save_errors),
    )
