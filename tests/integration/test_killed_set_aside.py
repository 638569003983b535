"""A set-aside that was killed half-way: found, said, finished and undone, on real environments."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import yaml

from helpers.judge import environment as judge_environment
from helpers.reach.payload import PAYLOADS_FOLDER
from helpers.recover import environment, set_aside
from helpers.verdict import Status
from tests.integration.test_environment import (
    contents,
    make_venv,
    rebuild,
    root,
    said_by,
    sources,
)
from tests.testbed.rooms import RUN_ID, Surroundings, make_target, tree

__all__ = ["root", "sources"]  # fixtures


KILLED = """
import sys, yaml
from pathlib import Path
from helpers.recover import environment
from helpers.target import Target
from tests.testbed.rooms import Surroundings
target = Target.model_validate(yaml.safe_load(Path(sys.argv[1]).read_text()))
work = Surroundings(target, run_id="killed-run").work
facts = environment.look(work)
environment.apply(work, facts, environment.plan(work, facts))
"""


def kill_while_it_sets_aside(root: Path, target, at: str) -> Path:
    """Kill stage 10 for good when it comes to rewrite one file; return the orphan it leaves.

    A pipe that nobody reads lies where that file's new content is written: the stage waits there.
    """
    trap, aside = root / "venv" / "bin" / f".{at}.part", root / "venv.set-aside-killed-run"
    os.mkfifo(trap)
    (root / "target.yaml").write_text(yaml.safe_dump(target.model_dump(mode="json")))
    stage = subprocess.Popen([sys.executable, "-c", KILLED, root / "target.yaml"])
    waits = aside / "bin" / trap.name
    while not waits.exists():
        assert stage.poll() is None
        time.sleep(0.02)
    time.sleep(0.2)
    family = [*psutil.Process(stage.pid).children(recursive=True), psutil.Process(stage.pid)]
    for process in reversed(family):
        process.kill()
    stage.wait()
    psutil.wait_procs(family)
    waits.unlink()
    (root / "target.yaml").unlink()
    return aside


def names_of(found):
    return [(Path(one["path"]).name, len(one["left"])) for one in found["venv"]["unfinished"]]


@pytest.mark.parametrize("at", ["activate", "tool-b"])  # before any file, and between two
def test_a_set_aside_that_was_killed_is_found_and_finished_by_the_next_run(root, sources, at):
    make_venv(root / "venv", sources, "tool-a==1.0", "tool-b")
    target = make_target(root)
    scripts = {p.name for p in (root / "venv" / "bin").iterdir()}
    aside = kill_while_it_sets_aside(root, target, at)
    assert not (root / "venv").exists()
    assert {p.name for p in (aside / "bin").iterdir()} == scripts

    surroundings = Surroundings(target)
    before = tree(root)
    facts = environment.look(surroundings.work)
    plan = environment.plan(surroundings.work, facts)
    assert tree(root) == before, "looking repairs nothing"
    ((name, left),) = names_of(facts)
    assert name == aside.name
    assert left >= 1
    (finding,) = judge_environment.findings(facts, target)
    assert finding.status is Status.FAIL
    assert aside.name in str(finding.measured)
    assert plan.changes[0].what == "finish setting aside the environment"
    assert len(plan.changes) == 3

    _, plan, _, verdict = rebuild(surroundings)
    assert verdict.status is Status.PASS, [c for c in verdict.checks if c.status is not Status.PASS]
    assert verdict[f"works aside: {aside.name}"].measured["broken"] == []
    assert said_by(aside / "bin" / "tool-a")[0::2] == ["HERE", "1.0"]
    assert said_by(root / "venv" / "bin" / "tool-a")[0::2] == ["HERE", "2.0"]
    assert names_of(environment.look(surroundings.work)) == []
    before = tree(root)
    assert environment.plan(surroundings.work, environment.look(surroundings.work)).changes == ()
    rebuild(surroundings)
    assert tree(root) == before, "a second run finds nothing to do"

    for change in reversed(plan.changes[:2]):  # the third goes with the second
        subprocess.run(["bash", "-c", change.undo], check=True)
    assert said_by(root / "venv" / "bin" / "tool-a")[0::2] == ["HERE", "1.0"]
    assert not (root / "venv" / "set-aside.json").exists()


def test_an_orphan_is_finished_also_where_a_new_environment_has_its_place(root, sources):
    make_venv(root / "venv", sources, "tool-a==1.0", "tool-b")
    target = make_target(root)
    aside = kill_while_it_sets_aside(root, target, "tool-b")
    make_venv(root / "venv", sources, "tool-a==2.0", "tool-b")
    assert said_by(aside / "bin" / "tool-b"), "it starts, and what it starts is the new environment"
    orphan, new = contents(aside), tree(root / "venv")

    surroundings = Surroundings(target)
    facts, plan, measured, verdict = rebuild(surroundings)
    assert facts["rebuild_because"] == []
    assert [c.what for c in plan.changes] == ["finish setting aside the environment"]
    assert "not to the end" in plan.why
    assert surroundings.phases() == [(p, plan.changes[0].what) for p in ("begins", "done")]
    assert verdict.status is Status.PASS, [c for c in verdict.checks if c.status is not Status.PASS]
    assert {s["script"]: s["ok"] for s in measured["finished"][0]["check"]["scripts"]} == {
        "tool-a": True,
        "tool-b": True,
    }
    assert tree(root / "venv") == new
    subprocess.run(["bash", "-c", plan.changes[0].undo], check=True)
    undone = contents(aside)
    assert undone["bin/tool-b"] == orphan["bin/tool-b"]
    assert tree(root / "venv") == new


def test_a_finish_that_is_killed_is_finished_by_the_one_after(root, sources):
    make_venv(root / "venv", sources, "tool-a==1.0", "tool-b")
    target = make_target(root)
    aside = kill_while_it_sets_aside(root, target, "activate")
    half = set_aside.finish_changes(environment.look(Surroundings(target).work)["venv"])
    os.mkfifo(aside / "bin" / ".tool-b.part")
    payload = subprocess.Popen([sys.executable, "-c", FINISH, aside])
    time.sleep(1.5)
    payload.kill()
    payload.wait()
    (aside / "bin" / ".tool-b.part").unlink()
    ((_, left),) = names_of(environment.look(Surroundings(target).work))
    assert 0 < left < int(half[0].before.split()[0])
    assert rebuild(Surroundings(target))[3].status is Status.PASS


FINISH = f"""
import sys
from pathlib import Path
sys.path.insert(0, {str(PAYLOADS_FOLDER)!r})
import relocation_record
relocation_record.finish(Path(sys.argv[1]))
"""


def test_a_file_that_somebody_changed_since_is_left_as_it_is(root, sources):
    make_venv(root / "venv", sources, "tool-a==1.0", "tool-b")
    target = make_target(root)
    aside = kill_while_it_sets_aside(root, target, "activate")
    (aside / "bin" / "tool-b").write_text("#!/bin/sh\necho mine\n")
    _, _, measured, _ = rebuild(Surroundings(target))
    assert (aside / "bin" / "tool-b").read_text() == "#!/bin/sh\necho mine\n"
    assert measured["finished"][0]["left"] == []


def test_a_record_that_cannot_be_read_is_said_and_nothing_is_guessed(root, sources):
    make_venv(root / "venv", sources, "tool-a==2.0", "tool-b")
    shutil.copytree(root / "venv", root / "venv.set-aside-x", symlinks=True)
    (root / "venv.set-aside-x" / "set-aside.json").write_text("{")
    target = make_target(root)
    _, plan, _, verdict = rebuild(Surroundings(target))
    assert plan.changes == ()
    assert verdict["set aside to the end"].status is Status.UNKNOWN
    assert "set-aside.json" in verdict["set aside to the end"].meaning


def test_a_restore_that_is_killed_before_the_rename_leaves_its_record(root, sources):
    make_venv(root / "venv", sources, "tool-a==1.0", "tool-b")
    surroundings = Surroundings(make_target(root))
    aside = root / f"venv.set-aside-{RUN_ID}"
    set_aside.set_aside(surroundings.work, str(aside))
    os.mkfifo(aside / "bin" / ".tool-b.part")
    payload = subprocess.Popen([sys.executable, "-c", FINISH.replace("finish(", "undo("), aside])
    time.sleep(1.5)
    payload.kill()
    payload.wait()
    (aside / "bin" / ".tool-b.part").unlink()
    ((name, _),) = names_of(environment.look(surroundings.work))
    assert name == aside.name
