from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from jupyter_client.kernelspec import NoSuchKernel
from jupyter_core.utils import run_sync

from helpers.book.engine import drop_prestarted
from helpers.book.execution import execute
from helpers.book.kernels import SUPPLY, KernelOrder
from helpers.book.output import HEAD_CHARS, TAIL_CHARS, CellOutput, KeptText
from helpers.book.spill import SpillFile
from helpers.errors import ParameterError, PreconditionFailed
from tests.notebooks.notebook_kit import (
    Runner,
    errors,
    living,
    read,
    shown,
    states,
    wait_for,
    with_path,
    write_notebook,
)

SLEEPER = "import time\ntry:\n    print('begun', flush=True)\n    time.sleep(60)\nfinally:\n    "


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out" / "a.ipynb"


@pytest.fixture
def run(tmp_path, out):
    """Execute a notebook made of these cells; a cell more always follows them."""
    out.parent.mkdir()

    def execute_cells(*cells, **options):
        notebook = write_notebook(tmp_path / "a.ipynb", *cells, "print('last')")
        return execute(notebook, out, options.pop("values", {}), **options)

    yield execute_cells
    drop_prestarted()


# ---- What ends a notebook: the table of what papermill gets wrong, row by row --------------------


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


# ---- Signals and the end of the runner -----------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "name"),
    [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")],
)
def test_a_signal_interrupts_the_cell_and_everything_ends(tmp_path, number, name):
    child = "import subprocess\nsubprocess.Popen(['sleep', '300'], start_new_session=True)\n"
    cell = child + SLEEPER + "open('cleaned', 'w').close()"
    notebook = write_notebook(tmp_path / "a.ipynb", cell, "print('never')")
    runner = Runner(notebook, tmp_path / "out.ipynb", prestart_next=True)
    wait_for(lambda: "begun" in _text(tmp_path / "out.ipynb"), 30, "the cell begins")
    family = runner.family()
    assert {"sleep"} <= {p.name() for p in family}
    runner.process.send_signal(number)
    outcome, which, ename, evalue = runner.told()
    assert (outcome, which, ename) == ("interrupted", name, "KeyboardInterrupt")
    assert evalue == f"{name} reached the runner; this cell was interrupted"
    assert (tmp_path / "cleaned").exists()
    assert states(tmp_path / "out.ipynb") == ["completed", "failed", "pending"]
    assert ("KeyboardInterrupt", evalue) in errors(tmp_path / "out.ipynb")
    wait_for(lambda: not living(family), 5, "kernels and their children are gone")


def test_a_second_signal_does_not_wait_for_the_clean_up(tmp_path):
    cell = SLEEPER + "time.sleep(60)"
    notebook = write_notebook(tmp_path / "a.ipynb", cell)
    runner = Runner(notebook, tmp_path / "out.ipynb")
    wait_for(lambda: "begun" in _text(tmp_path / "out.ipynb"), 30, "the cell begins")
    family = runner.family()
    runner.process.send_signal(signal.SIGINT)
    time.sleep(1)
    started_s = time.monotonic()
    runner.process.send_signal(signal.SIGINT)
    assert runner.told()[0] == "interrupted"
    assert time.monotonic() - started_s < 5
    assert states(tmp_path / "out.ipynb") == ["completed", "failed"]
    assert not living(family)


def test_a_signal_after_the_last_cell_is_handed_on(run, out):
    def late(progress):
        if progress.cell_number == 2 and progress.cell_elapsed_s == 0:
            threading.Timer(0.6, os.kill, (os.getpid(), signal.SIGINT)).start()

    # The exit hook keeps the kernel busy after the last cell has ended.
    with pytest.raises(KeyboardInterrupt):
        run("import atexit, time; atexit.register(time.sleep, 0.9)", on_progress=late)
    assert states(out) == ["completed"] * 3


def test_sigkill_of_the_runner_takes_its_kernels_and_their_children_along(tmp_path):
    child = "import subprocess\nsubprocess.Popen(['sleep', '300'], start_new_session=True)\n"
    cell = child + SLEEPER + "pass"
    notebook = write_notebook(tmp_path / "a.ipynb", cell, "print('never')")
    runner = Runner(notebook, tmp_path / "out.ipynb", prestart_next=True)
    wait_for(lambda: "begun" in _text(tmp_path / "out.ipynb"), 30, "the cell begins")
    family = runner.family()
    kernels = [p for p in family if "ipykernel_launcher" in " ".join(p.cmdline())]
    assert len(kernels) == 2
    runner.process.kill()
    runner.process.communicate()
    wait_for(lambda: not living(family), 5, "kernels and their children are gone")
    assert states(tmp_path / "out.ipynb") == ["completed", "running", "pending"]
    assert shown(tmp_path / "out.ipynb") == "begun\n"


