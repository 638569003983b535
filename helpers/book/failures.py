"""Why a notebook ended before its end, in words for its reader.

This room must not know how a failure is noticed.
"""

from __future__ import annotations

import signal

from nbformat.v4 import new_output

from helpers.book.attempt import Failure, Outcome
from helpers.book.output import Output
from helpers.book.signals import StopRequests


def interrupted(stops: StopRequests, *, started: bool) -> Failure:
    """The runner was asked to stop."""
    when = "this cell was interrupted" if started else "this cell was not started"
    return Failure("interrupted", "KeyboardInterrupt", f"{stops.name} reached the runner; {when}")


def timed_out(limit_s: float) -> Failure:
    """The cell did not end in its time."""
    return Failure(
        "timed_out", "CellTimeoutError", f"no end after {limit_s:g} s; this cell was interrupted"
    )


def stopped_early(cells_left: int) -> Failure:
    """The cell ended the notebook itself, politely."""
    return Failure(
        "stopped_early",
        "StoppedEarly",
        f"exit was asked for in this cell; {cells_left} later code cells never ran",
    )


def kernel_died(exit_code: int | None, last_words: list[str]) -> Failure:
    """The kernel's process ended under the cell."""
    return Failure("kernel_died", "DeadKernelError", _how_it_died(exit_code), tuple(last_words))


def did_not_start(error: Exception, last_words: list[str]) -> Failure:
    """No cell could run: the kernel did not come up."""
    died = "died" in str(error).lower()
    text = str(error).strip() or "no reason given"
    outcome: Outcome = "kernel_died" if died else "failed"
    return Failure(outcome, type(error).__name__, text, tuple(last_words))


def engine_failed() -> Failure:
    """This package itself failed; its exception goes to the caller."""
    return Failure("failed", "EngineError", "the engine failed in this cell, not the cell's code")


def error_output(failure: Failure) -> Output:
    """A failure as an output of its cell, as a notebook shows an exception."""
    return new_output(  # type: ignore[no-untyped-call]  # nbformat leaves its functions so
        "error",
        ename=failure.ename,
        evalue=failure.evalue,
        traceback=[f"{failure.ename}: {failure.evalue}", *failure.details],
    )


def _how_it_died(exit_code: int | None) -> str:
    if exit_code is None:
        return "the kernel does not answer; this cell's work may or may not have been done"
    if exit_code >= 0:
        return f"the kernel's process ended with exit code {exit_code} in this cell"
    try:
        name = signal.Signals(-exit_code).name
    except ValueError:
        name = f"signal {-exit_code}"
    cause = " (out of memory, or ended by hand)" if name == "SIGKILL" else ""
    return f"the kernel's process was ended by {name}{cause} in this cell"
