"""The main job, end to end, with real torch: look, refuse, recover, find nothing left to do, stop in time.

The tests build on each other in the order they are written: one broken sandbox goes through its life.
"""

import getpass
import json
import os
import re
import signal
import statistics
import subprocess
import time
from pathlib import Path

import nbformat
import psutil
import pytest
import yaml

from helpers.record.run_folder import Outcome, RunFolder, StageState
from helpers.record.seal import verify
from helpers.sandbox.create import create, describe
from helpers.target import load_target
from tests.integration.conftest import RECOVER, tree_hashes

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def environ(runs):
    return {**os.environ, "RECOVER_RUNS": str(runs), "COLUMNS": "200"}


@pytest.fixture(scope="module")
def target(broken_sandbox):
    return str(broken_sandbox / "sandbox.yaml")


def recover(environ, *arguments):
    done = subprocess.run(
        [*RECOVER, *arguments], env=environ, capture_output=True, text=True, timeout=900
    )
    print(done.stdout, done.stderr)
    return done


def latest(runs) -> RunFolder:
    return RunFolder.open(runs, "latest")


def states(folder):
    return {r.name: r.state for r in folder.stage_records()}


def test_the_log_tells_of_the_time_before_and_after_the_break(broken_sandbox):
    target = load_target(str(broken_sandbox / "sandbox.yaml"))
    log = Path(target.training.log).read_text()
    found = [float(m["tok_per_s"]) for m in re.finditer(target.training.throughput_pattern, log)]
    before, after = found[:-12], found[-12:]
    assert len(before) >= 4
    assert statistics.median(after) < 0.6 * statistics.median(before)


def test_a_plan_shows_every_change_and_makes_none(environ, target, broken_sandbox, runs):
    before = tree_hashes(broken_sandbox)
    done = recover(environ, "plan", target)
    assert done.returncode == 0
    assert "PLANNED" in done.stdout
    for word in ("set the old environment aside", "dflash_model.py", "torchinductor", "undo: mv"):
        assert word in done.stdout
    assert tree_hashes(broken_sandbox) == before
    assert latest(runs).outcome is Outcome.PLANNED


def test_the_plan_has_named_what_is_wrong(runs):
    findings = latest(runs).evidence("00_preflight")["findings"]
    wrong = {f["name"] for f in findings if f["status"] not in ("pass", "unknown")}
    text = json.dumps(findings)
    assert wrong
    for word in ("sglang", "dflash_model.py", "is_fx_symbolic_tracing"):
        assert word in text


def test_without_approval_it_stops_before_the_first_change(environ, target, broken_sandbox, runs):
    before = tree_hashes(broken_sandbox)
    done = recover(environ, "run", target)
    assert done.returncode == 5
    assert "NEEDS_APPROVAL" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert tree_hashes(broken_sandbox) == before
    assert states(latest(runs))["10_environment"] is StageState.NEEDS_APPROVAL
    assert states(latest(runs))["20_sources"] is StageState.PENDING


def test_approved_it_recovers(environ, target, broken_sandbox, runs):
    done = recover(environ, "run", target, "--yes")
    assert done.returncode == 0, done.stdout
    assert "RECOVERED" in done.stdout
    folder = latest(runs)
    assert set(states(folder).values()) == {StageState.PASSED}
    container = broken_sandbox / "container" / "root"
    assert [p.name for p in container.glob("venv.set-aside-*")], "the old environment is kept"
    assert [p.name for p in (container / "training").glob("dflash_model.py.set-aside-*")]
    assert not list(container.glob("venv/lib/*/site-packages/sglang*"))
    report = (folder.path / "report.html").read_text()
    assert "recovered" in report.lower()
    assert folder.journal.problems() == []
    assert verify(folder).whole


def test_the_executed_notebooks_are_a_readable_record(runs):
    folder = latest(runs)
    for stage in folder.asked.stages:
        executed = nbformat.read(folder.notebook(stage), as_version=4)
        for cell in executed.cells:
            assert not [o for o in cell.get("outputs", []) if o.output_type == "error"]
        code = [c for c in executed.cells if c.cell_type == "code"]
        assert all(c.execution_count for c in code)
        shown = [o for c in code for o in c.outputs if "data" in o]
        assert all("text/plain" in o.data for o in shown), "readable without HTML"
        bound = next(c for c in code if "bind" in c.metadata.get("tags", []))
        assert len(bound.outputs) == 1, "a cell shows one thing"
    total = sum(p.stat().st_size for p in (folder.path / "notebooks").glob("*.ipynb"))
    assert total <= 2 * 1024 * 1024


def test_a_second_run_finds_nothing_to_change_and_passes(environ, target, broken_sandbox, runs):
    before = tree_hashes(broken_sandbox)
    done = recover(environ, "run", target)  # no approval is needed when there is nothing to approve
    assert done.returncode == 0, done.stdout
    assert "RECOVERED" in done.stdout
    assert tree_hashes(broken_sandbox) == before
    changes = [e for e in latest(runs).journal.events() if e["event"] == "change"]
    assert changes == []


def test_a_baseline_is_recorded_beside_the_one_before(environ, target, broken_sandbox):
    folder = broken_sandbox / "baselines"
    before = {p.name: p.read_bytes() for p in folder.glob("*.json")}
    done = recover(environ, "baseline", "record", target, "--source", "a run has just recovered")
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("*.json")
    assert json.loads(path.read_text())["source"].endswith(f"said by {getpass.getuser()}")
    (aside,) = folder.glob("*.set-aside-*")
    assert before == {path.name: aside.read_bytes()}
    listed = recover(environ, "baseline", "list", target)
    assert "a run has just recovered" in listed.stdout


