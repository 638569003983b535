"""A sandbox is removed only where it is one, and a fault breaks what it says and nothing else.

The mechanics are shown on a small target: real uv, real git, a real environment with two small
wheels, no torch. That one with torch comes to life is shown by every test that recovers one.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from helpers.errors import ParameterError, PreconditionFailed, RunbookError
from helpers.reach.payload import run_payload
from helpers.sandbox import healthy
from helpers.sandbox.create import TEMPLATE, create
from helpers.sandbox.describe import describe
from helpers.sandbox.destroy import destroy
from helpers.sandbox.faults import DEFAULT, FAULTS, chosen, write_target
from helpers.sandbox.folder import Note, SandboxFolder
from helpers.sandbox.history import make_repository
from helpers.sandbox.making import Making
from helpers.sandbox.wheels import stand_in
from helpers.target import load_target
from tests.integration.conftest import tree_hashes
from tests.testbed.wheels import write_wheel

FORBIDDEN = ["sglang", "flashinfer-python"]


class Stop(Exception):
    """Raised by a test in the middle of a creation."""


def stop_at(words):
    """Something to be told lines, which ends the creation at one of them."""

    def say(line):
        say.lines.append(line)
        if words in line:
            raise Stop

    say.lines = []
    return say


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("small")


@pytest.fixture(scope="module")
def package_source(place):
    """A folder of wheels, the only source that installs in this module have."""
    folder = place / "wheels"
    for version in ("1.0", "2.0"):
        write_wheel(folder, "tool-a", version)
    write_wheel(folder, "tool-b", "1.0")
    pip_conf = place / "pip.conf"
    pip_conf.write_text(f"[global]\nno-index = true\nfind-links = {folder}\n")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
            patch.delenv(name)
        patch.setenv("PIP_CONFIG_FILE", str(pip_conf))
        yield folder


@pytest.fixture(scope="module")
def small(place):
    """A template of a target without torch."""
    declared = yaml.safe_load(TEMPLATE.read_text())
    declared["environment"] |= {
        "packages": ["tool-a==2.0", "tool-b==1.0"],
        "forbidden": FORBIDDEN,
        "torch_index": None,
    }
    path = place / "small.yaml"
    path.write_text(yaml.safe_dump(declared))
    return path


@pytest.fixture(scope="module")
def made(place, small, package_source):
    """A healthy small sandbox: repository, environment, scripts, and files in place of a cache."""
    folder = SandboxFolder(place / "sandbox")
    folder.root.mkdir()
    folder.write_note(Note(root=str(folder.root), state="ready", started_at="2026-11-30T08:12:03Z"))
    declared = yaml.safe_load(small.read_text())
    write_target(folder, {**declared, "reach": {"kind": "sandbox", "root": str(folder.root)}})
    make_repository(folder.repository)
    making = Making(folder=folder, target=load_target(str(folder.target_file)), say=print)
    healthy.lay_out(making)
    healthy.build_environment(making)
    healthy.deploy_scripts(making)
    cache = Path(making.target.cache.directory)
    for number in range(40):
        entry = cache / "fxgraph" / f"{number % 5}" / f"entry-{number}" / "graph"
        entry.parent.mkdir(parents=True)
        entry.write_bytes(bytes(number))
    (cache / "recover-warm.json").write_text("{}")
    return making


@pytest.fixture
def making(made, place):
    """The same sandbox for each test: what a test breaks is put back from a copy."""
    copy = place / "copy"
    shutil.copytree(made.folder.root, copy, symlinks=True)
    yield made
    shutil.rmtree(made.folder.root)
    copy.rename(made.folder.root)


def touched(before, after):
    """Relative paths that are new, gone or different."""
    return {p for p in before.keys() | after.keys() if before.get(p) != after.get(p)}


def packages(making):
    venv = making.target.environment.venv
    document = run_payload(
        making.work.container,
        "inventory",
        {"sections": ["venv"], "venv": venv},
        python="python3",
        purpose="list packages",
    )
    return {p["name"]: p["version"] for p in document.measured["venv"]["packages"]}


# --------------------------------------------------------------------------------- each fault alone


def test_a_polluted_venv_holds_what_is_forbidden_and_a_drifted_version(making):
    before, healthy_packages = tree_hashes(making.folder.root), packages(making)
    said = FAULTS["polluted-venv"].breaks(making.work, making.folder)
    changed = touched(before, tree_hashes(making.folder.root))
    assert {p.split("/")[0] for p in changed if not p.startswith("container/root/venv/")} == {
        "wheels"
    }
    assert healthy_packages == {"tool-a": "2.0", "tool-b": "1.0"}
    expected = {"tool-a": "1.0", "tool-b": "1.0", **dict.fromkeys(FORBIDDEN, "1.0+standin")}
    assert packages(making) == expected
    assert "tool-a" in said


def test_what_pollutes_is_a_package_that_works(making):
    FAULTS["polluted-venv"].breaks(making.work, making.folder)
    venv = Path(making.target.environment.venv)
    script = subprocess.run([venv / "bin" / "sglang"], capture_output=True, text=True, check=True)
    assert script.stdout == "sglang 1.0+standin\n"
    imported = [venv / "bin" / "python", "-c", "import flashinfer; print(flashinfer.__version__)"]
    assert subprocess.check_output(imported, text=True) == "1.0+standin\n"


def test_without_an_older_version_it_says_that_nothing_drifted(making, package_source):
    older = package_source / "tool_a-1.0-py3-none-any.whl"
    hidden = older.rename(older.with_suffix(".hidden"))
    said = FAULTS["polluted-venv"].breaks(making.work, making.folder)
    hidden.rename(older)
    assert "NO declared package was drifted" in said
    assert packages(making)["tool-a"] == "2.0"


def test_a_hacked_model_is_one_deployed_file(making):
    before = tree_hashes(making.folder.root)
    FAULTS["hacked-model"].breaks(making.work, making.folder)
    changed = touched(before, tree_hashes(making.folder.root))
    assert changed == {"container/root/training/dflash_model.py"}
    text = Path(making.target.sources.deploy_to, "dflash_model.py").read_text()
    compile(text, "dflash_model.py", "exec")
    assert "is_fx_symbolic_tracing = lambda: False" in text
    assert text != (making.folder.repository / "dflash_model.py").read_text()


def test_a_hack_that_does_not_fit_changes_nothing(making):
    deployed = Path(making.target.sources.deploy_to, "dflash_model.py")
    deployed.write_text("print('other')\n")
    before = tree_hashes(making.folder.root)
    with pytest.raises(PreconditionFailed, match="does not fit"):
        FAULTS["hacked-model"].breaks(making.work, making.folder)
    assert tree_hashes(making.folder.root) == before


def test_a_cold_cache_keeps_a_few_entries_and_no_record(making):
    before = tree_hashes(making.folder.root)
    said = FAULTS["cold-cache"].breaks(making.work, making.folder)
    after = tree_hashes(making.folder.root)
    assert all(p.startswith("container/root/cache/torchinductor/") for p in touched(before, after))
    left = {p for p in after if "torchinductor" in p and p.endswith("/graph")}
    assert said.startswith("5 of 40 files")
    assert len(left) == 5
    assert all(after[p] == before[p] for p in left)
    assert not any("recover-warm.json" in p for p in after)


def test_wrong_torch_is_a_matter_of_the_target_file(making):
    before, was = tree_hashes(making.folder.root), making.target
    FAULTS["wrong-torch"].breaks(making.work, making.folder)
    assert touched(before, tree_hashes(making.folder.root)) == {"sandbox.yaml"}
    now = load_target(str(making.folder.target_file))
    assert now.torch.version == "2.11.0+cu128"
    assert now.model_copy(update={"torch": was.torch}) == was


def test_what_is_broken_is_seen_by_looking(making):
    root = making.folder.root
    before = describe(root)["broken_now"]
    assert (before["environment"], before["scripts"]) == ([], [])
    for name in ("polluted-venv", "hacked-model"):
        FAULTS[name].breaks(making.work, making.folder)
    broken = describe(root)["broken_now"]
    assert "sglang" in json.dumps(broken["environment"])
    assert broken["scripts"] == ["dflash_model.py: differs"]


def test_looking_changes_nothing(making):
    before = tree_hashes(making.folder.root)
    describe(making.folder.root)
    assert tree_hashes(making.folder.root) == before


def test_all_means_the_default_faults_in_the_order_of_doing():
    assert chosen(["all"]) == DEFAULT
    assert chosen(["wrong-torch", "cold-cache", "all"]) == (*DEFAULT, "wrong-torch")
    assert chosen([]) == ()


def test_an_unknown_fault_is_refused_before_anything_is_touched(tmp_path):
    with pytest.raises(ParameterError, match="Did you mean cold-cache"):
        create(tmp_path / "sandbox", ["cold-cash"], print)
    assert list(tmp_path.iterdir()) == []


# ---------------------------------------------------------------------------- what is never removed


@pytest.fixture
def full(tmp_path):
    """A folder of somebody's."""
    folder = tmp_path / "full"
    folder.mkdir()
    (folder / "thesis.tex").write_text("ten years of work")
    return folder


