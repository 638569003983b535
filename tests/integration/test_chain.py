"""The chain's own word stands whatever becomes of its report."""

import pytest
import yaml

from helpers.book.chain import run_chain
from helpers.record.run_folder import Outcome, RunFolder, StageState
from helpers.target import TARGETS_FOLDER


@pytest.fixture
def target(tmp_path, monkeypatch):
    monkeypatch.setenv("RECOVER_RUNS", str(tmp_path / "runs"))
    declared = yaml.safe_load((TARGETS_FOLDER / "sandbox.yaml").read_text())
    declared["reach"]["root"] = str(tmp_path / "root")
    (tmp_path / "target.yaml").write_text(yaml.safe_dump(declared))
    return str(tmp_path / "target.yaml")


def test_a_report_that_cannot_be_written_is_said_and_the_run_still_ends(target, tmp_path, caplog):
    def in_the_way(folder: RunFolder) -> None:
        (folder.path / "report.html").mkdir()

    folder, outcome, why = run_chain(
        target,
        mode="run",
        approved=False,
        stages=("90_report",),
        on_start=in_the_way,
        watch=lambda event: None,
    )
    assert outcome is Outcome.FAILED
    assert "90_report" in why
    assert folder.outcome is Outcome.FAILED
    assert folder.stage_record("90_report").state is StageState.FAILED
    assert "the report could not be written" in caplog.text


def test_a_record_that_cannot_be_sealed_is_said_and_the_run_still_ends(target, caplog):
    def in_the_way(folder: RunFolder) -> None:
        (folder.path / "manifest.json").mkdir()

    folder, outcome, _ = run_chain(
        target,
        mode="run",
        approved=False,
        stages=("90_report",),
        on_start=in_the_way,
        watch=lambda event: None,
    )
    assert folder.outcome is outcome
    assert folder.stage_record("90_report").state is StageState.PASSED
    assert "the record could not be sealed" in caplog.text
