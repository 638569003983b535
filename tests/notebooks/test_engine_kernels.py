"""Kernels, progress and parameters."""

from __future__ import annotations

import asyncio
import sys
from itertools import pairwise

import psutil
import pytest
from jupyter_core.utils import run_sync

from helpers.book.engine import drop_prestarted
from helpers.book.execution import execute
from helpers.book.kernels import SUPPLY, KernelOrder
from helpers.errors import ParameterError, PreconditionFailed
from tests.notebooks.notebook_kit import (
    living,
    shown,
    write_notebook,
)


def test_the_next_kernel_is_started_ahead_and_taken(tmp_path):
    born = "import os, psutil; print(os.getpid(), psutil.Process().create_time())"
    notebook = write_notebook(tmp_path / "a.ipynb", "import time; time.sleep(1)", born)
    first = execute(notebook, tmp_path / "1.ipynb", {}, prestart_next=True)
    second = execute(notebook, tmp_path / "2.ipynb", {}, prestart_next=False)
    assert (first.outcome, second.outcome) == ("completed", "completed")
    pids = [shown(tmp_path / f"{n}.ipynb").split()[0] for n in (1, 2)]
    assert pids[0] != pids[1]  # nothing leaks from one notebook into the next
    created = float(shown(tmp_path / "2.ipynb").split()[1])
    assert created < second.started_at.timestamp()


def test_a_kernel_started_ahead_is_not_taken_for_another_order(tmp_path):
    notebook = write_notebook(tmp_path / "a.ipynb", "import os; print(os.environ['COLOUR'])")
    execute(notebook, tmp_path / "1.ipynb", {}, kernel_env={"COLOUR": "red"}, prestart_next=True)
    execute(notebook, tmp_path / "2.ipynb", {}, kernel_env={"COLOUR": "blue"})
    assert [shown(tmp_path / f"{n}.ipynb") for n in (1, 2)] == ["red\n", "blue\n"]


def test_a_kernel_started_ahead_and_not_needed_ends(tmp_path):
    notebook = write_notebook(tmp_path / "a.ipynb", "1")
    execute(notebook, tmp_path / "1.ipynb", {}, prestart_next=True)
    kernels = psutil.Process().children(recursive=True)
    assert len(living(kernels)) == 2  # the kernel and the watcher
    drop_prestarted()
    assert not living(kernels)


def test_a_kernel_knows_that_nobody_is_there_and_where_it_is(run, out, tmp_path):
    from helpers.book.binding import BATCH_VARIABLE

    shows = f"os.environ[{BATCH_VARIABLE!r}], os.environ['MORE'], pathlib.Path.cwd()"
    cell = f"import os, pathlib, sys\nprint({shows}, sys.executable)"
    told = run(cell, kernel_env={"MORE": "yes"})
    assert told.outcome == "completed"
    assert shown(out).split() == ["1", "yes", str(tmp_path), sys.executable, "last"]


def test_kernel_transport_is_encrypted(tmp_path):
    kernel = run_sync(SUPPLY.take)(KernelOrder.of("python3", tmp_path, {}))
    assert kernel.curve_publickey
    run_sync(SUPPLY.end)(kernel)


def test_progress_names_the_cell_and_ticks(run):
    seen = []
    told = run(
        ("# Where we are",),
        "import time; time.sleep(1.3)",
        ("1", "verification"),
        on_progress=seen.append,
    )
    assert told.outcome == "completed"
    first_of = {p.cell_number: p for p in reversed(seen)}
    assert {n: p.label for n, p in first_of.items()} == {
        1: "parameters",
        2: "Where we are",
        3: "verification",
        4: "Where we are",
    }
    assert {p.cells_total for p in seen} == {4}
    assert {p.notebook for p in seen} == {"a"}
    ticks = [p.cell_elapsed_s for p in seen if p.cell_number == 2]
    assert len(ticks) >= 3
    assert ticks == sorted(ticks)
    assert all(a.elapsed_s <= b.elapsed_s for a, b in pairwise(seen))


def test_a_listener_that_fails_stops_nothing(run):
    def broken(progress):
        raise OSError("the terminal is gone")

    assert run("1", on_progress=broken).outcome == "completed"


def test_it_works_where_an_event_loop_is_running_already(run):
    async def in_a_notebook():
        return run("1")

    assert asyncio.run(in_a_notebook()).outcome == "completed"


def test_wrong_parameters_are_refused_before_anything_runs(run, out):
    with pytest.raises(ParameterError, match="did you mean x"):
        run("open('ran', 'w').close()", values={"xx": 1})
    assert not out.exists()


def test_an_executed_notebook_is_never_overwritten(run, out):
    run("1")
    before = out.read_bytes()
    with pytest.raises(PreconditionFailed, match="is never overwritten"):
        run("2")
    assert out.read_bytes() == before


def test_an_output_without_a_folder_is_refused(tmp_path):
    notebook = write_notebook(tmp_path / "a.ipynb", "1")
    with pytest.raises(PreconditionFailed, match="There is no folder"):
        execute(notebook, tmp_path / "nowhere" / "a.ipynb", {})


def test_a_path_with_braces_is_taken_as_it_is(tmp_path):
    folder = tmp_path / "run {x}"
    folder.mkdir()
    notebook = write_notebook(folder / "{a}.ipynb", "print(x)")
    assert execute(notebook, folder / "{out}.ipynb", {"x": 3}).outcome == "completed"
    assert shown(folder / "{out}.ipynb") == "3\n"
