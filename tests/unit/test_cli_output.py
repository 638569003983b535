"""What the command line says of runs, whatever lies in the runs' folder."""

import io
import sys

import pytest
from rich.console import Console

from helpers.cli_output import _next_step, print_run, print_runs, program
from helpers.record.outcome import EXIT_CODES
from helpers.record.run_folder import Outcome, RunFolder
from tests.testbed.run_folders import asked


def printed(what, *arguments):
    out = io.StringIO()
    what(Console(file=out, width=200), *arguments)
    return out.getvalue()


def test_a_run_of_another_version_does_not_hide_the_others(tmp_path):
    whole = RunFolder.create(tmp_path, asked())
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text('{"schema": 99}')
    text = printed(print_runs, tmp_path)
    assert whole.asked.run_id in text
    assert "broken" in text
    assert "unreadable" in text


def test_a_run_without_an_end_is_not_called_anything_better(tmp_path):
    folder = RunFolder.create(tmp_path, asked())
    assert "not ended: it is going on, or its runner died" in printed(print_run, folder)
    folder.journal.append("run_ended", outcome="recovered", summary="")
    assert "RECOVERED" in printed(print_run, folder)


def test_no_runs_is_said(tmp_path):
    assert "No runs in" in printed(print_runs, tmp_path)


@pytest.mark.parametrize("outcome", [o for o in Outcome if o in EXIT_CODES])
def test_every_end_but_a_good_one_says_what_to_do_next(tmp_path, outcome, monkeypatch):
    folder = RunFolder.create(tmp_path, asked())
    monkeypatch.setattr(sys, "argv", ["/nowhere/bin/recover"])
    following = _next_step(folder, outcome, "my target.yaml")
    if outcome is Outcome.RECOVERED:
        assert following == ""
    elif outcome is Outcome.PLANNED:
        assert "/nowhere/bin/recover run 'my target.yaml' --yes" in following
    else:
        assert f"/nowhere/bin/recover resume {folder.asked.run_id} --yes" in following


def test_the_next_step_can_be_typed_as_this_program_was(tmp_path, monkeypatch):
    (tmp_path / "bin").mkdir()
    started = tmp_path / "bin" / "recover"
    started.write_text("#!/bin/sh\n")
    started.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bin/recover"])
    assert program() == "bin/recover"
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert program() == "recover"
    monkeypatch.setattr(sys, "argv", ["-c"])
    assert program() == "recover"


def test_a_failed_stage_says_its_own_hint_first(tmp_path):
    folder = RunFolder.create(tmp_path, asked())
    folder.write_evidence("10_environment", {"error": {"hint": "Free the disk."}})
    said = _next_step(folder, Outcome.FAILED, "sandbox")
    assert said.startswith("Free the disk. Then: ")
