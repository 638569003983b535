"""One at a time on a container, whatever the target file is called and wherever the runs go."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
import yaml

from helpers.book.chain import run_chain
from helpers.book.opening import open_stage
from helpers.errors import PreconditionFailed
from helpers.record.run_folder import RunFolder, StageState
from helpers.recover.container_lock import Holder, container_key, hold, holder
from helpers.sandbox.folder import SandboxFolder
from helpers.target import TARGETS_FOLDER, Target, load_target
from tests.integration.conftest import RECOVER, tree_hashes
from tests.testbed.rooms import make_target

STAGE = "30_verify_torch"
HOLDS = """
import sys
import time
from helpers.recover.container_lock import container_key, hold
from helpers.target import load_target
target = load_target(sys.argv[1])
with hold(container_key(target), name=target.name, run_id="20261130T000000Z-other-0001"):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("RECOVER_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("RECOVER_BATCH", "1")
    root = tmp_path / "root"
    (root / "training").mkdir(parents=True)
    (root / "machine-id").write_text("it-is-me\n")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / "venv"], check=True)
    return root


def declare(root, name, reach=None):
    """A target file of that name for the container in ``root``."""
    declared = make_target(root).model_dump(mode="json") | {"name": name}
    declared["reach"]["root"] = str(reach or root)
    path = root.parent / f"{name}.yaml"
    path.write_text(yaml.safe_dump(declared))
    return str(path)


