"""Jobs outlive the connection, start once, are followed byte for byte, and are stopped whole."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from helpers.errors import (
    CommandTimedOut,
    ContainerNotRunning,
    HostUnreachable,
    OutcomeUnknown,
    ParameterError,
    PreconditionFailed,
)
from helpers.reach.as_job import run_as_job
from helpers.reach.command import Command
from helpers.reach.job import Job, JobPlace
from helpers.reach.job_frames import JobState
from helpers.reach.local import LocalContainer
from helpers.reach.payload import run_payload
from tests.integration.remote.conftest import RUNNING, pct_container
from tests.testbed import faults

LINES = "for ((i = 0; i < $1; i++)); do echo line $i; echo side $i >&2; sleep 0.1; done; exit 5"


def lines(number: int, word: str = "line") -> str:
    return "".join(f"{word} {i}\n" for i in range(number))


def bash(script: str, *words: str, **fields) -> Command:
    return Command(("bash", "-c", script, "_", *words), purpose="test", **fields)


@pytest.fixture
def place() -> JobPlace:
    return JobPlace("/var/tmp/recover-test-jobs", os.urandom(6).hex())


@pytest.fixture(params=["local", "behind pct"])
def anywhere(request, container, tmp_path, place):
    """A job of each kind of container."""
    if request.param == "local":
        yield Job(LocalContainer("here"), JobPlace(str(tmp_path), "job"))
    else:
        yield Job(container, place)


def followed(job: Job) -> tuple[str, str, JobState]:
    out, err = bytearray(), bytearray()
    state = job.follow(out.extend, err.extend)
    return out.decode(), err.decode(), state


# --- its life


def test_a_job_runs_to_its_end_and_says_everything(anywhere):
    assert anywhere.look().state == "missing"
    assert anywhere.start(bash(LINES, "12")) == "started"
    assert anywhere.look().state == "running"
    out, err, state = followed(anywhere)
    assert (out, err) == (lines(12), lines(12, "side"))
    assert (state.state, state.returncode) == ("finished", 5)
    assert followed(anywhere)[0] == lines(12)  # and says it again to whoever asks again


def test_a_second_start_finds_the_first(anywhere, tmp_path):
    command = bash("echo once; sleep 0.5; cat", stdin=b"\0input\xff", env={"A": "b"})
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: anywhere.start(command), range(4)))
    assert sorted(answers) == ["found", "found", "found", "started"]
    out = bytearray()
    anywhere.follow(out.extend, bytes)
    assert out == b"once\n\0input\xff"
    assert anywhere.start(command) == "found"  # also after its end: it is not run again
    for other in (bash("echo other"), bash(command.argv[2], stdin=b"other", env={"A": "b"})):
        with pytest.raises(PreconditionFailed, match="does something else"):
            anywhere.start(other)


def test_a_program_that_is_not_there_is_told_by_its_exit_code(anywhere):
    anywhere.start(Command(("no-such-program",), purpose="test"))
    _, err, state = followed(anywhere)
    assert (state.state, state.returncode) == ("finished", 127)
    assert "no-such-program" in err


def test_a_job_makes_files_as_any_command_does(anywhere):
    script = "umask; pwd; echo $A"
    command = bash(script, cwd="/tmp", env={"A": "é"})
    anywhere.start(command)
    assert followed(anywhere)[0] == container(anywhere).run(command).text


def test_stopping_ends_all_of_it(anywhere):
    script = "setsid sleep 5001 & (trap '' TERM; sleep 5002; sleep 5003) &"
    script += " trap 'exit 7' TERM; sleep 5004 & wait"
    anywhere.start(bash(script))
    wait_for(lambda: running(anywhere, "sleep 500[124]") == 3)
    state = anywhere.stop(grace_s=1)
    assert (state.state, state.returncode) == ("killed", 7)
    assert running(anywhere, "sleep 500[1234]") == 0
    assert anywhere.stop().state == "killed"  # stopping twice is no harm


def test_one_that_vanishes_without_an_exit_code_was_killed(anywhere):
    anywhere.start(bash("kill -9 $PPID; kill -9 $$"))
    wait_for(lambda: anywhere.look().state != "running")
    state = anywhere.look()
    assert (state.state, state.returncode) == ("killed", None)


def test_what_a_job_leaves_behind_does_not_keep_it_running(anywhere):
    anywhere.start(bash("sleep 5005 & echo done; exit 3"))
    out, _, state = followed(anywhere)
    assert (out, state.state, state.returncode) == ("done\n", "finished", 3)
    container(anywhere).run(Command(("pkill", "-fx", "sleep 5005"), purpose="clean"))


def container(job: Job):
    return job._container


def running(job: Job, pattern: str) -> int:
    command = Command(("pgrep", "-cfx", pattern), purpose="count")
    return int(container(job).run(command).text)


def test_a_job_knows_nothing_of_the_way_it_was_started(container, place):
    job = Job(container, place)
    job.start(bash("tty; cat; ps -o sid= -p $$ | tr -d ' '; cat /proc/$PPID/task/*/children"))
    out, _, state = followed(job)
    assert out.startswith("not a tty\n")
    assert state.returncode == 0


@pytest.mark.parametrize("name", ["", ".", "../x", "a b", "-x", "x" * 101])
def test_a_place_is_checked(name):
    with pytest.raises(ParameterError):
        JobPlace("/jobs", name)
    with pytest.raises(ParameterError):
        JobPlace("relative", "name")


# --- the loss of the connection


def test_every_byte_comes_once_however_often_the_connection_is_lost(bed, container, place):
    job = Job(container, place)
    job.start(bash(LINES, "40"))
    losses = [threading.Timer(0.6 * k, faults.kill_sessions, [bed]) for k in range(1, 6)]
    for loss in losses:
        loss.start()
    out, err, state = followed(job)
    assert (out, err) == (lines(40), lines(40, "side"))
    assert (state.state, state.returncode) == ("finished", 5)


def test_a_wire_that_is_cut_in_the_middle_of_a_frame(bed, wired, relay, place):
    job = Job(pct_container(bed, wired, RUNNING), place)
    script = "seq 1 400000"
    job.start(bash(script))
    out, cuts = bytearray(), [500_000, 900_001, 2_000_002]

    def take(data: bytes) -> None:
        out.extend(data)
        if cuts and len(out) > cuts[0]:
            relay.cut_after(received_bytes=100_000)
            del cuts[0]

    state = job.follow(take, bytes)
    assert out == subprocess.run(["seq", "1", "400000"], capture_output=True, check=True).stdout
    assert state.state == "finished"
    assert relay.accepted > 1


def test_a_network_that_is_gone_for_a_while(bed, wired, relay, place):
    job = Job(pct_container(bed, wired, RUNNING), place)
    job.start(bash(LINES, "40"))
    threading.Timer(0.5, relay.freeze).start()
    threading.Timer(6.0, relay.thaw).start()
    out, _, state = followed(job)
    assert out == lines(40)
    assert state.state == "finished"


def test_patience_has_an_end_and_the_job_goes_on(bed, wired, relay, place):
    job = Job(pct_container(bed, wired, RUNNING), place, patience_s=1)
    job.start(bash("sleep 5006"))
    wired.close()
    relay.freeze()
    with pytest.raises((HostUnreachable, OutcomeUnknown)) as caught:
        job.follow(bytes, bytes)
    assert caught.value.changed == "no"
    relay.thaw()
    assert job.look().state == "running"
    assert job.stop().state == "killed"


RUNNER = """
import sys
from tests.integration.remote.conftest import *
from helpers.reach.as_job import run_as_job
from helpers.reach.command import Command
from helpers.reach.as_job import run_as_job
from helpers.reach.job import JobPlace
bed = Bed(Path(sys.argv[1]))
host = Host(resolve("pve", config=bed.host.ssh_config))
script = "echo ran >>$0.count; sleep 3; echo done; exit 4"
command = Command(("bash", "-c", script, sys.argv[2]), purpose="x")
folder, name = sys.argv[2].rsplit("/", 1)
print(run_as_job(pct_container(bed, host, RUNNING), command, JobPlace(folder, name)).text)
"""


def test_a_runner_that_was_killed_is_followed_by_another_and_nothing_runs_twice(
    bed, container, place
):
    argv = [sys.executable, "-c", RUNNER, bed.folder, place.path]
    first = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    wait_for(lambda: Job(container, place).look().state == "running")
    first.send_signal(signal.SIGKILL)
    first.wait()
    second = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert second.stdout == "done\n\n"
    assert container.read(f"{place.path}.count") == b"ran\n"


# --- the container


def test_a_restart_of_the_container_is_a_loss(bed, container, place):
    job = Job(container, place, patience_s=20)
    job.start(bash("echo begun; sleep 5007"))
    assert job.look().state == "running"
    bed.pct("stop", RUNNING)
    try:
        with pytest.raises(ContainerNotRunning):
            Job(container, place, patience_s=0).look()
    finally:
        bed.pct("start", RUNNING)
    out, _, state = followed(job)
    assert (out, state.state, state.returncode) == ("begun\n", "lost", None)
    assert job.start(bash("echo begun; sleep 5007")) == "found"
    assert job.look().state == "lost"
    with pytest.raises(OutcomeUnknown, match="restarted under it") as caught:
        run_as_job(container, bash("echo begun; sleep 5007"), place)
    assert caught.value.result.stdout == b"begun\n"


# --- as a command


def test_a_job_as_a_command(bed, host, place):
    seen = []
    container = pct_container(bed, host, RUNNING, seen.append)
    heard = bytearray()
    result = run_as_job(container, bash(LINES, "3"), place, on_stderr=heard.extend)
    assert (result.end, result.returncode) == ("exited", 5)
    assert result.text == lines(3)
    assert heard.decode() == result.stderr.decode() == lines(3, "side")
    assert [(r.command.purpose, r.returncode) for r in seen] == [
        ("start as a job: test", 0),
        ("test", 5),
    ]


def test_a_job_ends_at_its_deadline(container, place):
    begin = time.monotonic()
    with pytest.raises(CommandTimedOut) as caught:
        run_as_job(container, bash("echo part; sleep 5008", timeout_s=2), place)
    assert time.monotonic() - begin < 20
    assert caught.value.result.stdout == b"part\n"
    assert container.run(Command(("pgrep", "-fx", "sleep 5008"), purpose="look")).returncode == 1


def test_a_result_that_was_taken_note_of_makes_room_for_a_new_attempt(container, place):
    command = bash("echo again >>$1.count; echo ran", place.path, changes=True)
    for attempt in (1, 2):
        assert run_as_job(container, command, place).text == "ran\n"
        assert container.read(f"{place.path}.count") == b"again\n" * attempt
    kept = container.run(bash('ls -d "$1".before-*', place.path)).text.split()
    assert len(kept) == 1


def test_a_payload_as_a_job(bed, container, place):
    """Its source is staged in the job's folder; the connection is lost while it runs."""
    progress = []
    threading.Timer(0.3, faults.kill_sessions, [bed]).start()
    document = run_payload(
        container,
        "inventory",
        {"sections": ["machine"], "disk_paths": ["/"]},
        python="python3",
        purpose="look",
        on_progress=progress.append,
        changes=True,  # what only measures leaves no record of its job behind
        job=place,
    )
    assert document.payload == "inventory"
    assert not document.errors
    assert progress
    staged = container.run(Command(("stat", "-c", "%a", f"{place.path}/stdin"), purpose="look"))
    assert staged.text == "600\n"


def test_a_job_that_is_killed_is_not_said_to_have_ended(container, place):
    threading.Timer(1.0, lambda: Job(container, place).stop()).start()
    with pytest.raises(OutcomeUnknown, match="was killed"):
        run_as_job(container, bash("sleep 5009", changes=True), place)


def test_a_hundred_thousand_lines_of_progress(container, place):
    script = r"printf '\r%6d of 100000 [##########]\n' $(seq 1 100000)"
    script += r"; printf '\r%6d\r' $(seq 1 100000) >&2"
    result = run_as_job(container, bash(script), place)
    assert result.stdout.decode() == "".join(
        f"\r{n:6d} of 100000 [##########]\n" for n in range(1, 100_001)
    )
    assert result.stderr.decode() == "".join(f"\r{n:6d}\r" for n in range(1, 100_001))


def wait_for(happened, patience_s: float = 20) -> None:
    until = time.monotonic() + patience_s
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.05)
