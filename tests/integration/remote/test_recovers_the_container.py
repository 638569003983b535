"""The main job over the remote way, with real torch: in an LXC container behind sshd and pct.

One container, made and broken by `recover sandbox create --kind pct`, goes through its life in the
order of the tests. Everything is run as a person runs it, by the command.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest
import yaml

from helpers.record.run_folder import Outcome, RunFolder, StageState
from helpers.sandbox.bed.bed import Bed
from helpers.sandbox.describe import making_of
from helpers.sandbox.faults import pollute
from helpers.sandbox.folder import SandboxFolder
from tests.integration.conftest import RECOVER
from tests.integration.remote.conftest import config_through, note_backend
from tests.testbed.relay import Relay

pytestmark = pytest.mark.torch
CUT_S = 20
INSTALL, WARM = "10_environment-install_packages", "40_warm_cache-warm"


@pytest.fixture(scope="module")
def place():
    # Not in pytest's own folder: LXC limits how long a container's path may be.
    folder = Path(tempfile.mkdtemp(prefix="recover-", dir="/var/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def environ(place):
    return {**os.environ, "RECOVER_RUNS": str(place / "runs"), "COLUMNS": "200"}


def recover(environ, *arguments):
    started = time.monotonic()
    done = subprocess.run(
        [*RECOVER, *arguments], env=environ, capture_output=True, text=True, timeout=900
    )
    print(f"recover {' '.join(arguments)}: {time.monotonic() - started:.0f} s")
    print(done.stdout, done.stderr)
    return done


@pytest.fixture(scope="module")
def sandbox(place, environ):
    """The broken container; its target file is `sandbox.yaml` in the folder."""
    root = place / "sandbox"
    made = recover(environ, "sandbox", "create", "--kind", "pct", "--root", str(root))
    try:
        assert made.returncode == 0, made.stderr
        note_backend(Bed(root / "bed"))
        yield root
    finally:
        gone = recover(environ, "sandbox", "destroy", "--kind", "pct", "--root", str(root))
    assert gone.returncode == 0, gone.stderr
    assert {p.name for p in root.iterdir()} <= {"kept", ".lock"}
    assert not [p for p in psutil.process_iter() if str(root) in " ".join(words(p))]


@pytest.fixture(scope="module")
def rootfs(sandbox):
    return Bed(sandbox / "bed").rootfs(100)


def words(process):
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def latest(place) -> RunFolder:
    return RunFolder.open(place / "runs", "latest")


def states(folder):
    return {r.name: r.state for r in folder.stage_records()}


def job_of(rootfs, folder, name):
    """The folder of one long work, seen from outside of the container."""
    return rootfs / "var/lib/recover-runbooks/jobs" / f"{folder.asked.run_id}-{name}"


def wait_until(true, what, patience_s=300):
    deadline = time.monotonic() + patience_s
    while not true():
        assert time.monotonic() < deadline, f"never came: {what}"
        time.sleep(0.05)


def started(environ, place, *arguments):
    """A run that goes on, and its folder."""
    before = set((place / "runs").glob("*/run.json"))
    running = subprocess.Popen(
        [*RECOVER, *arguments], env=environ, stdout=subprocess.PIPE, text=True
    )
    wait_until(lambda: set((place / "runs").glob("*/run.json")) - before, "a run folder")
    (found,) = set((place / "runs").glob("*/run.json")) - before
    return running, RunFolder(found.parent)


def test_a_plan_names_what_is_broken_and_changes_nothing(environ, place, sandbox, rootfs):
    before = stamps(rootfs)
    done = recover(environ, "plan", str(sandbox / "sandbox.yaml"))
    assert done.returncode == 0
    for word in ("sglang", "set the old environment aside: /root/venv", "dflash_model.py"):
        assert word in done.stdout
    assert stamps(rootfs) == before
    identity = latest(place).asked.host_identity
    assert identity["node"] == "pve"
    assert (identity["vmid"], identity["hostname"]) == ("100", "ct100")
    assert identity["host_key"].startswith("ssh-ed25519 SHA256:")


def stamps(rootfs):
    paths = (p for top in ("root", "var", "etc", "tmp") for p in (rootfs / top).rglob("*"))
    # uv's cache is this machine's, shown in the container.
    facts = ((p, p.lstat()) for p in paths if ".cache" not in p.parts)
    return {str(p): (f.st_mtime_ns, f.st_size, f.st_mode) for p, f in facts if not p.is_dir()}


def test_it_recovers_though_the_network_is_gone_for_20_s_of_the_warm_up(
    environ, place, sandbox, rootfs, tmp_path
):
    bed = Bed(sandbox / "bed")
    relay = Relay((bed.host.address, bed.host.port))
    declared = yaml.safe_load((sandbox / "sandbox.yaml").read_text())
    declared["reach"]["ssh_config"] = str(config_through(bed, relay.port, tmp_path))
    wired = tmp_path / "wired.yaml"
    wired.write_text(yaml.safe_dump(declared))
    try:
        running, folder = started(environ, place, "run", str(wired), "--yes")
        err = job_of(rootfs, folder, WARM) / "err"
        wait_until(lambda: err.exists() and b'"entry"' in err.read_bytes(), "the warm-up")
        accepted, said = relay.accepted, err.stat().st_size
        relay.freeze()
        time.sleep(CUT_S)
        relay.thaw()
        out, _ = running.communicate(timeout=600)
    finally:
        relay.close()
    print(out)
    assert running.returncode == 0, out
    assert folder.outcome is Outcome.RECOVERED
    assert relay.accepted > accepted, "nobody has noticed that the network was gone"
    assert err.stat().st_size > said, "the warm-up has gone on meanwhile"
    assert_kept_once(folder, "40_warm_cache", job_of(rootfs, folder, WARM))
    assert_kept_once(folder, "10_environment", job_of(rootfs, folder, INSTALL))
    assert folder.journal.problems() == []
    assert list((rootfs / "root").glob("venv.set-aside-*")), "the old environment is kept"
    assert not list((rootfs / "root").glob("venv/lib/*/site-packages/sglang*"))


def assert_kept_once(folder, stage, job):
    """The stage's log of a job is, byte for byte, what the job has said."""
    wanted = b"--- stdout\n" + (job / "out").read_bytes()
    wanted += b"\n--- stderr\n" + (job / "err").read_bytes()
    kept = [path.read_bytes() for path in (folder.path / "logs" / stage).glob("*.log")]
    assert kept.count(wanted) == 1


