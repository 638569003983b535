"""How a notebook may end, and what its record says then: what papermill gets wrong, row by row."""

from __future__ import annotations

import re

import psutil
import pytest
from jupyter_client.kernelspec import NoSuchKernel

from helpers.book.execution import execute
from helpers.errors import PreconditionFailed
from tests.notebooks.notebook_kit import (
    errors,
    read,
    shown,
    states,
    write_notebook,
)

SLEEPER = "import time\ntry:\n    print('begun', flush=True)\n    time.sleep(60)\nfinally:\n    "


def test_a_notebook_that_runs_to_its_end_is_completed(run, out):
    told = run("y = x + 1", ("# Results",), "print(y)\ny", values={"x": 4})
    assert (told.outcome, told.ename, told.failed_cell_index) == ("completed", None, None)
    assert (told.cells_run, told.cells_total) == (5, 5)
    assert told.saved
    assert told.save_errors == ()
    assert states(out) == ["completed"] * 4
    assert shown(out) == "5\n5last\n"
    assert read(out).metadata.papermill.outcome == "completed"
    assert read(out).metadata.papermill.exception is None


def test_an_exception_fails_its_cell_and_later_ones_stay_pending(run, out):
    told = run(("1 / 0", "facts"), "print('never')")
    assert (told.outcome, told.ename, told.evalue) == (
        "failed",
        "ZeroDivisionError",
        "division by zero",
    )
    assert (told.failed_cell_tag, told.failed_cell_index) == ("facts", 1)
    assert states(out) == ["completed", "failed", "pending", "pending"]
    assert errors(out) == [("ZeroDivisionError", "division by zero")]
    failed = next(c for c in read(out).cells if c.get("id") == told.failed_cell_id)
    assert failed.metadata.papermill.exception is True
    assert read(out).metadata.papermill.exception is True
    assert read(out).metadata.papermill.outcome == "failed"


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", r"was ended by SIGKILL \(out of memory"),
        ("os._exit(0)", "ended with exit code 0"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV"),
    ],
)
def test_a_dead_kernel_fails_its_cell(run, out, end, why):
    code = f"import os, signal, time\nprint('before', flush=True)\ntime.sleep(0.3)\n{end}"
    told = run(code, "print('never')")
    assert (told.outcome, told.ename) == ("kernel_died", "DeadKernelError")
    assert told.evalue in dict(errors(out)).values()
    assert re.search(why, str(told.evalue))
    assert states(out) == ["completed", "failed", "pending", "pending"]
    assert shown(out) == "before\n"
    assert read(out).metadata.papermill.exception is True


def test_a_kernel_killed_from_outside_fails_its_cell(run, out):
    def kill_the_kernel(progress):
        if progress.cell_number == 2 and progress.cell_elapsed_s > 0.5:
            for child in psutil.Process().children():
                if "ipykernel_launcher" in child.cmdline():
                    child.kill()

    told = run("import time; time.sleep(60)", on_progress=kill_the_kernel)
    assert told.outcome == "kernel_died"
    assert states(out) == ["completed", "failed", "pending"]


def test_a_time_out_interrupts_the_cell_and_lets_it_clean_up(run, out):
    told = run(SLEEPER + "print('cleaned')", "print('never')", cell_timeout_s=1)
    assert (told.outcome, told.ename) == ("timed_out", "CellTimeoutError")
    assert told.evalue == "no end after 1 s; this cell was interrupted"
    assert states(out) == ["completed", "failed", "pending", "pending"]
    assert shown(out) == "begun\ncleaned\n"
    assert ("CellTimeoutError", told.evalue) in errors(out)
    assert told.elapsed_s < 15


def test_a_cell_that_takes_no_interrupt_is_ended_all_the_same(run, out, monkeypatch):
    monkeypatch.setattr("helpers.book.client.CLEAN_UP_S", 1.0)
    stubborn = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\ntime.sleep(60)"
    told = run(stubborn, cell_timeout_s=1)
    assert told.outcome == "timed_out"
    assert states(out) == ["completed", "failed", "pending"]
    assert told.elapsed_s < 15


@pytest.mark.parametrize("leave", ["import sys; sys.exit(0)", "import sys; sys.exit()", "exit()"])
def test_a_polite_exit_in_the_middle_is_no_normal_end(run, out, leave):
    told = run(leave, "print('never')")
    assert (told.outcome, told.ename) == ("stopped_early", "StoppedEarly")
    assert "2 later code cells never ran" in str(told.evalue)
    assert states(out) == ["completed", "failed", "pending", "pending"]
    assert "never" not in shown(out)


def test_an_exit_code_is_a_failure(run):
    told = run("import sys; sys.exit(3)")
    assert (told.outcome, told.ename, told.evalue) == ("failed", "SystemExit", "3")


def test_a_kernel_that_does_not_exist_fails_the_first_cell(tmp_path, out):
    out.parent.mkdir()
    notebook = write_notebook(tmp_path / "a.ipynb", "1", kernel="no-such-kernel")
    told = execute(notebook, out, {})
    assert (told.outcome, told.ename, told.cells_run) == ("failed", NoSuchKernel.__name__, 0)
    assert states(out) == ["failed", "pending"]
    assert errors(out)[0][0] == "NoSuchKernel"


def test_a_kernel_that_does_not_come_up_says_why(tmp_path, out):
    out.parent.mkdir()
    notebook = write_notebook(tmp_path / "a.ipynb", "1")
    told = execute(notebook, out, {}, kernel_env={"PYTHONHOME": "/nowhere"})
    assert (told.outcome, told.cells_run) == ("kernel_died", 0)
    assert states(out) == ["failed", "pending"]
    (error,) = (o for o in read(out).cells[0].outputs if o.output_type == "error")
    assert "No module named 'encodings'" in "\n".join(error.traceback)


def test_an_exception_inside_an_output_widget_is_seen(run, out):
    told = run(
        "import ipywidgets\nbox = ipywidgets.Output()\nwith box:\n    print('inside')\n    1 / 0",
    )
    assert (told.outcome, told.ename) == ("failed", "ZeroDivisionError")
    assert states(out) == ["completed", "failed", "pending"]
    assert shown(out) == "inside\n"


def test_an_error_that_ipython_only_shows_is_seen(run, out, tmp_path):
    (tmp_path / "script.py").write_text("raise KeyError('gone')")
    told = run("%run script.py")
    assert (told.outcome, told.ename) == ("failed", "KeyError")
    assert states(out) == ["completed", "failed", "pending"]


@pytest.mark.parametrize("cell", ["!false", "%%bash\nfalse\necho done", "lines = !ls /nowhere"])
def test_a_cell_whose_failure_nobody_would_see_is_refused(run, out, cell):
    with pytest.raises(PreconditionFailed, match="whose failure nobody would see"):
        run("open('ran', 'w').close()", cell)
    assert not (out.parent.parent / "ran").exists()


def test_an_exclamation_mark_in_a_text_is_no_shell(run):
    assert run("print('''\n!false\n''')").outcome == "completed"


def test_expected_exceptions_and_skipped_cells_are_told_as_they_are(run, out):
    told = run(("1 / 0", "raises-exception"), ("print('never')", "skip-execution"), "")
    assert told.outcome == "completed"
    assert states(out) == ["completed", "completed", "skipped", "completed", "completed"]
    assert "never" not in shown(out)
