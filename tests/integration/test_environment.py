"""Stage 10 on real environments: real uv, real pip, small wheels written on the spot."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import uv

from helpers.errors import PreconditionFailed, RunbookError
from helpers.judge import environment as judge_environment
from helpers.recover import environment, set_aside
from helpers.verdict import Status
from tests.testbed.rooms import RUN_ID, Surroundings, make_target, small_disk, tree
from tests.testbed.wheels import write_wheel

JOBS = "container"  # the records of long work lie there

UV = uv.find_uv_bin()


@pytest.fixture(autouse=True)
def sources(tmp_path_factory, monkeypatch) -> Path:
    """Package sources of this test alone: wheels told through a pip.conf; uv on PATH."""
    outside = tmp_path_factory.mktemp("machine")
    wheels = outside / "wheels"
    for name, version, requires in (
        ("tool-a", "1.0", ()),
        ("tool-a", "2.0", ("tool-c>=1", "tool-d; python_version < '3'")),
        ("tool-b", "1.0", ()),
        ("tool-c", "1.5", ()),
        ("intruder", "3.0", ()),
        ("stowaway", "1.0", ()),
    ):
        write_wheel(wheels, name, version, requires=requires)
    for variable in list(os.environ):
        if variable.startswith(("PIP_", "UV_")):
            monkeypatch.delenv(variable)
    (outside / "pip.conf").write_text(f"[global]\nno-index = true\nfind-links = {wheels}\n")
    (outside / "bin").mkdir()
    (outside / "bin" / "uv").symlink_to(UV)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(outside / "pip.conf"))
    monkeypatch.setenv("UV_CACHE_DIR", str(outside / "cache"))
    monkeypatch.setenv("PATH", f"{outside / 'bin'}:{os.environ['PATH']}")
    return wheels


@pytest.fixture
def root(tmp_path) -> Path:
    folder = tmp_path / "a root with spaces"
    folder.mkdir()
    return folder


def make_venv(path: Path, sources: Path, *packages: str) -> None:
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, path], check=True)
    install(path, sources, *packages)


def install(path: Path, sources: Path, *packages: str) -> None:
    where = ["--python", path / "bin" / "python", "--no-index", f"--find-links={sources}"]
    subprocess.run([UV, "pip", "install", "--quiet", *where, *packages], check=True)


def said_by(script: Path) -> list[str]:
    """What a console script of the test's wheels prints: environment, module, version."""
    done = subprocess.run([script], capture_output=True, text=True, check=True)
    return done.stdout.replace(str(script.parents[1]), "HERE").split()


def rebuild(surroundings: Surroundings):
    facts = environment.look(surroundings.work)
    plan = environment.plan(surroundings.work, facts)
    measured = environment.apply(surroundings.work, facts, plan)
    verdict = judge_environment.judge({"facts": facts, "measured": measured}, surroundings.target)
    return facts, plan, measured, verdict


def test_it_rebuilds_and_the_old_environment_still_works(root, sources):
    target = make_target(root)
    venv, aside = root / "venv", root / f"venv.set-aside-{RUN_ID}"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)  # with pip
    install(venv, sources, "tool-a==1.0", "intruder", "stowaway")
    surroundings = Surroundings(target)
    facts, plan, measured, verdict = rebuild(surroundings)

    assert [why.split(":")[0] for why in facts["rebuild_because"]] == [
        "missing",
        "drifted",
        "forbidden",
        "extra",
    ]
    assert verdict.status is Status.PASS, [c for c in verdict.checks if c.status is not Status.PASS]
    assert verdict["package tool-a"].measured == "2.0"
    assert said_by(venv / "bin" / "tool-a")[0::2] == ["HERE", "2.0"]
    assert said_by(aside / "bin" / "tool-a")[0::2] == ["HERE", "1.0"]
    pip = subprocess.run(
        [aside / "bin" / "pip", "--version"], capture_output=True, text=True, check=True
    )
    assert f"from {aside}/lib" in pip.stdout
    assert measured["old"]["check"]["pip"]["ok"]
    assert "intruder==3.0\n" in surroundings.kept["10_environment.old-freeze.txt"]
    assert surroundings.kept["10_environment.lock.txt"] == "tool-a==2.0\ntool-b==1.0\ntool-c==1.5\n"
    assert measured["pip_check"] == {**measured["pip_check"], "by": "uv pip check", "ok": True}
    assert surroundings.phases() == [(p, c.what) for c in plan.changes for p in ("begins", "done")]

    before = tree(root)
    again = Surroundings(target, run_id="another-run")
    facts, plan, measured, verdict = rebuild(again)
    assert plan.changes == ()
    assert verdict.status is Status.PASS
    assert "old environment works" not in [c.name for c in verdict.checks]
    assert again.kept["10_environment.lock.txt"] == surroundings.kept["10_environment.lock.txt"]
    assert again.events == []
    assert tree(root) == before