def dangerous(full):
    link = full.with_name("link")
    link.symlink_to(full)
    copy = full.with_name("copy")
    copy.mkdir()
    note = Note(
        root=str(full.with_name("elsewhere")), state="ready", started_at="2026-11-30T08:12:03Z"
    )
    SandboxFolder(copy).write_note(note)
    broken = full.with_name("broken")
    broken.mkdir()
    (broken / "sandbox.json").write_text('{"made_by": "somebody else"}')
    file = full.with_name("file")
    file.write_text("")
    return {
        "somebody's": full,
        "a link": link,
        "below a link": link / "sandbox",
        "a copy": copy,
        "another's note": broken,
        "a file": file,
        "the root": Path("/"),
        "home": Path.home(),
        "above home": Path.home().parent,
        "relative": Path("sandbox"),
        "this program": TEMPLATE.parents[2],
    }


@pytest.mark.parametrize("action", ["create", "destroy"])
def test_a_folder_that_is_not_a_sandbox_is_refused_untouched(full, action):
    folders = dangerous(full)
    before = tree_hashes(full.parent)
    for why, root in folders.items():
        with pytest.raises(ParameterError):
            create(root, [], print) if action == "create" else destroy(root)
        assert tree_hashes(full.parent) == before, why


def test_only_its_own_parts_are_removed(making):
    root = making.folder.root
    (root / "my-notes.txt").write_text("mine")
    making.folder.kept.mkdir()
    removed = destroy(root)
    assert "container" in removed
    assert {p.name for p in root.iterdir()} - {".lock"} == {"my-notes.txt", "kept"}
    with pytest.raises(ParameterError, match=r"There is no sandbox|is not a sandbox"):
        destroy(root)


