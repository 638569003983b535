"""Stage 00 on a real environment and repository: it sees everything and writes nothing."""

import json
import subprocess
import sys

import pytest
import uv

from helpers.judge.preflight import judge, symptoms
from helpers.recover import preflight
from helpers.recover.workload import device_names, device_text, roles_hash
from helpers.verdict import Status
from tests.testbed.rooms import Surroundings, make_target, tree
from tests.testbed.wheels import write_wheel

HACKED = "import torch.fx._symbolic_trace as t\nt.is_fx_symbolic_tracing = lambda: False\n"


@pytest.fixture
def root(tmp_path):
    """All as declared and committed, a warm cache, and the log of healthy training."""
    venv, repository, training = tmp_path / "venv", tmp_path / "repository", tmp_path / "training"
    wheels = tmp_path / "wheels"
    for name, version in (("tool-a", "2.0"), ("tool-b", "1.0"), ("intruder", "1.0")):
        write_wheel(wheels, name, version)
    subprocess.run(
        [uv.find_uv_bin(), "venv", "--quiet", "--python", sys.executable, venv], check=True
    )
    install(tmp_path, "tool-a", "tool-b")
    repository.mkdir()
    training.mkdir()
    (repository / "model.py").write_text("x = 1\n")
    identity = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    for arguments in (
        ("init", "--quiet"),
        ("add", "."),
        (*identity, "commit", "--quiet", "-m", "x"),
    ):
        subprocess.run(["git", "-C", repository, *arguments], check=True)
    (training / "model.py").write_text("x = 1\n")
    (tmp_path / "machine-id").write_text("it-is-me\n")
    (tmp_path / "cache" / "fxgraph").mkdir(parents=True)
    (tmp_path / "cache" / "fxgraph" / "graph").write_text("compiled")
    (tmp_path / "training.log").write_text("step=1 tok_per_s=990.0\nstep=2 tok_per_s=1010.0\n")
    return tmp_path


def install(root, *packages):
    where = [
        "--python",
        root / "venv" / "bin" / "python",
        "--no-index",
        f"--find-links={root}/wheels",
    ]
    subprocess.run([uv.find_uv_bin(), "pip", "install", "--quiet", *where, *packages], check=True)


def test_a_healthy_environment_is_seen_as_one_and_nothing_is_written(root):
    surroundings, before = Surroundings(make_target(root)), tree(root)
    facts = preflight.look(surroundings.work)
    plan = preflight.plan(surroundings.work, facts)
    assert plan.changes == ()
    measured = preflight.apply(surroundings.work, facts, plan)
    assert tree(root) == before
    assert facts["errors"] == []
    json.dumps(facts, allow_nan=False)
    verdict = judge({"facts": facts, "measured": measured}, surroundings.target)
    assert verdict.status is Status.PASS, verdict.deciding
    assert {
        c.name: c.status
        for c in symptoms(facts, surroundings.target)
        if c.status is not Status.PASS
    } == {}


def test_another_machine_is_not_mistaken_for_the_declared_one(root):
    (root / "machine-id").write_text("somebody-else\n")
    surroundings = Surroundings(make_target(root))
    verdict = judge({"facts": preflight.look(surroundings.work)}, surroundings.target)
    assert verdict.deciding.name == "identity"
    assert verdict.status is Status.FAIL


def test_all_that_is_wrong_is_named(root):
    install(root, "intruder")
    (root / "training" / "model.py").write_text(HACKED)
    (root / "cache" / "fxgraph" / "graph").unlink()
    (root / "training.log").write_text(
        "tok_per_s=1000\n" + "tok_per_s=200\n" * 20 + "RuntimeError: nested\n"
    )
    surroundings = Surroundings(make_target(root))
    facts = preflight.look(surroundings.work)
    found = {c.name: c for c in symptoms(facts, surroundings.target) if c.status is not Status.PASS}
    assert set(found) == {
        "nothing forbidden",
        "scripts as committed",
        "torch's guards left alone",
        "compile cache warm",
        "training throughput",
        "no errors in the training log",
    }
    assert found["training throughput"].measured == "200 tok/s: 20% of 1000"
    assert judge({"facts": facts}, surroundings.target).status is Status.PASS


def test_without_environment_and_repository_it_still_sees_the_rest(root):
    target = make_target(
        root, environment={"venv": f"{root}/none"}, sources={"repository": f"{root}/nowhere"}
    )
    facts = preflight.look(Surroundings(target).work)
    assert "no repository" in facts["repository"]["error"]
    assert facts["packages"]["comparison"] is None
    assert judge({"facts": facts}, target).deciding.name == "repository and ref"


def test_a_process_that_runs_from_the_environment_is_named(root):
    process = subprocess.Popen(
        [root / "venv" / "bin" / "python", "-c", "import time; time.sleep(60)"]
    )
    try:
        facts = preflight.look(Surroundings(make_target(root)).work)
    finally:
        process.kill()
        process.wait()
    check = judge({"facts": facts}, make_target(root))["nothing runs from the environment"]
    assert check.status is Status.FAIL
    assert f"pid {process.pid}" in check.measured[0]


def test_baselines_of_this_device_build_and_workload_are_found(root):
    target = make_target(root)
    machine = preflight.look(Surroundings(target).work)["machine"]
    folder = root / "baselines"
    folder.mkdir()
    mine = {
        "device": device_text(device_names(target, machine), machine["cores"]),
        "torch_build": target.torch.version,
        "roles_hash": roles_hash(target),
        "tok_per_s": 1234.5,
    }
    (folder / "mine.json").write_text(json.dumps(mine))
    (folder / "other.json").write_text(json.dumps({**mine, "device": "another"}))
    (folder / "torn.json").write_text('{"schema": ')
    baselines = preflight.look(Surroundings(target).work)["baselines"]
    assert [(b["file"], b.get("tok_per_s")) for b in baselines] == [
        ("mine.json", 1234.5),
        ("torn.json", None),
    ]
