"""What the command line says of runs, whatever lies in the runs' folder."""

import io

from rich.console import Console

from helpers.cli_output import print_run, print_runs
from helpers.record.run_folder import RunFolder
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
    assert "not ended, or its runner died" in printed(print_run, folder)
    folder.journal.append("run_ended", outcome="recovered", summary="")
    assert "RECOVERED" in printed(print_run, folder)


def test_no_runs_is_said(tmp_path):
    assert "No runs in" in printed(print_runs, tmp_path)