def test_a_torch_that_cannot_be_had_stops_the_chain_in_stage_30(
    environ, target, broken_sandbox, runs
):
    declared = yaml.safe_load(Path(target).read_text())
    declared["torch"].update(version="2.11.0+cu128", cuda="12.8", available=True, device_count=8)
    wrong = broken_sandbox.parent / "wrong-torch.yaml"
    wrong.write_text(yaml.safe_dump(declared))
    done = recover(environ, "run", str(wrong), "--yes")
    assert done.returncode == 1
    folder = latest(runs)
    found = states(folder)
    assert found["30_verify_torch"] is StageState.FAILED
    assert found["40_warm_cache"] is found["60_benchmark"] is StageState.PENDING
    report = (folder.path / "report.html").read_text()
    assert "pending" in report
    assert "2.11.0+cu128" in report


def test_a_killed_kernel_is_never_completed(environ, target, runs):
    before = set(runs.iterdir())
    running = subprocess.Popen(
        [*RECOVER, "run", target, "--through", "30"], env=environ, stdout=subprocess.PIPE
    )
    kernel = kernel_that_measures(running, runs, before)
    kernel.send_signal(signal.SIGKILL)
    running.communicate(timeout=120)
    assert running.returncode == 4
    folder = latest(runs)
    assert states(folder)["30_verify_torch"] is StageState.UNKNOWN
    assert folder.outcome is Outcome.UNKNOWN
    executed = nbformat.read(folder.notebook("30_verify_torch"), as_version=4)
    by_tag = {
        c.metadata["tags"][0]: c
        for c in executed.cells
        if c.cell_type == "code" and c.metadata.get("tags")
    }
    assert by_tag["action"].metadata.papermill["status"] == "failed"
    for later in ("verification", "close"):
        assert by_tag[later].metadata.papermill["status"] == "pending"


def test_ctrl_c_leaves_an_interrupted_run_and_no_process(environ, target, runs):
    before = set(runs.iterdir())
    running = subprocess.Popen(
        [*RECOVER, "run", target, "--through", "30"], env=environ, stdout=subprocess.PIPE
    )
    kernel_that_measures(running, runs, before)
    family = psutil.Process(running.pid).children(recursive=True)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 130
    assert states(latest(runs))["30_verify_torch"] is StageState.INTERRUPTED
    assert latest(runs).outcome is Outcome.INTERRUPTED
    _, alive = psutil.wait_procs(family, timeout=5)
    assert alive == []


def test_an_interrupted_run_is_resumed_and_only_what_no_longer_holds_is_done_again(
    environ, target, broken_sandbox, runs
):
    folder = latest(runs)
    script = broken_sandbox / "container/root/training/dflash_roles.py"
    script.write_text(script.read_text() + "# by hand\n")
    # As after a new version of the runbook:
    folder.journal.append("stage_started", stage="10_environment", notebook_sha256="0" * 64)
    end = {"state": "passed", "elapsed_s": 1.0, "summary": "", "verdict": "pass"}
    folder.journal.append("stage_ended", stage="10_environment", **end)
    done = recover(environ, "resume", "--yes")
    assert "00_preflight     again: it is always run again" in done.stdout
    assert "10_environment   again: its notebook has changed since" in done.stdout
    assert "20_sources       again: it is not as it was left: replace the script" in done.stdout
    assert "30_verify_torch  again: it was interrupted" in done.stdout
    assert latest(runs).path == folder.path
    assert states(folder)["30_verify_torch"] is StageState.PASSED
    assert done.returncode == 4, "throughput was not asked for, so it is not known"
    assert (folder.path / "notebooks/earlier/30_verify_torch-1.ipynb").exists()

    done = recover(environ, "resume")
    for stage in ("10_environment", "20_sources", "30_verify_torch"):
        assert f"{stage:<16} still holds: not run again" in done.stdout
    assert states(folder)["20_sources"] is StageState.PASSED
    assert folder.journal.problems() == []


def test_what_has_come_to_its_end_is_not_resumed(environ, runs):
    ended = [f for f in map(RunFolder, runs.iterdir()) if f.path.name[0] != "."]
    recovered = next(f for f in ended if f.outcome is Outcome.RECOVERED)
    planned = next(f for f in ended if f.outcome is Outcome.PLANNED)
    for folder, words in ((recovered, "has recovered"), (planned, "was only a plan")):
        done = recover(environ, "resume", folder.asked.run_id)
        assert done.returncode == 2
        assert words in done.stderr


def test_the_next_sandbox_in_a_folder_reuses_what_took_minutes(broken_sandbox):
    report = create(broken_sandbox, [], print)
    how = {step.name: step.how for step in report.steps}
    assert how["environment"] == how["compile cache"] == "reused"
    broken = describe(broken_sandbox)["broken_now"]
    assert broken == {"environment": [], "scripts": [], "compile cache": [], "torch": []}


def kernel_that_measures(running, runs, before):
    """Wait until stage 30 lets the target's own Python compute, and return the kernel that asked it to."""
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline:
        assert running.poll() is None, "the run ended before its stage was reached"
        new = [p for p in runs.iterdir() if p not in before and (p / "run.json").exists()]
        if new and RunFolder(new[0]).stage_record("30_verify_torch").state is StageState.RUNNING:
            for kernel in psutil.Process(running.pid).children():
                if any(is_targets_python(child) for child in kernel.children()):
                    return kernel
        time.sleep(0.1)
    raise AssertionError("stage 30 was not reached")


def is_targets_python(process):
    try:
        return "/venv/bin/python" in process.cmdline()[0]
    except (psutil.Error, IndexError):  # it ended meanwhile
        return False
