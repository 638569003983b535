"""Signals, and the end of the runner."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.notebooks.notebook_kit import (
    Runner,
    errors,
    living,
    shown,
    states,
    wait_for,
    write_notebook,
)

SLEEPER = "import time\ntry:\n    print('begun', flush=True)\n    time.sleep(60)\nfinally:\n    "


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


def _text(path: Path) -> str:
    """What a notebook's outputs hold just now; it is replaced all the time and never half there."""
    return shown(path) if path.exists() else ""
