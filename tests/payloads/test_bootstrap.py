"""A payload sent over standard input leaves nothing behind and runs as if it were a file."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.payloads.conftest import BOOTSTRAP, request, sent


def test_sent_payload_leaves_no_file_and_knows_its_lines(trial, tmp_path, python):
    file = trial('reporter.measured["stdin"] = sys.stdin.read()\nraise ValueError("here")')
    empty = tmp_path / "empty"
    empty.mkdir()
    got = sent("trial", {"count": 1}, python=python, folder=file.parent, cwd=empty,
               env={"HOME": str(empty), "TMPDIR": str(empty)})  # fmt: skip
    assert got.code == 1
    assert got.measured["stdin"] == ""
    assert any("/payload/trial.py" in line for line in got.document["errors"][0]["traceback"])
    assert any(
        'raise ValueError("here")' in line for line in got.document["errors"][0]["traceback"]
    )
    assert list(empty.iterdir()) == []


def test_sent_files_win_over_others_of_the_same_name(trial, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "protocol.py").write_text("raise ImportError('the wrong one')\n")
    file = trial("")
    got = sent("trial", {"count": 1}, folder=file.parent, cwd=other, env={"PYTHONPATH": str(other)})
    assert got.code == 0


def test_large_parameters_travel(trial):
    names = ["x" * 1000] * 1000
    file = trial('reporter.measured["n"] = len(params["names"])')
    assert sent("trial", {"count": 1, "names": names}, folder=file.parent).measured["n"] == 1000


def test_what_was_damaged_on_its_way_is_not_run(trial):
    file = trial("")
    damaged = request("trial", {"count": 1}, file.parent)
    damaged["files"]["protocol.py"] += "#"
    done = subprocess.run(
        [sys.executable, "-B", "-c", BOOTSTRAP],
        input=json.dumps(damaged).encode(),
        capture_output=True,
    )
    assert done.returncode == 1
    assert done.stdout == b""
    assert b"protocol.py was damaged on its way here" in done.stderr


def test_the_bootstrap_survives_any_way_into_a_container():
    assert BOOTSTRAP.isascii()
    assert all(character.isprintable() or character == "\n" for character in BOOTSTRAP)
    assert len(BOOTSTRAP) < 32_000
