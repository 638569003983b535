"""A container behind a real sshd and a stand-in for pct: what a command's end tells."""

import os
import subprocess
import sys
import threading
import time

import pytest

from helpers.errors import (
    CommandFailed,
    CommandTimedOut,
    ContainerElsewhere,
    ContainerLocked,
    ContainerNotFound,
    ContainerNotRunning,
    HostUnreachable,
    OutcomeUnknown,
    ParameterError,
    PreconditionFailed,
    WrongTarget,
)
from helpers.reach.command import Command
from helpers.reach.pct import PctContainer
from helpers.reach.quoting import Meant
from helpers.reach.ssh import Host
from helpers.reach.ssh_settings import resolve
from tests.integration.remote.conftest import (
    RUNNING,
    STOPPED,
    UNPRIVILEGED,
    WITH_BIND_MOUNT,
    pct_container,
)
from tests.testbed import Bed, faults


@pytest.fixture(scope="module", params=["lxc", "namespaces"])
def either(request, bed, tmp_path_factory):
    """A container of each kind: the bed's own, and one where LXC cannot start."""
    if request.param == bed.backend:
        made = bed
    else:
        made = Bed.make(tmp_path_factory.mktemp("namespaces"), backend=request.param)
        made.add_container(RUNNING)
        made.start(RUNNING)
    host = Host(resolve("pve", config=made.host.ssh_config))
    yield pct_container(made, host, RUNNING)
    host.close()
    if made is not bed:
        made.stop()


def bash(script: str, **fields) -> Command:
    return Command(("bash", "-c", script), purpose="test", **fields)


# --- what came of it


@pytest.mark.parametrize("code", [0, 1, 2, 4, 126, 127, 128, 255])
def test_exit_codes_are_the_commands_own(either, code):
    result = either.run(bash(f"exit {code}"))
    assert (result.end, result.returncode) == ("exited", code)


def test_a_command_that_was_killed_says_so_as_shells_do(either):
    assert either.run(bash("kill -9 $$")).returncode == 137


def test_standard_error_is_the_commands_own(either):
    seen = bytearray()
    result = either.run(bash("echo out; echo err >&2; exit 3"), on_stderr=seen.extend)
    assert (result.stdout, result.stderr, bytes(seen)) == (b"out\n", b"err\n", b"err\n")


def test_a_program_that_is_not_there_was_not_started(either):
    with pytest.raises(CommandFailed, match="Could not start no-such-program") as caught:
        either.run(Command(("no-such-program",), purpose="start nothing"))
    assert (caught.value.result.end, caught.value.changed) == ("not_started", "no")
    with pytest.raises(CommandFailed) as caught:
        either.run(Command(("true",), purpose="start nowhere", cwd="/no/such/folder"))
    assert b"/no/such/folder" in caught.value.result.stderr