def test_what_was_meant_to_live_on_lives_on(run, tmp_path):
    daemon = (
        "import subprocess\n"
        "start = 'setsid sleep 300 >/dev/null 2>&1 & echo $! > pid'\n"
        "subprocess.run(['sh', '-c', start], check=True)"
    )
    assert run(daemon).outcome == "completed"
    left = psutil.Process(int((tmp_path / "pid").read_text()))
    assert left.is_running()
    left.kill()


def test_children_end_with_their_kernel(run, tmp_path):
    keep = (
        "import subprocess, pathlib\n"
        "one = subprocess.Popen(['sleep', '300'])\n"
        "two = subprocess.Popen(['sleep', '300'], start_new_session=True)\n"
        "subprocess.run(['sh', '-c', 'sleep 300 & echo $! > orphan'], check=True)\n"
        "pathlib.Path('pids').write_text(f'{one.pid} {two.pid}')"
    )
    assert run(keep).outcome == "completed"
    pids = [*(tmp_path / "pids").read_text().split(), (tmp_path / "orphan").read_text()]
    left = [psutil.Process(int(pid)) for pid in pids if psutil.pid_exists(int(pid))]
    assert not living(left)  # whoever adopted the orphan may not have taken notice of its end yet


# ---- Output --------------------------------------------------------------------------------------


def test_what_a_cell_printed_before_it_went_quiet_is_on_disk_within_two_seconds(tmp_path):
    cell = "import time, pathlib\nprint('a word')\npathlib.Path('said').touch()\ntime.sleep(20)"
    runner = Runner(write_notebook(tmp_path / "a.ipynb", cell), tmp_path / "out.ipynb")
    wait_for((tmp_path / "said").exists, 30, "the cell has printed")
    wait_for(lambda: "a word" in _text(tmp_path / "out.ipynb"), 2, "it is on disk")
    runner.process.send_signal(signal.SIGTERM)
    runner.told()


def test_long_output_keeps_its_ends_and_goes_whole_into_a_file(run, out, tmp_path):
    lines = 120_000
    logs = tmp_path / "logs"
    told = run((f"for i in range({lines}): print('line %07d' % i)", "action"), spill_folder=logs)
    assert told.outcome == "completed"
    assert out.stat().st_size < 600_000
    text = shown(out)
    assert text.startswith("line 0000000\n")
    assert f"line {lines - 1:07d}\n" in text
    assert "characters left out; the whole text is in ../logs/a-01-action.log" in text
    assert [p.name for p in logs.iterdir()] == ["a-01-action.log"]
    whole = (logs / "a-01-action.log").read_text()
    assert whole == "".join(f"line {i:07d}\n" for i in range(lines))


def test_a_long_value_is_shortened_too(run, out, tmp_path):
    assert run("print('x')\n'y' * 500_000", spill_folder=tmp_path / "logs").outcome == "completed"
    assert out.stat().st_size < 300_000
    (log,) = (tmp_path / "logs").iterdir()
    assert "y" * 500_000 in log.read_text()


def test_a_flood_of_flushed_chunks_becomes_one_output(run, out):
    told = run("for i in range(5000): print(i % 10, end='', flush=True)")
    assert told.outcome == "completed"
    (flood,) = read(out).cells[1].outputs
    assert flood.text == "0123456789" * 500


def test_progress_bars_and_endless_lines_take_no_quadratic_time(run, out, tmp_path):
    """256 kB without a newline took nbclient 65 s; here it is 20 MB, and a bar of 100,000 steps."""
    started_s = time.monotonic()
    told = run(
        "print('z' * 20_000_000)",
        "for i in range(100_000): print(f'\\r{i:>6} of 100000', end='')",
        spill_folder=tmp_path / "logs",
    )
    assert told.outcome == "completed"
    assert time.monotonic() - started_s < 30
    bar = read(out).cells[2].outputs
    assert [o.text for o in bar] == [" 99999 of 100000"]


def test_time_grows_with_the_text_and_not_with_its_square():
    def seconds(chunks):
        started_s = time.process_time()
        text = KeptText(HEAD_CHARS, TAIL_CHARS)
        for _ in range(chunks):
            text.add("\r" + "x" * 50)
            text.add("y" * 50)
        text.render(str)
        return time.process_time() - started_s

    seconds(1000)
    assert seconds(80_000) < 30 * max(seconds(8_000), 0.005)