def test_a_look_and_a_plan_write_nothing(root, sources):
    make_venv(root / "venv", sources, "tool-a==1.0", "intruder")
    surroundings = Surroundings(make_target(root))
    before, cache = tree(root), tree(sources.parent)
    facts = environment.look(surroundings.work)
    plan = environment.plan(surroundings.work, facts)
    assert tree(root) == before
    assert tree(sources.parent) == cache
    assert len(plan.changes) == 3
    assert all(change.undo for change in plan.changes)


def test_a_process_that_runs_from_it_is_named_and_nothing_is_touched(root, sources):
    make_venv(root / "venv", sources, "tool-a==1.0")
    surroundings = Surroundings(make_target(root))
    facts = environment.look(surroundings.work)
    plan = environment.plan(surroundings.work, facts)
    # Started after the plan was made and approved.
    process = subprocess.Popen(
        [root / "venv" / "bin" / "python", "-c", "import time; time.sleep(60)"]
    )
    try:
        before = tree(root)
        with pytest.raises(PreconditionFailed, match=f"pid {process.pid}.*time.sleep") as caught:
            environment.apply(surroundings.work, facts, plan)
    finally:
        process.kill()
        process.wait()
    assert caught.value.changed == "no"
    assert tree(root) == before
    assert surroundings.events == []


def test_a_shell_that_has_it_activated_does_not_count_as_running(root, sources):
    make_venv(root / "venv", sources, "tool-a==1.0")
    surroundings = Surroundings(make_target(root))
    environ = {**os.environ, "VIRTUAL_ENV": str(root / "venv")}
    process = subprocess.Popen(["sleep", "60"], env=environ)
    try:
        environment.refuse_while_used(surroundings.work)
    finally:
        process.kill()
        process.wait()


def fails_at_resolving(root, sources):
    return make_target(root, environment={"packages": ["tool-a==2.0", "tool-b==9.9"]})


def fails_at_unpacking(root, sources):
    write_wheel(sources, "tool-e", "1.0", damaged=True)
    return make_target(root, environment={"packages": ["tool-a==2.0", "tool-e"]})


def fails_at_building(root, sources):
    return make_target(root, environment={"python": "3.4"})


@pytest.mark.parametrize("fault", [fails_at_resolving, fails_at_unpacking, fails_at_building])
def test_when_a_step_fails_the_old_environment_is_back_bit_for_bit(root, sources, fault):
    make_venv(root / "venv", sources, "tool-a==1.0", "intruder")
    surroundings = Surroundings(fault(root, sources))
    before = tree(root / "venv")
    with pytest.raises(RunbookError, match="The old environment is back") as caught:
        rebuild(surroundings)
    assert tree(root / "venv") == before
    assert said_by(root / "venv" / "bin" / "tool-a")[0::2] == ["HERE", "1.0"]
    left = sorted(p.name for p in root.iterdir() if p.name not in ("venv", JOBS))
    assert left in ([], [f"venv.failed-{RUN_ID}"])
    assert caught.value.changed == ("yes" if left else "no")
    assert ("undone", "set the old environment aside") in surroundings.phases()