def test_what_is_kept_goes_only_when_asked(making):
    making.folder.kept.mkdir()
    assert "kept" in destroy(making.folder.root, kept=True)
    assert not making.folder.kept.exists()


def test_a_part_that_is_a_link_is_not_followed(making, full):
    shutil.rmtree(making.folder.repository)
    making.folder.repository.symlink_to(full)
    with pytest.raises(ParameterError, match="symbolic link"):
        destroy(making.folder.root)
    assert (full / "thesis.tex").exists()
    assert making.folder.container.exists()


def sleeper(making, how):
    venv, training = making.target.environment.venv, making.target.sources.deploy_to
    sleep = "import time; time.sleep(60)"
    if how == "runs from it":
        return subprocess.Popen([f"{venv}/bin/python", "-c", sleep])
    if how == "has loaded its code":
        code = f"import mmap; f = open({training + '/workload.py'!r}, 'rb');"
        code += f"m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); f.close(); {sleep}"
        return subprocess.Popen([sys.executable, "-c", code])
    if how == "writes there":
        with Path(training, "out").open("w") as out:
            return subprocess.Popen([sys.executable, "-c", sleep], stdout=out)
    return subprocess.Popen([sys.executable, "-c", sleep], cwd=training)


@pytest.mark.parametrize(
    "how", ["runs from it", "has loaded its code", "writes there", "stands in it"]
)
def test_while_something_uses_it_it_stays_and_the_process_is_named(making, how):
    process = sleeper(making, how)
    try:
        time.sleep(0.5)  # for the interpreter to start
        before = tree_hashes(making.folder.root)
        for action in (destroy, lambda root: create(root, [], print)):
            with pytest.raises(PreconditionFailed, match=f"pid {process.pid}"):
                action(making.folder.root)
        assert process.poll() is None
        assert touched(before, tree_hashes(making.folder.root)) <= {".lock"}
    finally:
        process.kill()
        process.wait()


