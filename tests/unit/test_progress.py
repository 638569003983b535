"""The live line and the approval button: what a person sees, and what the archive keeps."""

import io
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from helpers.book.progress import Progress

PROJECT = Path(__file__).resolve().parents[2]


def test_progress_in_a_terminal_prints_seldom_and_ends_with_one_line():
    out = io.StringIO()
    progress = Progress("10_environment", every_s=60.0, terminal=out)
    with progress.phase("act"):
        for step in range(1000):
            progress.say(f"installing \x1b[31m{step}", step / 1000)
    lines = out.getvalue().splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("10_environment: … installing 0 — 0%, ")
    assert lines[1].startswith("10_environment: ✓ done — ")


def test_progress_says_when_it_was_stopped():
    out = io.StringIO()
    progress = Progress("x", terminal=out)

    def work():
        with progress.phase("act"):
            progress.say("copying", None)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work()
    assert out.getvalue().splitlines()[-1].startswith("x: ✗ stopped: copying — ")
    progress.end()  # nothing is going on: nothing is said
    assert len(out.getvalue().splitlines()) == 2


def test_progress_in_a_notebook_is_one_output_that_ends_as_a_line(tmp_path):
    source = (
        "from helpers.book.progress import Progress\n"
        "import time\n"
        "live = Progress('10_environment', every_s=0.05)\n"
        "with live.phase('act'):\n"
        "    for n in range(10):\n"
        "        live.say(f'copying {n}', n / 10)\n"
        "        time.sleep(0.02)\n"
        "with live.phase('judge'):\n"
        "    pass\n"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(PROJECT)}}).execute()
    outputs = notebook.cells[0].outputs
    assert len(outputs) == 1
    assert outputs[0].data["text/plain"].startswith("✓ done — ")
    assert outputs[0].data["text/html"].startswith("<div>✓ done — ")


def test_the_approval_button_calls_once():
    clicks = []
    source = (
        "from helpers.book.approval import offer_approval\n"
        "from helpers.plan import Plan\n"
        "import ipywidgets\n"
        "clicks = []\n"
        "offer_approval(Plan(stage='x', why='y'), lambda: clicks.append(1))\n"
        "buttons = [w for w in ipywidgets.Widget.get_manager_state()['state'].values()\n"
        "           if w['model_name'] == 'ButtonModel']\n"
        "assert buttons[0]['state']['description'].startswith('Approve 0 changes (plan ')\n"
        "button = next(w for w in ipywidgets.widgets.widget._instances.values()\n"
        "              if isinstance(w, ipywidgets.Button))\n"
        "button.click(); button.click()\n"
        "print(len(clicks))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1] == "1", done.stderr
    assert clicks == []
