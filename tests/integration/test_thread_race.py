"""The fault that a clean environment and git HEAD do not mend, end to end with real torch."""

import json
import os
import subprocess

import pytest
import yaml

from helpers.judge.threads import THREE_LINES
from helpers.record.run_folder import Outcome, RunFolder, StageState
from helpers.sandbox.create import create
from tests.integration.conftest import RECOVER

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def racing_sandbox(tmp_path_factory):
    root = tmp_path_factory.mktemp("racing") / "sandbox"
    create(root, ["thread-race"], print)
    return root


def recover(target, runs):
    environ = {**os.environ, "RECOVER_RUNS": str(runs), "COLUMNS": "200"}
    done = subprocess.run(
        [*RECOVER, "run", str(target), "--yes"],
        env=environ, capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    print(done.stdout, done.stderr)
    return done, RunFolder.open(runs, "latest")


def test_the_repository_says_openly_what_is_emulated(racing_sandbox):
    git = ("git", "-C", str(racing_sandbox / "repository"))
    log = subprocess.run([*git, "log", "--format=%s"], capture_output=True, text=True, check=True)
    assert "EMULATION: towards threads torch 2.13 behaves as torch 2.11 did" in log.stdout
    head = (racing_sandbox / "repository" / "torch_211_threads.py").read_text()
    assert head.startswith('"""EMULATION, for the sandbox only')
    training = (racing_sandbox / "container" / "root" / "logs" / "training.log").read_text()
    assert "Detected that you are using FX" in training, "training's own start races"


def test_the_race_is_named_the_remedy_proven_and_the_run_degraded(racing_sandbox, runs):
    done, folder = recover(racing_sandbox / "sandbox.yaml", runs)
    assert done.returncode == 3
    assert folder.outcome is Outcome.DEGRADED
    states = {r.name: r.state for r in folder.stage_records()}
    assert states["40_warm_cache"] is StageState.PASSED, "all before it is in order"
    assert states["50_threads"] is StageState.FAILED
    assert states["60_benchmark"] is StageState.PENDING
    for line in THREE_LINES:
        assert line in done.stdout
    checks = {c["name"]: c for c in folder.evidence("50_threads")["verdict"]["checks"]}
    assert checks["thread start"]["measured"]["verdict"] == "racy"
    assert checks["thread start"]["measured"]["failed"] == "1 of 1"
    assert checks["remedy: prewarm"]["status"] == "pass"
    assert "prewarm" in (folder.path / "report.html").read_text()


def test_with_the_remedy_declared_it_recovers(racing_sandbox, runs):
    declared = yaml.safe_load((racing_sandbox / "sandbox.yaml").read_text())
    declared["threads"]["remedy"] = "prewarm"
    target = racing_sandbox.parent / "prewarm.yaml"
    target.write_text(yaml.safe_dump(declared))
    done, folder = recover(target, runs)
    assert done.returncode == 0
    assert folder.outcome is Outcome.RECOVERED
    assert folder.evidence("60_benchmark")["measured"]["params"]["prewarm"] is True
    assert "safe" in json.dumps(folder.evidence("50_threads")["verdict"])
