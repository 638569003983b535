"""The plain papermill command, which uses our engine for our runbooks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.notebooks.notebook_kit import (
    read,
    shown,
    states,
    wait_for,
    with_path,
    write_notebook,
)

SLEEPER = "import time\ntry:\n    print('begun', flush=True)\n    time.sleep(60)\nfinally:\n    "


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
