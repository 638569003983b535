"""What answers must be what the target declares: otherwise nothing is looked at, planned or changed."""

import pytest
import yaml

from helpers.book.opening import open_stage
from helpers.errors import WrongTarget
from helpers.record.run_folder import RunFolder, StageState
from helpers.target import TARGETS_FOLDER
from tests.integration.conftest import tree_hashes

STAGES = (
    "10_environment",
    "20_sources",
    "30_verify_torch",
    "40_warm_cache",
    "50_threads",
    "60_benchmark",
)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A target whose container is somebody else's: another marker stands in it."""
    monkeypatch.setenv("RECOVER_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("RECOVER_BATCH", "1")
    root = tmp_path / "somebody's"
    (root / "container" / "etc").mkdir(parents=True)
    (root / "container" / "etc" / "machine-id").write_text("another\n")
    declared = yaml.safe_load((TARGETS_FOLDER / "sandbox.yaml").read_text())
    declared["reach"]["root"] = str(root)
    (tmp_path / "target.yaml").write_text(yaml.safe_dump(declared))
    return tmp_path / "target.yaml", root


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("marker", ["another", None])
def test_a_stage_alone_refuses_another_container(elsewhere, name, marker):
    target, root = elsewhere
    if marker is None:
        (root / "container" / "etc" / "machine-id").unlink()
    before = tree_hashes(root)
    stage = open_stage(name, target=str(target), run=None, apply=True)
    for step in (stage.look, stage.plan, stage.act):
        with pytest.raises(WrongTarget, match="not the declared container") as caught:
            step()
        assert caught.value.changed == "no"
    assert tree_hashes(root) == before
    folder = RunFolder.open(target.parent / "runs", "latest")
    assert folder.stage_record(name).state is StageState.FAILED


def test_the_report_needs_no_container(elsewhere):
    target, _root = elsewhere
    stage = open_stage("90_report", target=str(target), run=None, apply=False)
    stage.look()
    stage.act()
    stage.judge()
    stage.close()
    assert (RunFolder.open(target.parent / "runs", "latest").path / "report.html").exists()
