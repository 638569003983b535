"""The papermill engine ``runbook``: papermill's way in, and a record that can be believed.

It is used for ``recover run``, and by the plain ``papermill`` command for our notebooks (see
``papermill_entry``). This room must not know chains, runs or stages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from jupyter_client.kernelspec import NATIVE_KERNEL_NAME
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbclient.exceptions import DeadKernelError
from papermill.engines import Engine, papermill_engines

from helpers.book.attempt import Attempt, Failure
from helpers.book.cells import Notebook, refuse_unseen_failures, runs
from helpers.book.client import LOOK_EVERY_S, RunbookClient, TextFile
from helpers.book.failures import did_not_start, interrupted
from helpers.book.kernels import SUPPLY, KernelOrder, drop_prestarted
from helpers.book.parameters import check_values, declared_in
from helpers.book.saves import NotebookRecord, is_local, local_path, save_atomically
from helpers.book.signals import signals_interrupt, stop_requests
from helpers.errors import PreconditionFailed

__all__ = ["RunbookEngine", "drop_prestarted", "signals_interrupt"]


class RunbookEngine(Engine):  # type: ignore[misc]  # papermill is untyped
    """See the module's head. Every argument but ``attempt`` is papermill's."""

    @classmethod
    def nb_kernel_name(cls, nb: Notebook, name: str | None = None) -> str:
        """The kernel that a notebook wants; this Python's own when it does not say."""
        return str(name or nb.metadata.get("kernelspec", {}).get("name") or NATIVE_KERNEL_NAME)

    @classmethod
    def nb_language(cls, nb: Notebook, language: str | None = None) -> str:
        """The language that a notebook is written in; Python when it does not say."""
        return str(language or nb.metadata.get("language_info", {}).get("name") or "python")

    @classmethod
    def execute_notebook(
        cls,
        nb: Notebook,
        kernel_name: str,
        output_path: str | None = None,
        progress_bar: bool | dict[str, object] = True,
        log_output: bool = False,
        autosave_cell_every: int = 0,  # not used: output is on disk within two seconds in any case
        input_path: str | Notebook = None,
        start_timeout: int = 60,
        execution_timeout: int | None = None,
        stdout_file: TextFile = None,
        stderr_file: TextFile = None,
        attempt: Attempt | None = None,
    ) -> Notebook:
        """Execute a notebook whose parameters papermill has injected.

        **Runs on:** operator. **Changes:** ``output_path``, and what the notebook's cells change.

        ``attempt`` is for a caller in this process: what it wants, and what it wants to know.

        Returns:
            The executed notebook. A failed cell has an error output, for which papermill raises.

        Raises:
            ParameterError: a parameter is wrong; nothing ran.
            PreconditionFailed: a cell hides failures, or the output has no folder; nothing ran.
            DeadKernelError: the kernel died, the record says where; papermill exits with 138.
            KeyboardInterrupt: the runner was asked to stop, the record says where.
        """
        _check(nb, output_path)
        name = Path(input_path).stem if isinstance(input_path, str) else "notebook"
        with nullcontext(attempt) if attempt else _plain_attempt(name, output_path) as attempt:
            attempt.cell_timeout_s = attempt.cell_timeout_s or execution_timeout
            attempt.cells_total = sum(map(runs, nb.cells))
            record = NotebookRecord(
                nb, output_path, attempt, progress_bar=progress_bar, log_output=log_output
            )
            client_for = partial(
                RunbookClient,
                record,
                attempt=attempt,
                log_output=log_output,
                stdout_file=stdout_file,
                stderr_file=stderr_file,
            )
            record.notebook_start()
            try:
                run_sync(_execute)(record, attempt, kernel_name, start_timeout, client_for)
            finally:
                record.notebook_complete()
        _raise_for(attempt)
        return nb


def _check(nb: Notebook, output_path: str | None) -> None:
    """Everything that can be known to be wrong before anything runs."""
    if output_path is not None and is_local(output_path):
        folder = local_path(output_path).parent
        if not folder.is_dir():
            raise PreconditionFailed(f"There is no folder {folder}.", hint="Make it first.")
    given = nb.metadata.papermill.get("parameters") or {}
    if given or any("parameters" in cell.metadata.get("tags", []) for cell in nb.cells):
        check_values(declared_in(nb, "the notebook"), given, "the notebook")
    refuse_unseen_failures(nb)


@contextmanager
def _plain_attempt(notebook: str, output_path: str | None) -> Iterator[Attempt]:
    """What is wanted when nobody says: long output goes into a folder beside the notebook."""
    spill = None
    if output_path is not None and is_local(output_path):
        out = local_path(output_path)
        spill = out.parent / f"{out.stem}-output"
    with stop_requests() as stops:
        yield Attempt(notebook=notebook, stops=stops, spill_folder=spill)


async def _execute(
    record: NotebookRecord,
    attempt: Attempt,
    kernel_name: str,
    start_timeout_s: float,
    client_for: Callable[[AsyncKernelManager], RunbookClient],
) -> None:
    order = KernelOrder.of(kernel_name, attempt.kernel_cwd, attempt.kernel_env)
    try:
        kernel = await SUPPLY.take(order)
    except Exception as error:  # no such kernel, no memory, no permission: no cell can run
        record.first_cell_failed(did_not_start(error, []))
        return
    client = client_for(kernel)
    try:
        failure = await _connect(client, kernel, attempt, start_timeout_s)
        if failure:
            record.first_cell_failed(failure)
            return
        if attempt.prestart_next:
            await SUPPLY.start_ahead(order)
        await client.run_cells()
    finally:
        client.disconnect()
        await SUPPLY.end(kernel, now=attempt.stops.count > 1)


async def _connect(
    client: RunbookClient, kernel: AsyncKernelManager, attempt: Attempt, start_timeout_s: float
) -> Failure | None:
    """Wait for the kernel, unless the runner is asked to stop meanwhile."""
    connecting = asyncio.ensure_future(client.connect(start_timeout_s))
    while not connecting.done():
        await asyncio.wait({connecting}, timeout=LOOK_EVERY_S)
        if attempt.stops.count:
            connecting.cancel()
            await asyncio.wait({connecting})
            return interrupted(attempt.stops, started=False)
    error = connecting.exception()
    if isinstance(error, RuntimeError):  # it died, or does not answer
        return did_not_start(error, SUPPLY.last_words(kernel))
    if error is not None:
        raise error
    return None


def _raise_for(attempt: Attempt) -> None:
    """What papermill itself cannot tell from the notebook."""
    if attempt.stops.count:
        raise KeyboardInterrupt(attempt.stops.name)
    if attempt.failure and attempt.failure.outcome == "kernel_died":
        raise DeadKernelError(attempt.failure.evalue)


save_atomically()
papermill_engines.register("runbook", RunbookEngine)