def test_the_environment_inside_is_the_declared_one(either):
    lines = either.run(Command(("env",), purpose="look", env={"MINE": "a b"})).text.splitlines()
    variables = dict(line.split("=", 1) for line in lines)
    assert variables.pop("PWD") == "/root"
    assert variables == {
        "HOME": "/root",
        "USER": "root",
        "LOGNAME": "root",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "container": "lxc",
        "SHLVL": "1",
        "MINE": "a b",
        "PATH": "/root/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    }


def test_a_time_out_ends_the_command_and_everything_it_started(either):
    timed_out(either, "echo part; sleep 4321 & (sleep 4322; sleep 4323)")


def test_a_time_out_ends_also_what_does_not_want_to_end(container):
    timed_out(container, "echo part; trap '' TERM; sleep 4321 & (sleep 4322; sleep 4323)")


def timed_out(container, script):
    begin = time.monotonic()
    with pytest.raises(CommandTimedOut) as caught:
        container.run(bash(script, timeout_s=1))
    assert time.monotonic() - begin < 15
    assert caught.value.result.stdout == b"part\n"
    assert container.run(Command(("pgrep", "-f", "^sleep 432"), purpose="look")).returncode == 1


def test_an_interrupt_ends_the_command(bed, container):
    code = """
import sys
from tests.integration.remote.conftest import *
from helpers.reach.command import Command
bed = Bed(Path(sys.argv[1]))
host = Host(resolve("pve", config=bed.host.ssh_config))
pct_container(bed, host, RUNNING).run(Command(("sleep", "4324"), purpose="sleep"))
"""
    caller = subprocess.Popen([sys.executable, "-c", code, bed.folder], stderr=subprocess.DEVNULL)
    look = Command(("pgrep", "-fx", "sleep 4324"), purpose="look")
    until = time.monotonic() + 30
    while container.run(look).returncode and time.monotonic() < until:
        time.sleep(0.2)
    caller.send_signal(2)
    assert caller.wait(30)
    assert container.run(look).returncode == 1


def test_what_a_command_leaves_behind_is_not_waited_for(either):
    begin = time.monotonic()
    result = either.run(bash("sleep 20 & echo done"))
    assert (result.text, result.ok) == ("done\n", True)
    assert time.monotonic() - begin < 10
    either.run(Command(("pkill", "-fx", "sleep 20"), purpose="clean"))


def test_floods_on_both_streams(either):
    script = "head -c 10485760 /dev/zero >&2 & head -c 10485760 /dev/zero; wait"
    result = either.run(bash(script))
    assert (len(result.stdout), len(result.stderr)) == (10485760, 10485760)


def test_a_login_that_greets_does_not_spoil_the_output(bed, container):
    profile = bed.folder / "home" / ".bashrc"
    profile.write_text("echo Welcome; echo to the host >&2\n")
    try:
        assert container.host.run("true", timeout_s=10).stdout == b"Welcome\n"
        result = container.run(bash("echo out; echo err >&2"))
        assert (result.stdout, result.stderr) == (b"out\n", b"err\n")
        assert container.proxmox.require().node == "pve"
    finally:
        profile.unlink()


def test_the_observer_sees_every_result(bed, host):
    seen = []
    container = pct_container(bed, host, RUNNING, seen.append)
    container.run(bash("exit 3", changes=True))
    assert [(r.where, r.returncode) for r in seen] == [("pve (host)", 0), ("container 100", 3)]


# --- named errors, before anything is touched


def refused(container, error, match=None):
    """However it is asked: by a command that looks, by one that changes, by the host itself."""
    for ask in (
        lambda: container.run(bash("true")),
        lambda: container.run(bash("touch /touched", changes=True)),
        lambda: container.proxmox.require(),
    ):
        with pytest.raises(error, match=match) as caught:
            ask()
        assert caught.value.changed == "no"


def test_a_host_without_pct(bed, container):
    with faults.without_pct(bed):
        refused(container, WrongTarget, "no pct")


def test_a_container_that_is_not_there(host):
    refused(
        PctContainer("x", host, 999, meant=Meant("x", "/x", "x")),
        ContainerNotFound,
        "no container 999",
    )


def test_a_container_that_is_stopped(bed, host):
    refused(pct_container(bed, host, STOPPED), ContainerNotRunning, "not running")


def test_a_container_on_another_member_of_the_cluster(bed, container):
    with faults.moved(bed, RUNNING):
        refused(container, ContainerElsewhere, "neighbour pve2")


def test_a_container_that_a_backup_holds(bed, container):
    with faults.locked(bed, RUNNING):
        assert container.run(bash("true")).ok  # looking does no harm, and pct lets it through
        with pytest.raises(ContainerLocked, match="backup"):
            container.run(bash("touch /touched", changes=True))
        with pytest.raises(ContainerLocked, match="backup"):
            container.proxmox.require()
    assert not (bed.rootfs(RUNNING) / "touched").exists()
    assert container.run(bash("true", changes=True)).ok


# --- the right container, and only that


@pytest.mark.parametrize(
    "wrong", [{"hostname": "ct999"}, {"marker": "another"}, {"marker_file": "/none"}]
)
def test_another_container_is_refused_and_not_touched(bed, host, wrong):
    right = {
        "hostname": "ct100",
        "marker_file": "/etc/machine-id",
        "marker": bed.machine_id(RUNNING),
    }
    container = PctContainer("x", host, RUNNING, meant=Meant(**{**right, **wrong}))
    with pytest.raises(WrongTarget) as caught:
        container.run(bash("touch /touched"))
    assert caught.value.changed == "no"
    with pytest.raises(WrongTarget):
        container.push(b"x", "/touched")
    assert not (bed.rootfs(RUNNING) / "touched").exists()


def test_a_container_that_is_exchanged_in_the_middle_is_noticed(bed, container):
    assert container.run(bash("true", changes=True)).ok
    path = bed.rootfs(RUNNING) / "etc" / "machine-id"
    before = path.read_text()
    try:
        path.write_text("0" * 32 + "\n")
        with pytest.raises(WrongTarget, match="0000"):
            container.run(bash("touch /touched", changes=True))
    finally:
        path.write_text(before)
    assert not (bed.rootfs(RUNNING) / "touched").exists()


def test_what_is_meant_for_the_container_happens_there_only(bed, container, tmp_path):
    name = f"/{tmp_path.name}-marker"
    container.check(Command(("touch", name), purpose="touch", changes=True), hint="")
    assert (bed.rootfs(RUNNING) / name[1:]).exists()
    assert not os.path.lexists(name)
    assert container.host.run(f"ls -d {name}", timeout_s=10).status != 0


# --- when it breaks


def test_a_connection_lost_in_the_middle_leaves_the_outcome_unknown(bed, container):
    container.run(bash("true"))
    threading.Timer(0.5, faults.kill_sessions, [bed]).start()
    with pytest.raises(OutcomeUnknown) as caught:
        container.run(bash("echo begun; sleep 3", changes=True))
    assert caught.value.changed == "unknown"
    assert (caught.value.result.stdout, caught.value.result.returncode) == (b"begun\n", None)


def test_a_connection_lost_between_commands_costs_nothing(bed, container):
    container.run(bash("true"))
    faults.kill_sessions(bed)
    assert container.run(bash("echo again")).text == "again\n"


def test_a_pct_that_is_killed_does_not_speak_for_the_command(bed, container):
    """pct's own end says 137; the command goes on, and its end is seen by its mark, or is not known."""
    container.run(bash("true"))
    threading.Timer(0.5, faults.kill_pct, [bed, RUNNING]).start()
    command = bash("sleep 1.5; echo done; exit 3")
    if bed.backend == "namespaces":  # there pct itself lives on and tells its exit code at once
        with pytest.raises(OutcomeUnknown):
            container.run(command)
        return
    result = container.run(command)
    assert (result.end, result.returncode, result.text) == ("exited", 3, "done\n")


def test_a_container_that_is_stopped_in_the_middle_leaves_the_outcome_unknown(bed, container):
    container.run(bash("true"))
    stopping = threading.Timer(0.7, bed.pct, ["stop", RUNNING])
    stopping.start()
    try:
        with pytest.raises(OutcomeUnknown):
            container.run(bash("sleep 20"))
        stopping.join()
        with pytest.raises(ContainerNotRunning):
            container.run(bash("true"))
    finally:
        bed.pct("start", RUNNING)
    assert container.run(bash("echo up")).text == "up\n"


def test_a_time_out_over_a_frozen_wire_is_not_said_to_have_ended_it(bed, wired, relay):
    container = pct_container(bed, wired, RUNNING)
    container.run(bash("true"))
    threading.Timer(0.3, relay.freeze).start()
    with pytest.raises(OutcomeUnknown):
        container.run(bash("sleep 2", timeout_s=1))


def test_a_pct_as_slow_as_the_real_one(bed, container):
    with faults.slow_pct(bed, 0.4):
        result = container.run(bash("exit 3"))
    assert (result.returncode, result.elapsed_s > 0.4) == (3, True)


def test_an_unreachable_host_is_told_before_anything_was_sent(bed, wired, relay):
    relay.freeze()
    with pytest.raises(HostUnreachable) as caught:
        pct_container(bed, wired, RUNNING).run(bash("true", changes=True))
    assert caught.value.changed == "no"


# --- what the host can do


def test_the_host_knows_its_containers(container):
    listed = {c.vmid: (c.state, c.lock, c.name) for c in container.proxmox.containers()}
    assert listed[RUNNING] == ("running", None, "ct100")
    assert listed[STOPPED] == ("stopped", None, "ct101")
    found = container.proxmox.require()
    assert (found.node, found.hostname, found.unprivileged) == ("pve", "ct100", False)


def test_an_unprivileged_container(bed, host):
    container = pct_container(bed, host, UNPRIVILEGED)
    assert container.proxmox.require().unprivileged
    container.push(b"inside", "/root/file", mode="0640")
    assert container.read("/root/file") == b"inside"
    inside = container.run(bash("stat -c '%u %g %a' /root/file")).text
    assert inside == "0 0 640\n"
    assert (bed.rootfs(UNPRIVILEGED) / "root" / "file").stat().st_uid == 100_000


def test_a_snapshot_and_the_way_back(bed, container):
    proxmox = container.proxmox
    container.push(b"before", "/root/state")
    proxmox.snapshot("before-run", "taken by a test")
    try:
        names = [(s.name, s.description) for s in proxmox.snapshots()]
        assert names == [("before-run", "taken by a test"), ("current", "You are here!")]
        container.push(b"after", "/root/state")
        with faults.locked(bed, RUNNING), pytest.raises(ContainerLocked):
            proxmox.rollback("before-run")
        proxmox.rollback("before-run")
        assert container.read("/root/state") == b"before"
    finally:
        bed.pct("delsnapshot", RUNNING, "before-run")
    for name in ("", "1st", "a b", "x" * 41, "-rf"):
        with pytest.raises(ParameterError):
            proxmox.snapshot(name, "x")


def test_a_snapshot_that_the_storage_does_not_allow(bed, host):
    container = pct_container(bed, host, WITH_BIND_MOUNT)
    with pytest.raises(PreconditionFailed, match="cannot be snapshotted"):
        container.proxmox.snapshot("before-run", "x")


def test_a_configuration_that_another_task_holds(bed, container):
    bed.set(lock_timeout_s=1)
    try:
        with faults.configuration_held(bed, RUNNING):
            assert container.run(bash("true")).ok
            with pytest.raises(ContainerLocked, match="another task"):
                container.proxmox.snapshot("before-run", "x")
    finally:
        bed.set()