@pytest.fixture
def other(root):
    """Another process that holds the container by another target file."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, declare(root, "another")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def chain(target, mode="run"):
    return run_chain(
        target,
        mode=mode,
        approved=True,
        stages=(STAGE,),
        on_start=lambda _folder: None,
        watch=lambda _event: None,
    )


def taken_over(folder):
    return [e["holder"] for e in folder.journal.events() if e["event"] == "lock_taken_over"]


def test_a_run_is_refused_and_told_who_is_at_the_container(root, other):
    (root.parent / "link").symlink_to(root)
    before = tree_hashes(root)
    with pytest.raises(PreconditionFailed, match=f"run 20261130T.*process {other.pid} of"):
        chain(declare(root, "mine", reach=root.parent / "link"))
    assert not list((root.parent / "runs").iterdir()), "no run was begun"
    assert tree_hashes(root) == before


def test_a_plan_and_a_look_shut_nobody_out(root, other):
    folder, *_ = chain(declare(root, "mine"), mode="plan")
    assert folder.stage_record(STAGE).state is not StageState.FAILED
    stage = open_stage(STAGE, target=declare(root, "mine"), run=None, apply=True)
    stage.look()
    stage.plan()


def test_a_stage_stepped_by_hand_takes_it_as_long_as_it_acts(root, other):
    target = declare(root, "mine")
    stage = open_stage(STAGE, target=target, run=None, apply=True)
    stage.plan()
    with pytest.raises(PreconditionFailed, match=f"process {other.pid} of") as caught:
        stage.act()
    assert caught.value.changed == "no"
    other.communicate("")  # it comes to its end
    stage.act()
    assert stage.evidence["applied"]
    assert holder(container_key(load_target(target))) is None
    with hold(container_key(load_target(target)), name="a test", run_id=None) as held:
        assert held.before is None


def test_a_chains_own_stage_goes_on_and_the_lock_is_free_afterwards(root):
    target = declare(root, "mine")
    folder, *_ = chain(target)
    assert folder.evidence(STAGE)["applied"], folder.stage_record(STAGE)
    assert holder(container_key(load_target(target))) is None
    assert taken_over(folder) == []


def test_a_notebook_beside_a_chain_does_not_belong_to_it(root, other):
    target = declare(root, "mine")
    stage = open_stage(STAGE, target=target, run=None, apply=True)
    key = container_key(load_target(target))
    told = holder(key).model_copy(update={"run_id": stage.evidence["run_id"]})
    path = root.parent / "state" / "recover-runbooks" / "locks" / f"{key}.holder.json"
    path.write_text(told.model_dump_json())  # the chain of the very run that the notebook was given
    with pytest.raises(PreconditionFailed, match="is held by run"):
        stage.act()


def test_a_dead_holders_lock_is_taken_and_noted(root, other):
    target = declare(root, "mine")
    died = holder(container_key(load_target(target)))
    assert died.lives
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert not died.lives
    folder, *_ = chain(target)
    assert [Holder.model_validate(who) for who in taken_over(folder)] == [died]
    again, *_ = chain(target)
    assert taken_over(again) == []


def test_a_stage_alone_notes_a_dead_holder_too(root, other):
    other.kill()
    other.wait()
    stage = open_stage(STAGE, target=declare(root, "mine"), run=None, apply=True)
    stage.act()
    assert len(taken_over(RunFolder.open(root.parent / "runs", "latest"))) == 1


def test_a_lock_file_that_was_removed_under_its_holder_lets_nobody_in(root, other):
    for path in (root.parent / "state" / "recover-runbooks" / "locks").glob("*.lock"):
        path.unlink()
    with pytest.raises(PreconditionFailed, match=f"process {other.pid} of"):
        chain(declare(root, "mine"))


def test_another_process_with_the_number_of_a_dead_one_is_not_taken_for_it(root, other):
    who = holder(container_key(load_target(declare(root, "mine"))))
    assert not who.model_copy(update={"process_started_s": 1.0}).lives
    assert not who.model_copy(update={"boot_id": "another"}).lives
    assert not who.model_copy(update={"machine": "another"}).lives


def test_a_sandbox_is_not_made_anew_under_a_run(root, other):
    with (
        pytest.raises(PreconditionFailed, match=f"process {other.pid} of"),
        SandboxFolder(root).locked(),
    ):
        pass


def test_a_container_behind_a_host_has_one_lock_whatever_names_lead_to_it(tmp_path, monkeypatch):
    config = tmp_path / "ssh_config"
    config.write_text("Host pve1\n HostName 192.0.2.7\n User admin\n")
    declared = yaml.safe_load((TARGETS_FOLDER / "ct200.yaml").read_text())

    def key(**reach):
        way = {**declared["reach"], "ssh_config": str(config), **reach}
        return container_key(Target.model_validate({**declared, "reach": way}))

    assert key(host="pve1") == key(host="192.0.2.7", user="root") == key(host="pve1", port=22)
    assert key(host="pve1") != key(host="pve1", vmid=201)
    assert key(host="pve1") != key(host="pve1", port=2222)
    assert key(host="pve1") != key(host="192.0.2.8")


def test_locks_that_cannot_be_kept_are_said(root, monkeypatch):
    (root.parent / "a file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(root.parent / "a file"))
    with pytest.raises(PreconditionFailed, match="Locks cannot be kept"):
        chain(declare(root, "mine"))


def test_the_state_folder_is_the_operators(root):
    key = container_key(load_target(declare(root, "mine")))
    with hold(key, name="a test", run_id="a-run"):
        assert holder(key).pid == os.getpid()
        assert (root.parent / "state" / "recover-runbooks" / "locks" / f"{key}.lock").exists()


def status(run):
    program = (*RECOVER, "status", run)
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout


def test_what_a_killed_runner_left_open_is_closed_by_whoever_asks(root, tmp_path):
    run = (*RECOVER, "run", declare(root, "mine"))
    runner = subprocess.Popen(run, stdout=subprocess.DEVNULL)
    try:
        runs = tmp_path / "runs"
        wait_for(
            lambda: any("stage_started" in p.read_text() for p in runs.glob("*/journal.jsonl"))
        )
        family = psutil.Process(runner.pid).children(recursive=True)
        for process in family:
            process.suspend()  # the stage goes on for as long as this test needs
        folder = RunFolder.open(runs, "latest")
        lines = len(list(folder.journal.events()))
        assert "not ended" in status(folder.asked.run_id)
        assert not any(e.get("by") == "status" for e in folder.journal.events())
    finally:
        runner.kill()
        runner.wait()
        for process in family:
            process.kill()
    said = status(folder.asked.run_id)
    assert "what it left open has been closed" in said
    assert "INTERRUPTED" in said
    assert len(list(folder.journal.events())) > lines
    assert folder.stage_record("00_preflight").state is StageState.INTERRUPTED
    assert folder.journal.problems() == []
    assert "what it left open" not in status(folder.asked.run_id)


def wait_for(condition):
    deadline_s = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