def test_two_at_once_are_refused(making):
    with making.folder.locked(), pytest.raises(PreconditionFailed, match="Another process"):
        destroy(making.folder.root)


# ---------------------------------------------------------------------------------------- half-made


def test_a_half_made_sandbox_is_noticed_and_made_anew(tmp_path, small, package_source):
    root = tmp_path / "sandbox"
    with pytest.raises(Stop):
        create(root, [], stop_at("✓ environment"), template=small)
    assert describe(root)["state"] == "making"
    assert describe(root)["broken_now"] is None
    again = stop_at("✓ scripts")
    with pytest.raises(Stop):
        create(root, ["all"], again, template=small)
    assert any("removed the half-made sandbox" in line for line in again.lines)
    assert describe(root)["faults"] == list(DEFAULT)


def test_a_killed_creation_is_taken_up_again(tmp_path, small, package_source):
    root = tmp_path / "sandbox"
    code = (
        "import sys; from pathlib import Path; from helpers.sandbox.create import create;"
        "create(Path(sys.argv[1]), [], lambda x: print(x, flush=True), template=Path(sys.argv[2]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, root, small], stdout=subprocess.PIPE, text=True, bufsize=1
    )
    first = process.stdout.readline()
    assert str(root) in first
    while "environment" not in process.stdout.readline():
        pass
    process.send_signal(signal.SIGKILL)
    process.communicate()
    again = stop_at("✓ container")
    with pytest.raises(Stop):
        create(root, [], again, template=small)
    assert any("removed the half-made sandbox" in line for line in again.lines)


def test_a_sandbox_that_does_not_become_healthy_is_not_broken(tmp_path, small, package_source):
    declared = yaml.safe_load(small.read_text())
    declared["environment"]["packages"].append("tool-c")
    small = tmp_path / "lacking.yaml"
    small.write_text(yaml.safe_dump(declared))
    say = stop_at("never")
    with pytest.raises(RunbookError, match="tool-c"):
        create(tmp_path / "sandbox", ["all"], say, template=small)
    assert not any("polluted" in line for line in say.lines)
    assert describe(tmp_path / "sandbox")["state"] == "making"


# ---------------------------------------------------------------------------- repository and wheels


def test_the_same_scripts_give_the_same_two_commits(tmp_path, monkeypatch):
    first = make_repository(tmp_path / "one")
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "one" / ".git"))  # as inside a hook
    monkeypatch.setenv("GIT_AUTHOR_NAME", "somebody")
    assert make_repository(tmp_path / "two") == first
    monkeypatch.undo()
    git = ["git", "-C", str(tmp_path / "two")]
    log = subprocess.check_output([*git, "log", "--format=%an <%ae> %s"], text=True).splitlines()
    assert len(log) == 2
    assert all(line.startswith("sandbox <sandbox@localhost> ") for line in log)
    assert subprocess.check_output([*git, "status", "--porcelain"], text=True) == ""
    modes = subprocess.check_output([*git, "ls-tree", "HEAD", "start_training.sh"], text=True)
    assert modes.startswith("100755")


def test_the_same_stand_in_has_the_same_bytes(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    wheels = [stand_in(tmp_path / name, "flashinfer-python") for name in ("one", "two")]
    assert wheels[0].name == "flashinfer_python-1.0+standin-py3-none-any.whl"
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