def test_when_the_disk_is_full_half_way_the_old_environment_is_back_bit_for_bit(tmp_path, sources):
    write_wheel(sources, "tool-e", "1.0", files={"tool_e_data.bin": os.urandom(8 * 2**20)})
    with small_disk(tmp_path / "disk", size_mib=6) as container:
        root = tmp_path / "disk"
        make_venv(root / "venv", sources, "tool-a==1.0")
        target = make_target(root, environment={"packages": ["tool-a==2.0", "tool-e"]})
        before = tree(root / "venv")
        with pytest.raises(RunbookError, match="The old environment is back"):
            rebuild(Surroundings(target, container))
        assert tree(root / "venv") == before


def test_ctrl_c_while_it_installs_puts_the_old_environment_back(root, sources):
    make_venv(root / "venv", sources, "tool-a==1.0")
    surroundings = Surroundings(make_target(root))
    before = tree(root / "venv")

    class Pressed(list):
        def append(self, text):
            if text.startswith("install: "):
                raise KeyboardInterrupt

    surroundings.said = Pressed()
    with pytest.raises(KeyboardInterrupt):
        rebuild(surroundings)
    assert tree(root / "venv") == before


def test_a_set_aside_that_fails_in_the_middle_takes_itself_back(root, sources):
    make_venv(root / "venv", sources, "tool-a==1.0")
    (root / "venv" / "bin" / ".tool-a.part").mkdir()  # in the way of the rewritten file
    before = tree(root)
    with pytest.raises(RunbookError, match="could not be set aside") as caught:
        rebuild(Surroundings(make_target(root)))
    assert caught.value.changed == "no"
    assert tree(root) == before


def test_it_is_put_back_bit_for_bit_also_after_a_set_aside_that_was_killed(root, sources):
    make_venv(root / "venv", sources, "tool-a==1.0", "tool-b")
    surroundings = Surroundings(make_target(root))
    before, script = tree(root), (root / "venv" / "bin" / "tool-b").read_bytes()
    aside = str(root / f"venv.set-aside-{RUN_ID}")
    set_aside.set_aside(surroundings.work, aside)
    times = (Path(aside) / "bin" / "tool-b").stat()
    (Path(aside) / "bin" / "tool-b").write_bytes(script)  # as if it had not been reached
    os.utime(Path(aside) / "bin" / "tool-b", ns=(times.st_atime_ns, times.st_mtime_ns))
    set_aside.put_back(surroundings.work, aside)
    assert tree(root) == before


def test_a_file_that_somebody_changed_meanwhile_is_not_overwritten(root, sources):
    make_venv(root / "venv", sources, "tool-a==1.0", "tool-b")
    surroundings = Surroundings(make_target(root))
    aside = root / f"venv.set-aside-{RUN_ID}"
    set_aside.set_aside(surroundings.work, str(aside))
    (aside / "bin" / "tool-b").write_text("#!/bin/sh\necho mine\n")
    with pytest.raises(RunbookError, match=r"not back as it was.*tool-b") as caught:
        set_aside.put_back(surroundings.work, str(aside))
    assert caught.value.changed == "yes"
    assert (root / "venv" / "bin" / "tool-b").read_text() == "#!/bin/sh\necho mine\n"


def test_the_undo_in_the_plan_is_the_way_back(root, sources):
    make_venv(root / "venv", sources, "tool-a==1.0", "intruder")
    before = contents(root / "venv")
    _, plan, _, _ = rebuild(Surroundings(make_target(root)))
    for change in reversed(plan.changes[:2]):  # the third goes with the second
        subprocess.run(["bash", "-c", change.undo], check=True)
    assert contents(root / "venv") == before
    assert said_by(root / "venv" / "bin" / "tool-a")[0::2] == ["HERE", "1.0"]


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in folder.rglob("*")
        if p.is_file() and not p.is_symlink()
    }


