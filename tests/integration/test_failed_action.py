"""An action that did not come to its end is recorded by how it ended, whatever is known afterwards."""

import os
import subprocess
import sys

import pytest
import yaml

from helpers.book.opening import open_stage
from helpers.errors import PayloadBroken, PreconditionFailed, VerificationFailed
from helpers.record.run_folder import RunFolder, StageState
from tests.testbed.rooms import make_target

NAME = "40_warm_cache"


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("RECOVER_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("RECOVER_BATCH", "1")
    root = tmp_path / "root"
    (root / "training").mkdir(parents=True)
    (root / "training" / "workload.py").write_text("")
    (root / "machine-id").write_text("it-is-me\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / "venv"], check=True)
    return root


@pytest.fixture
def stage(root):
    declared = make_target(root).model_dump(mode="json")
    (root / "target.yaml").write_text(yaml.safe_dump(declared))
    return open_stage(NAME, target=str(root / "target.yaml"), run=None, apply=True)


def recorded(root):
    return RunFolder.open(root.parent / "runs", "latest").stage_record(NAME)


def test_an_action_that_failed_has_failed_though_nothing_was_measured(root, stage):
    stage.plan()
    sleeper = subprocess.Popen(
        [root / "venv" / "bin" / "python", "-c", "import time; time.sleep(60)"]
    )
    try:
        with pytest.raises(PreconditionFailed, match="Processes run from the environment"):
            stage.act()
    finally:
        sleeper.kill()
        sleeper.wait()
    assert recorded(root).state is StageState.FAILED
    with pytest.raises(VerificationFailed) as caught:
        stage.close()
    assert caught.value.verdict.status.value == "unknown"
    assert caught.value.changed == "no"
    assert recorded(root).state is StageState.FAILED
    assert "The action failed" in recorded(root).summary


def test_an_action_whose_end_nobody_saw_is_unknown(root, stage):
    torch = next((root / "venv").glob("lib/python3*/site-packages")) / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text("import os\nos.kill(os.getpid(), 9)\n")
    stage.plan()
    with pytest.raises(PayloadBroken):
        stage.act()
    assert recorded(root).state is StageState.UNKNOWN
    with pytest.raises(VerificationFailed, match="not known how the action ended"):
        stage.close()
    assert recorded(root).state is StageState.UNKNOWN


def test_an_interrupted_action_is_interrupted(root, stage, monkeypatch):
    torch = next((root / "venv").glob("lib/python3*/site-packages")) / "torch"
    torch.mkdir()
    (torch / "__init__.py").write_text(
        "import os, signal, time\nos.kill(int(os.environ['OPERATOR']), signal.SIGINT)\ntime.sleep(60)\n"
    )
    told = f"import os; os.environ['OPERATOR'] = '{os.getpid()}'\n"
    (torch.parent / "operator.pth").write_text(told)
    stage.plan()
    with pytest.raises(KeyboardInterrupt):
        stage.act()
    with pytest.raises(VerificationFailed, match="interrupted"):
        stage.close()
    assert recorded(root).state is StageState.INTERRUPTED
