"""Runs a notebook's cells in a kernel and tells the truth about each.

papermill marks a cell as failed only when its code raised; after a dead kernel, a time-out or
Ctrl-C it writes "completed" over cells that never ran. This room must not know where notebooks
come from or what their stages do.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

from jupyter_client.manager import AsyncKernelManager
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat.v4 import output_from_msg
from papermill.clientwrap import PapermillNotebookClient

from helpers.book.attempt import Attempt, Failure
from helpers.book.cells import Cell, first_tag, labels, runs
from helpers.book.failures import interrupted, kernel_died, stopped_early, timed_out
from helpers.book.kernels import SUPPLY
from helpers.book.output import CellOutput, Output
from helpers.book.saves import NotebookRecord, is_local, local_path
from helpers.book.spill import SpillFile

CLEAN_UP_S = 10.0  # for the ``finally`` blocks of an interrupted cell; a second signal ends it
LOOK_EVERY_S = 0.1
TELL_EVERY_S = 0.5
OUTPUT_DRAIN_S = 60  # for output that is still on its way when a cell has ended
_SHOWN = (
    "stream",
    "display_data",
    "execute_result",
    "error",
    "update_display_data",
    "clear_output",
)
Message = Any  # a message of the Jupyter protocol: a dictionary of dictionaries
TextFile = Any  # what papermill's command line opens for a kernel's stdout and stderr

# nbclient logs here what the record says anyway: quiet where nobody has set up logging.
_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())


class RunbookClient(PapermillNotebookClient):  # type: ignore[misc]  # papermill is untyped
    """See the module's head.

    Args:
        record: the executed notebook.
        kernel: a kernel that was started, ready or not. Whoever started it ends it.
        attempt: what the caller wants; learns what has become of it.
        log_output: papermill's option: log what cells print.
        stdout_file: papermill's option: write what cells print to stdout there too.
        stderr_file: the same for stderr.
    """

    def __init__(
        self,
        record: NotebookRecord,
        kernel: AsyncKernelManager,
        attempt: Attempt,
        *,
        log_output: bool,
        stdout_file: TextFile,
        stderr_file: TextFile,
    ) -> None:
        super().__init__(
            record,
            km=kernel,
            log=_log,
            log_output=log_output,
            stdout_file=stdout_file,
            stderr_file=stderr_file,
            iopub_timeout=OUTPUT_DRAIN_S,
            # A widget's state is of no use without a kernel; its text is kept (see output.py).
            store_widget_state=False,
        )
        # Without the stand-in for widgets.Output, what is printed "into" one lands in the cell
        # itself, where an archive shows it. So does an exception, which that widget would swallow.
        self.widget_registry: dict[str, Any] = {}
        self.clear_before_next_output: bool = False
        self.on_cell_executed = self._note_exit
        self._attempt = attempt
        self._labels = labels(self.nb.cells)
        self._output = CellOutput(None)
        self._told_s = 0.0
        self._raised: dict[str, Any] | None = None
        self._asked_to_exit = False

    async def connect(self, start_timeout_s: float) -> None:
        """Wait until the kernel answers.

        Raises:
            RuntimeError: it died, or did not answer in time.
        """
        self.kc = self.km.client()
        self.kc.start_channels()
        await self.kc.wait_for_ready(timeout=start_timeout_s)
        self.kc.allow_stdin = False  # nobody is there to answer
        reply = await self.async_wait_for_reply(self.kc.kernel_info())
        if reply is not None:
            self.nb.metadata["language_info"] = reply["content"]["language_info"]

    async def run_cells(self) -> None:
        """Run the cells in order until one fails; the record and the attempt say what happened."""
        for index, cell in enumerate(self.nb.cells):
            self.nb_man.cell_start(cell, index)
            failure = await self._run(cell, index) if runs(cell) else None
            if failure:
                self.nb_man.cell_failed(index, failure)
            if cell.cell_type == "code" and cell.source.strip() and not runs(cell):
                self.nb_man.cell_skipped(cell)
            else:
                self.nb_man.cell_complete(cell, cell_index=index)
            if failure:
                self.nb_man.save_now()
                return

    def disconnect(self) -> None:
        """Let go of the kernel, which goes on."""
        if self.kc is not None:
            self.kc.stop_channels()

    async def _run(self, cell: Cell, index: int) -> Failure | None:
        if self._attempt.stops.count:
            return interrupted(self._attempt.stops, started=False)
        self._attempt.cells_run += 1
        self._output = CellOutput(self._spill_file(cell, index))
        self.nb_man.before_save = self._output.render
        self._raised, self._asked_to_exit = None, False
        self._tell(index, 0.0)
        work = asyncio.ensure_future(self.async_execute_cell(cell, index))
        failure = await self._supervise(work, index)
        try:
            return failure or await self._outcome(work)
        finally:
            self._output.close(cell.outputs)

    async def _supervise(self, work: asyncio.Future[Cell], index: int) -> Failure | None:
        """Watch a cell: save what it printed, tell where it is, end it when it must not go on."""
        attempt, started_s = self._attempt, time.monotonic()
        while not work.done():
            await asyncio.wait({work}, timeout=LOOK_EVERY_S)
            elapsed_s = time.monotonic() - started_s
            self.nb_man.save_if_due()
            self._tell_now_and_then(index, elapsed_s)
            if attempt.stops.count:
                attempt.note = "stopping: the cell cleans up; another Ctrl-C ends it at once"
                failure = interrupted(attempt.stops, started=True)
            elif attempt.cell_timeout_s is not None and elapsed_s > attempt.cell_timeout_s:
                attempt.note = "timed out: the cell cleans up"
                failure = timed_out(attempt.cell_timeout_s)
            else:
                continue
            if not work.done():
                await self._interrupt(work, index, started_s)
            return failure
        return None

    async def _interrupt(self, work: asyncio.Future[Cell], index: int, started_s: float) -> None:
        """Interrupt a cell, so that its ``finally`` blocks run; give it up if it does not end."""
        asked = self._attempt.stops.count
        deadline_s = time.monotonic() + CLEAN_UP_S
        await self.km.interrupt_kernel()
        while not work.done() and time.monotonic() < deadline_s:
            if self._attempt.stops.count > max(asked, 1):
                break
            self._tell_now_and_then(index, time.monotonic() - started_s)
            self.nb_man.save_if_due()
            await asyncio.wait({work}, timeout=LOOK_EVERY_S)
        work.cancel()
        await asyncio.wait({work})
        if not work.cancelled():
            work.exception()  # seen, and set aside: why it was interrupted is what counts

    async def _outcome(self, work: asyncio.Future[Cell]) -> Failure | None:
        """How a cell that ended by itself has ended."""
        try:
            await work
        except CellExecutionError as error:
            if error.ename == "SystemExit" and error.evalue in ("", "0", "None"):
                return stopped_early(self._cells_left())
            return Failure("failed", error.ename, error.evalue)
        except DeadKernelError:
            return kernel_died(await self.km.provisioner.poll(), SUPPLY.last_words(self.km))
        except CellTimeoutError:  # not the cell's own limit: its end never came through
            return Failure("failed", "OutputLost", f"no end of output within {OUTPUT_DRAIN_S} s")
        if self._raised is not None:  # shown by IPython and not raised, as %run does
            return Failure("failed", self._raised["ename"], self._raised["evalue"])
        return stopped_early(self._cells_left()) if self._asked_to_exit else None

    def output(
        self, outs: list[Output], msg: Message, display_id: str | None, cell_index: int
    ) -> Output:
        """A hook of nbclient, for what a cell shows: streams are joined and kept short."""
        content = msg["content"]
        if msg["msg_type"] == "error" and not self._may_raise(cell_index):
            self._raised = content
        if msg["msg_type"] != "stream":
            return super().output(outs, msg, display_id, cell_index)
        if self.clear_before_next_output:
            outs[:] = []
            self.clear_display_id_mapping(cell_index)
            self.clear_before_next_output = False
        self._output.add(outs, content["name"], content["text"])
        # This chunk alone, for papermill's log and its file of stdout. nbformat is untyped.
        return output_from_msg(msg)  # type: ignore[no-untyped-call]

    def process_message(self, msg: Message, cell: Cell, cell_index: int) -> Output:
        """A hook of nbclient, for every message: what changes the notebook is to be saved soon."""
        if msg["msg_type"] in _SHOWN:
            self.nb_man.changed()
        return super().process_message(msg, cell, cell_index)

    def _may_raise(self, index: int) -> bool:
        return "raises-exception" in self.nb.cells[index].metadata.get("tags", [])

    def _note_exit(self, cell: Cell, cell_index: int, execute_reply: Message) -> None:
        """``exit`` and ``quit`` end the kernel politely: the reply is no error and asks for it."""
        payload = execute_reply["content"].get("payload", [])
        self._asked_to_exit = any(part.get("source") == "ask_exit" for part in payload)

    def _cells_left(self) -> int:
        return self._attempt.cells_total - self._attempt.cells_run

    def _spill_file(self, cell: Cell, index: int) -> SpillFile | None:
        attempt, path = self._attempt, self.nb_man.output_path
        if attempt.spill_folder is None or not is_local(path):
            return None
        stem = f"{attempt.notebook}-{index:02d}-{first_tag(cell) or cell.get('id') or 'cell'}"
        safe = "".join(c if c.isalnum() or c in "-_." else "_" for c in stem)
        folder = local_path(path).parent
        return SpillFile(attempt.spill_folder, safe, folder, attempt.could_not_save)

    def _tell(self, index: int, cell_elapsed_s: float) -> None:
        self._told_s = time.monotonic()
        self._attempt.tell(self._labels[index], cell_elapsed_s)

    def _tell_now_and_then(self, index: int, cell_elapsed_s: float) -> None:
        if time.monotonic() - self._told_s >= TELL_EVERY_S:
            self._tell(index, cell_elapsed_s)