@pytest.mark.parametrize(
    ("chunks", "seen"),
    [
        (["ab\rc"], "c"),
        (["ab\r", "c"], "c"),
        (["ab\r"], "ab"),
        (["ab\r", "\n"], "ab\n"),
        (["ab\r\ncd\r\n"], "ab\ncd\n"),
        (["one\nab", "\rc", "d\re\nnext"], "one\ne\nnext"),
        (["\rab"], "ab"),
        (["a\r\rb"], "b"),
        (["a\r", "\r", "\rb\r"], "b"),
        (["", "\n", ""], "\n"),
    ],
)
def test_carriage_returns_show_what_a_terminal_shows(chunks, seen):
    text = KeptText(1000, 1000)
    for chunk in chunks:
        text.add(chunk)
    assert text.render(str) == seen


def test_both_ends_are_kept_and_what_is_left_out_is_counted():
    text = KeptText(10, 10)
    for number in range(100):
        text.add(f"{number:02d}\n")
    kept = text.render(lambda omitted: f"<{omitted}>")
    assert kept.startswith("00\n01\n02\n0<")
    assert kept.endswith("97\n98\n99\n")
    assert len(kept.replace(f"<{text.omitted_chars}>", "")) + text.omitted_chars == 300


def test_streams_that_alternate_stay_in_order_and_few(tmp_path):
    spill = SpillFile(tmp_path / "logs", "cell", tmp_path, pytest.fail)
    output, outputs = CellOutput(spill), []
    for number in range(3000):
        output.add(outputs, "stdout", f"{number} out\n")
        output.add(outputs, "stderr", f"{number} err\n")
    output.close(outputs)
    assert [o.name for o in outputs[:4]] == ["stdout", "stderr", "stdout", "stderr"]
    assert outputs[2].text == "1 out\n"
    assert len(outputs) <= 202
    assert "2999 err" in "".join(o.text for o in outputs)


def test_a_spill_that_cannot_be_written_is_told_and_stops_nothing(run, out, tmp_path):
    (tmp_path / "logs").write_text("a file where the folder should be")
    told = run("print('x' * 1_000_000)", spill_folder=tmp_path / "logs")
    assert told.outcome == "completed"
    assert told.saved
    assert "the whole output of a-01-" in told.save_errors[0]
    assert "the whole text is lost" in shown(out)


def test_displays_are_updated_and_cleared_as_in_a_notebook(run, out):
    told = run(
        "from IPython.display import clear_output, display\n"
        "print('gone'); clear_output(wait=True); print('kept')\n"
        "handle = display('first', display_id=True)\nprint('after')\nhandle.update('second')",
    )
    assert told.outcome == "completed"
    outputs = read(out).cells[1].outputs
    assert [o.output_type for o in outputs] == ["stream", "display_data", "stream"]
    assert shown(out) == "kept\n'second'after\nlast\n"


def test_a_widget_leaves_its_text_and_nothing_that_needs_an_extension(run, out):
    assert run("import ipywidgets\nipywidgets.IntSlider(value=7)").outcome == "completed"
    assert "IntSlider(value=7)" in shown(out)
    text = out.read_text()
    assert "widget-view+json" not in text
    assert "widgets" not in read(out).metadata


def test_text_that_is_no_unicode_does_not_cost_the_record(run, out):
    told = run(r"print('\udc80'); import math; display({'application/json': math.nan}, raw=True)")
    assert told.outcome == "completed"
    assert told.save_errors == ()
    assert states(out) == ["completed"] * 3


# ---- Kernels, progress, parameters ---------------------------------------------------------------


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


# ---- The plain papermill command -----------------------------------------------------------------