def test_a_path_that_gets_too_long_for_a_first_line_works_and_comes_back(tmp_path, sources):
    short = len(f"#!{tmp_path}//venv/bin/python")
    root = tmp_path / (
        "x" * (120 - short)
    )  # fits into the kernel's 127 bytes now, not with the new name
    make_venv(root / "venv", sources, "tool-a==1.0")
    assert (root / "venv" / "bin" / "tool-a").read_bytes().startswith(b"#!/" + bytes(root)[1:])
    surroundings, before = Surroundings(make_target(root)), tree(root)
    aside = root / f"venv.set-aside-{RUN_ID}"
    set_aside.set_aside(surroundings.work, str(aside))
    assert said_by(aside / "bin" / "tool-a")[0::2] == ["HERE", "1.0"]
    assert (aside / "bin" / "tool-a").read_bytes().startswith(b"#!/bin/sh\n'''exec'")
    checked = set_aside.check(surroundings.work, str(aside))
    assert [(s["script"], s["ok"]) for s in checked["scripts"]] == [("tool-a", True)]
    set_aside.put_back(surroundings.work, str(aside))
    assert tree(root) == before


def test_files_that_share_their_bytes_with_uvs_cache_leave_the_cache_alone(root, sources):
    venv = root / "venv"
    make_venv(venv, sources, "tool-a==1.0")
    shared = root / "cache-file"
    shared.write_text(f"export HOME_OF_IT={venv}/share\n")
    os.link(shared, venv / "bin" / "linked.sh")
    aside = root / f"venv.set-aside-{RUN_ID}"
    set_aside.set_aside(Surroundings(make_target(root)).work, str(aside))
    assert (aside / "bin" / "linked.sh").read_text() == f"export HOME_OF_IT={aside}/share\n"
    assert shared.read_text() == f"export HOME_OF_IT={venv}/share\n"


def test_only_its_own_path_is_rewritten(root, sources):
    venv = root / "venv"
    make_venv(venv, sources, "tool-a==1.0")
    text = f"a={venv}/bin b={venv}2/bin c=/mnt{venv}/bin d=file://{venv}/x e={venv}.old/y\n"
    (venv / "bin" / "notes.sh").write_text(text)
    aside = root / f"venv.set-aside-{RUN_ID}"
    set_aside.set_aside(Surroundings(make_target(root)).work, str(aside))
    expected = f"a={aside}/bin b={venv}2/bin c=/mnt{venv}/bin d=file://{aside}/x e={venv}.old/y\n"
    assert (aside / "bin" / "notes.sh").read_text() == expected


def test_an_environment_reached_through_a_link(tmp_path, sources):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    make_venv(tmp_path / "real" / "venv", sources, "tool-a==1.0")  # its scripts know the real path
    target = make_target(tmp_path / "link")
    _, _, _, verdict = rebuild(Surroundings(target))
    assert verdict.status is Status.PASS, [c for c in verdict.checks if c.status is not Status.PASS]
    old = tmp_path / "real" / f"venv.set-aside-{RUN_ID}"
    assert said_by(old / "bin" / "tool-a")[2] == "1.0"
    assert said_by(tmp_path / "real" / "venv" / "bin" / "tool-a")[2] == "2.0"


def test_where_there_was_no_environment_one_is_built(root):
    _, plan, measured, verdict = rebuild(Surroundings(make_target(root)))
    assert len(plan.changes) == 2
    assert measured["old"] is None
    assert verdict.status is Status.PASS


def test_where_there_was_none_a_failure_leaves_none(root):
    target = make_target(root, environment={"packages": ["tool-a==9"]})
    with pytest.raises(RunbookError, match="The half-built one is at"):
        rebuild(Surroundings(target))
    assert [p.name for p in root.iterdir() if p.name != JOBS] == [f"venv.failed-{RUN_ID}"]


