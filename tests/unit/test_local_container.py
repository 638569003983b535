"""The sandbox's container runs programs as a container would: byte for byte, bounded, and with an honest end."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from helpers.errors import CommandFailed, CommandTimedOut
from helpers.reach.command import Command
from helpers.reach.local import LocalContainer, _interrupt_later, container_environment

ECHO = (
    sys.executable,
    "-c",
    "import sys,os; sys.stdout.buffer.write(b'\\0'.join(os.fsencode(a) for a in sys.argv[1:]))",
)


@pytest.fixture(scope="module")
def container():
    return LocalContainer("here")


@given(
    st.lists(
        st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])),
        min_size=1,
        max_size=4,
    )
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_arguments_arrive_byte_for_byte(container, arguments):
    result = container.run(Command((*ECHO, *arguments), purpose="echo"))
    assert result.stdout == b"\0".join(a.encode() for a in arguments)


def test_both_streams_are_read_together_and_input_is_fed(container):
    script = "import sys; d=sys.stdin.buffer.read(); sys.stdout.buffer.write(d); sys.stderr.buffer.write(d)"
    data = os.urandom(10 * 1024 * 1024)
    seen = bytearray()
    result = container.run(
        Command((sys.executable, "-c", script), purpose="flood", stdin=data), on_stderr=seen.extend
    )
    assert result.stdout == data
    assert result.stderr == bytes(seen) == data


def test_a_program_that_does_not_read_its_input_is_no_error(container):
    result = container.run(Command(("true",), purpose="ignore input", stdin=b"x" * 1_000_000))
    assert result.ok


def test_an_exit_code_is_a_result_and_check_turns_it_into_an_error(container):
    command = Command(
        ("bash", "-c", "echo out; echo why >&2; exit 3"), purpose="fail on purpose", changes=True
    )
    assert container.run(command).returncode == 3
    with pytest.raises(CommandFailed, match="exit code 3") as caught:
        container.check(command, hint="Look at it.")
    assert caught.value.changed == "unknown"
    assert "why" in str(caught.value)


def test_a_program_that_is_not_there_was_not_started(container):
    with pytest.raises(CommandFailed, match="Could not start") as caught:
        container.run(Command(("no-such-program",), purpose="start nothing"))
    assert caught.value.result.end == "not_started"
    assert caught.value.changed == "no"


def test_at_the_deadline_the_program_and_its_children_end(container):
    script = "sleep 60 & echo $!; sleep 60"
    begin = time.monotonic()
    with pytest.raises(CommandTimedOut) as caught:
        container.run(Command(("bash", "-c", script), purpose="sleep", timeout_s=0.5))
    assert time.monotonic() - begin < 10
    assert caught.value.result.returncode is None
    child = int(caught.value.result.stdout)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie"


def test_a_grandchild_that_holds_the_streams_is_not_waited_for(container):
    begin = time.monotonic()
    result = container.run(
        Command(("bash", "-c", "sleep 30 & echo done"), purpose="leave one behind")
    )
    assert result.text == "done\n"
    assert time.monotonic() - begin < 10


def test_the_observer_sees_every_result(tmp_path):
    seen = []
    LocalContainer("here", seen.append).run(Command(("false",), purpose="say no"))
    assert [r.returncode for r in seen] == [1]


def test_the_operators_switches_stay_outside():
    inside = container_environment(
        {
            "PATH": "/venv/bin:/usr/bin",
            "VIRTUAL_ENV": "/venv",
            "PYTHONPATH": "/leak",
            "LD_LIBRARY_PATH": "/leak",
            "TORCHINDUCTOR_CACHE_DIR": "/leak",
            "PIP_INDEX_URL": "https://mirror.example/simple",
            "HOME": "/home/someone",
        }
    )
    assert inside["PATH"] == "/usr/bin"
    assert inside["PIP_INDEX_URL"] == "https://mirror.example/simple"
    assert (
        not {"PYTHONPATH", "LD_LIBRARY_PATH", "TORCHINDUCTOR_CACHE_DIR", "VIRTUAL_ENV"}
        & inside.keys()
    )


def test_a_pushed_file_is_there_whole_with_its_mode(container, tmp_path):
    path = tmp_path / "a name with spaces"
    container.push(b"\0new\n", str(path), mode="0750")
    assert path.read_bytes() == b"\0new\n"
    assert path.stat().st_mode & 0o777 == 0o750
    assert container.read(str(path)) == b"\0new\n"
    assert container.read(str(tmp_path / "absent")) is None


def test_a_push_that_fails_leaves_the_old_file_and_nothing_else(container, tmp_path):
    folder = tmp_path / "small"
    folder.mkdir()
    (folder / "file").write_text("old")
    limit = 'ulimit -f 8; exec "$@"'
    real = (
        container._execute
    )  # the disk is made full for real: the shell that writes may write 8 KiB at most

    def limited(command, on_stdout, on_stderr):
        bounded = Command(
            ("bash", "-c", limit, "_", *command.argv), purpose=command.purpose, stdin=command.stdin
        )
        return real(bounded, on_stdout, on_stderr)

    container._execute = limited
    try:
        with pytest.raises(CommandFailed):
            container.push(b"x" * 100_000, str(folder / "file"))
    finally:
        del container._execute
    assert (folder / "file").read_text() == "old"
    assert [p.name for p in folder.iterdir()] == ["file"]


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_program_when_its_caller_is_stopped(tmp_path, sign):
    code = (
        "import sys; from helpers.reach.local import LocalContainer; from helpers.reach.command import Command\n"
        "LocalContainer('x').run(Command(('bash', '-c', 'echo $$ >$0; sleep 60', sys.argv[1]), purpose='sleep'))"
    )
    marker = tmp_path / "pid"
    caller = subprocess.Popen([sys.executable, "-c", code, str(marker)], stderr=subprocess.DEVNULL)
    while not marker.exists() or not marker.read_text().strip():
        time.sleep(0.05)
    caller.send_signal(sign)
    caller.wait(20)
    pid = int(marker.read_text())
    deadline = time.monotonic() + 5
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie":
        assert time.monotonic() < deadline, "it still runs"
        time.sleep(0.05)


def test_an_interrupt_waits_until_a_started_program_has_an_owner():
    owned = []

    def start():
        with _interrupt_later():
            os.kill(os.getpid(), signal.SIGINT)
            owned.append(True)

    with pytest.raises(KeyboardInterrupt):
        start()
    assert owned
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