def test_a_runner_killed_during_the_install_is_resumed_and_uv_runs_once(
    environ, place, sandbox, rootfs
):
    making = making_of(SandboxFolder(sandbox), "pct", print)
    pollute(making.work, making.folder)
    making.close()
    installs, watching = Installs(rootfs), threading.Event()
    # The later stages cost a minute and are no others than above.
    through = (str(sandbox / "sandbox.yaml"), "--yes", "--through", "sources")
    running, folder = started(environ, place, "run", *through)
    watcher = threading.Thread(target=installs.watch, args=(watching,))
    watcher.start()
    try:
        wait_until(lambda: installs.pids, "uv")
        family = psutil.Process(running.pid).children(recursive=True)
        running.send_signal(signal.SIGKILL)
        running.communicate()
        _, left = psutil.wait_procs(family, timeout=10)
        assert left == [], "kernels end with their runner"
        assert installs.alive(), "uv goes on"
        assert states(folder)["10_environment"] is StageState.RUNNING
        done = recover(environ, "resume", "--yes")
    finally:
        watching.set()
        watcher.join()
    assert done.returncode == 4, "throughput was not asked for, so it is not known"
    assert latest(place).path == folder.path, "resumed, not begun anew"
    found = states(folder)
    assert found["10_environment"] is found["20_sources"] is StageState.PASSED
    assert len(installs.pids) == 1, "uv has run twice"
    events = list(folder.journal.events())
    (job,) = [e for e in events if e["event"] == "left_work"]
    assert (job["name"], job["found"], job["state"], job["returncode"]) == (
        INSTALL,
        "running",
        "finished",
        0,
    )
    closed = [e for e in events if e["event"] == "stage_ended" and e.get("by") == "resume"]
    assert [(e["stage"], e["state"]) for e in closed] == [("10_environment", "interrupted")]
    assert "10_environment   again: it was interrupted" in done.stdout
    assert json.dumps(folder.evidence("10_environment")["plan"]["changes"]) == "[]"
    assert folder.journal.problems() == []


class Installs:
    """Every `uv pip install` that is seen in the container while somebody watches."""

    def __init__(self, rootfs):
        self._root = rootfs.stat()
        self.pids = set()

    def watch(self, until):
        while not until.wait(0.02):
            self.pids |= {process.pid for process in self.alive()}

    def alive(self):
        return [p for p in psutil.process_iter() if self._is_one(p)]

    def _is_one(self, process):
        if "pip install" not in " ".join(words(process)[1:3]):
            return False
        try:
            return os.path.samestat(Path(f"/proc/{process.pid}/root").stat(), self._root)
        except OSError:
            return False