@pytest.fixture
def papermill(tmp_path):
    """The papermill command of an environment in which this package is installed, however this
    one came by it: the entry point is declared in a folder of its own."""
    declared = tmp_path / "site" / "recover_runbooks.egg-info"
    declared.mkdir(parents=True)
    (declared / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: recover-runbooks\n")
    (declared / "entry_points.txt").write_text(
        "[papermill.engine]\nrunbook = helpers.book.papermill_entry:runbook\n"
    )

    def command(*arguments: str | Path):
        return subprocess.Popen(
            [sys.executable, "-m", "papermill", "--no-progress-bar", *map(str, arguments)],
            cwd=tmp_path,
            env=with_path(declared.parent),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    return command


def test_the_plain_command_uses_our_engine_for_a_runbook(tmp_path, papermill):
    kill = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    cells = [("print(x)", "bind"), kill, "print('never')"]
    write_notebook(tmp_path / "a.ipynb", *cells, parameters="x: int | None = None")
    process = papermill("a.ipynb", "out.ipynb", "-p", "x", "3")
    said, _ = process.communicate()
    assert process.returncode == 138
    assert "unknown parameter" not in said
    assert states(tmp_path / "out.ipynb") == ["completed", "completed", "failed", "pending"]
    assert shown(tmp_path / "out.ipynb") == "3\n"
    assert read(tmp_path / "out.ipynb").metadata.papermill.outcome == "kernel_died"


def test_the_plain_command_saves_a_relative_path_atomically(tmp_path, papermill):
    write_notebook(tmp_path / "a.ipynb", ("1", "bind"))
    out = tmp_path / "out.ipynb"
    out.write_text("{}")
    held = out.open()  # keeps the inode from being used again
    before = out.stat().st_ino
    process = papermill("a.ipynb", "out.ipynb")
    assert process.wait() == 0
    assert out.stat().st_ino != before
    assert held.read() == "{}"
    held.close()
    process.communicate()


def test_the_plain_commands_options_for_what_cells_print_work(tmp_path, papermill):
    cell = "import sys\nfor i in range(3): print(i, flush=True)\nprint('oh', file=sys.stderr)"
    write_notebook(tmp_path / "a.ipynb", (cell, "bind"))
    files = ("--stdout-file", "one.txt", "--stderr-file", "two.txt", "--log-output")
    process = papermill("a.ipynb", "out.ipynb", *files)
    said, _ = process.communicate()
    assert process.returncode == 0
    assert (tmp_path / "one.txt").read_text() == "0\n1\n2\n"
    assert (tmp_path / "two.txt").read_text() == "oh\n"
    assert "oh" in said


def test_the_plain_command_passes_other_notebooks_on(tmp_path, papermill):
    write_notebook(tmp_path / "a.ipynb", "!false", "print(x)")
    process = papermill("a.ipynb", "out.ipynb", "-p", "x", "3")
    process.communicate()
    assert process.returncode == 0
    assert "outcome" not in read(tmp_path / "out.ipynb").metadata.papermill
    assert shown(tmp_path / "out.ipynb") == "3\n"


def test_the_plain_command_refuses_what_it_guessed_wrong(tmp_path, papermill):
    write_notebook(tmp_path / "a.ipynb", ("1", "bind"), parameters="commit: str = ''")
    process = papermill("a.ipynb", "out.ipynb", "-p", "commit", "12e4567")
    said, _ = process.communicate()
    assert process.returncode == 1
    assert "commit is inf, which is not JSON" in said
    assert not (tmp_path / "out.ipynb").exists()
    process = papermill("a.ipynb", "out.ipynb", "-r", "commit", "00123")
    process.communicate()
    assert process.returncode == 0


def test_the_plain_command_ends_not_well_after_a_polite_exit(tmp_path, papermill):
    write_notebook(tmp_path / "a.ipynb", ("import sys; sys.exit(0)", "bind"), "1")
    process = papermill("a.ipynb", "out.ipynb")
    said, _ = process.communicate()
    assert process.returncode == 1
    assert "StoppedEarly" in said
    assert states(tmp_path / "out.ipynb") == ["completed", "failed", "pending"]


def test_the_plain_command_takes_sigterm_for_an_interrupt(tmp_path, papermill):
    cell = SLEEPER + "open('cleaned', 'w').close()"
    write_notebook(tmp_path / "a.ipynb", (cell, "bind"), "1")
    process = papermill("a.ipynb", "out.ipynb")
    wait_for(lambda: "begun" in _text(tmp_path / "out.ipynb"), 30, "the cell begins")
    process.terminate()
    process.communicate()
    assert process.returncode != 0
    assert (tmp_path / "cleaned").exists()
    assert states(tmp_path / "out.ipynb") == ["completed", "failed", "pending"]


def test_papermill_can_be_imported_after_our_entry_point_too():
    code = (
        "import helpers.book.papermill_entry, papermill\n"
        "from papermill.engines import papermill_engines\n"
        "print(papermill_engines.get_engine(None).nb_language({}, 'python'))"
    )
    code = code.replace("{}", "__import__('nbformat').v4.new_notebook()")
    done = subprocess.run([sys.executable, "-c", code], env=with_path(), capture_output=True)
    assert done.stdout.strip() == b"python", done.stderr


def _text(path: Path) -> str:
    """What a notebook's outputs hold just now; it is replaced all the time and never half there."""
    return shown(path) if path.exists() else ""