def test_a_folder_that_is_no_environment_is_refused(root):
    (root / "venv").mkdir()
    (root / "venv" / "thesis.tex").write_text("do not move")
    before = tree(root)
    with pytest.raises(PreconditionFailed, match=r"no virtual environment") as caught:
        rebuild(Surroundings(make_target(root)))
    assert caught.value.changed == "no"
    assert tree(root) == before


def test_an_environment_that_was_broken_before_is_replaced_all_the_same(root, sources):
    make_venv(root / "venv", sources, "tool-a==1.0")
    (root / "venv" / "bin" / "python").unlink()
    (root / "venv" / "bin" / "python").symlink_to("/nowhere/python3")
    surroundings = Surroundings(make_target(root))
    facts, _, measured, verdict = rebuild(surroundings)
    assert "does not run" in facts["rebuild_because"][0]
    assert measured["old"]["freeze"]["by"] == "metadata"
    assert surroundings.kept["10_environment.old-freeze.txt"] == "tool-a==1.0\n"
    assert verdict.status is Status.DRIFT
    assert verdict["old environment works"].measured["broken"] == []


def test_a_copied_environment_whose_scripts_start_another_python_is_rebuilt(tmp_path, sources):
    root = tmp_path
    make_venv(root / "original", sources, "tool-a==2.0", "tool-b")
    shutil.copytree(root / "original", root / "venv", symlinks=True)
    facts = environment.look(Surroundings(make_target(root)).work)
    assert facts["rebuild_because"] == ["scripts that start another Python: tool-a, tool-b, tool-c"]


@pytest.fixture
def no_uv(tmp_path, monkeypatch):
    """A machine without uv; the function returned gives it a python3 with pip or without."""
    folder = tmp_path / "no-uv"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    assert shutil.which("uv") is None

    def give_python3(*options: str) -> None:
        base = (
            Path(sys.base_prefix)
            / "bin"
            / f"python{sys.version_info.major}.{sys.version_info.minor}"
        )
        subprocess.run([base, "-m", "venv", *options, tmp_path / "python3"], check=True)
        # Not a link: a Python that is started through one does not know its environment.
        (folder / "python3").write_text(f'#!/bin/sh\nexec "{tmp_path}/python3/bin/python3" "$@"\n')
        (folder / "python3").chmod(0o755)

    return give_python3


def test_uv_is_brought_by_the_containers_own_pip(root, sources, no_uv):
    no_uv()
    data = {"uv-0.99.0.data/scripts/uv": Path(UV).read_bytes()}
    write_wheel(sources, "uv", "0.99.0", files=data, script=False)
    facts, plan, measured, verdict = rebuild(Surroundings(make_target(root)))
    assert facts["uv"]["path"] is None
    assert plan.changes[0].what == "bring uv"
    assert measured["uv"]["brought_by"] == "pip"
    assert measured["uv"]["path"] == f"{root}/venv.tools/bin/uv"
    assert verdict.status is Status.PASS
    again = environment.look(Surroundings(make_target(root)).work)
    assert again["uv"]["path"] == measured["uv"]["path"], "a second run finds what was brought"


def test_uv_is_copied_from_the_operator_where_there_is_no_pip(root, no_uv):
    no_uv("--without-pip")
    facts, _, measured, verdict = rebuild(Surroundings(make_target(root)))
    assert facts["uv"]["pip"] is False
    assert measured["uv"]["brought_by"] == "copy"
    assert verdict.status is Status.PASS


def test_uv_that_lies_in_the_old_environment_moves_with_it(root, sources, no_uv):
    no_uv("--without-pip")
    make_venv(root / "venv", sources, "tool-a==1.0")
    shutil.copy(UV, root / "venv" / "bin" / "uv")
    facts, plan, _, verdict = rebuild(Surroundings(make_target(root)))
    assert facts["uv"]["path"] == f"{root}/venv/bin/uv"
    assert plan.changes[0].what == "set the old environment aside"
    assert verdict.status is Status.PASS
