"""The host over paramiko, against a real sshd: who it is, what arrives, what a failure tells."""

import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from helpers.errors import HostKeyMismatch, HostUnreachable, LoginRefused
from helpers.reach.ssh import Host
from helpers.reach.ssh_settings import resolve
from helpers.sandbox.bed.host import make_key
from tests.integration.remote.conftest import config_through
from tests.testbed import Bed, faults
from tests.testbed.network import HOST_ADDRESS, Network
from tests.testbed.relay import Relay


def host_of(path: Path, alias: str = "pve", **kwargs) -> Host:
    return Host(resolve(alias, config=path), **kwargs)


def test_both_streams_are_drained_together(host):
    flood = "head -c 10485760 /dev/zero >&2 & head -c 10485760 /dev/zero; wait"
    seen = bytearray()
    exchange = host.run(flood, timeout_s=60, on_stderr=seen.extend)
    assert (exchange.status, len(exchange.stdout), len(exchange.stderr)) == (0, 10485760, 10485760)
    assert seen == exchange.stderr


def test_input_arrives_and_is_closed(host):
    data = os.urandom(3_000_000)
    assert host.run("cat", stdin=data, timeout_s=60).stdout == data
    assert host.run("cat", timeout_s=10).stdout == b""


def test_a_command_that_does_not_read_its_input_is_no_error(host):
    exchange = host.run("exec <&-; sleep 0.3; echo done", stdin=bytes(20_000_000), timeout_s=60)
    assert (exchange.outcome, exchange.status, exchange.stdout) == ("exited", 0, b"done\n")


@pytest.mark.parametrize("status", [0, 1, 127, 255])
def test_the_exit_status_arrives(host, status):
    assert host.run(f"exit {status}", timeout_s=10).status == status


def test_a_stream_that_a_grandchild_holds_open_is_not_waited_for(host):
    begin = time.monotonic()
    exchange = host.run("sleep 30 & head -c 3000000 /dev/zero", timeout_s=60)
    assert (exchange.outcome, len(exchange.stdout)) == ("exited", 3_000_000)
    assert time.monotonic() - begin < 10


def test_the_deadline_is_for_all_of_it(host):
    begin = time.monotonic()
    exchange = host.run("while :; do echo .; sleep 0.1; done", timeout_s=1)
    assert (exchange.outcome, exchange.status) == ("timed_out", None)
    assert exchange.stdout.startswith(b".\n.\n")
    assert time.monotonic() - begin < 3


def test_more_commands_at_once_than_sshd_has_sessions(host):
    with ThreadPoolExecutor(24) as pool:
        results = list(pool.map(lambda n: host.run(f"echo {n}", timeout_s=60).stdout, range(48)))
    assert results == [f"{n}\n".encode() for n in range(48)]


def test_a_slow_wire_changes_nothing(bed, tmp_path):
    slow = Relay((bed.host.address, bed.host.port), delay_s=0.03)
    far = host_of(config_through(bed, slow.port, tmp_path))
    data = os.urandom(200_000)
    exchange = far.run("tee /dev/stderr; sleep 0.2; exit 7", stdin=data, timeout_s=30)
    assert (exchange.status, exchange.stdout, exchange.stderr) == (7, data, data)
    far.close()
    slow.close()


def test_a_second_command_costs_no_second_login(wired, relay):
    for _ in range(5):
        wired.run("true", timeout_s=10)
    assert relay.accepted == 1


# --- who is it?


def test_an_unknown_key_is_refused_and_the_hint_accepts_it(bed, tmp_path):
    config = config_through(bed, bed.host.port, tmp_path)
    (tmp_path / "known_hosts").write_text("")
    with pytest.raises(HostKeyMismatch, match="is not known here") as caught:
        host_of(config).run("true", timeout_s=10)
    listed = subprocess.run(
        ["ssh-keygen", "-lf", bed.host.keys / "host.pub"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert listed.stdout.split()[1] in caught.value.what
    accept(caught.value.hint)
    assert host_of(config).run("echo in", timeout_s=10).stdout == b"in\n"


def test_a_changed_key_is_refused_and_the_hint_replaces_it(bed, tmp_path):
    config = config_through(bed, bed.host.port, tmp_path)
    (tmp_path / "known_hosts").write_text(bed.host.known_as("wired", key="client"))
    with pytest.raises(HostKeyMismatch, match="is not the one on file") as caught:
        host_of(config).run("true", timeout_s=10)
    accept(caught.value.hint)
    assert host_of(config).run("echo in", timeout_s=10).stdout == b"in\n"


def accept(hint: str) -> None:
    command = hint.split("accept the key with:\n")[1]
    subprocess.run(["bash", "-c", command], check=True, capture_output=True)


def test_a_revoked_key_is_refused(bed, tmp_path):
    config = config_through(bed, bed.host.port, tmp_path)
    line = bed.host.known_as("wired")
    (tmp_path / "known_hosts").write_text(f"{line}@revoked {line}")
    with pytest.raises(HostKeyMismatch, match="revoked"):
        host_of(config).run("true", timeout_s=10)


def test_known_hosts_files_as_people_have_them(bed, tmp_path):
    config = config_through(bed, bed.host.port, tmp_path)
    known = tmp_path / "known_hosts"
    damaged = "@cert-authority *.example.org ssh-rsa AAAA\nsomebody ssh-rsa !!!\n\n# remark\n"
    for names in ("wired", "other,wired", "wir*", "*,!nobody"):
        known.write_text(damaged + bed.host.known_as(names))
        assert host_of(config).run("true", timeout_s=10).status == 0, names
    known.write_text(bed.host.known_as("*,!wired"))
    with pytest.raises(HostKeyMismatch):
        host_of(config).run("true", timeout_s=10)
    known.write_text(bed.host.known_as("wired"))
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", known], check=True, capture_output=True)
    assert "wired" not in known.read_text()
    assert host_of(config).run("true", timeout_s=10).status == 0


def test_of_several_keys_the_host_is_asked_for_the_one_that_is_known(bed, tmp_path):
    config = config_through(bed, bed.host.port, tmp_path)
    (tmp_path / "known_hosts").write_text(bed.host.known_as("wired", key="host_ecdsa"))
    assert host_of(config).run("true", timeout_s=10).status == 0


# --- may we in?


def test_a_login_that_is_refused_names_the_keys_that_were_tried(bed, tmp_path):
    make_key(tmp_path / "stranger")
    make_key(tmp_path / "sealed", passphrase="secret")
    config = with_keys(bed, tmp_path, "stranger", "sealed")
    with pytest.raises(LoginRefused) as caught:
        host_of(config).run("true", timeout_s=10)
    assert f"{tmp_path}/stranger refused" in caught.value.what
    assert f"ssh-add {tmp_path}/sealed" in caught.value.what


def test_a_key_of_the_agent_is_used(bed, tmp_path, monkeypatch):
    socket = tmp_path / "agent"
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        wait_for(socket.exists)
        subprocess.run(["ssh-add", "-q", bed.host.keys / "client"], check=True)
        config = with_keys(bed, tmp_path, "none-such")
        with pytest.raises(LoginRefused, match="there was no key to offer"):
            host_of(config).run("true", timeout_s=10)
        config.write_text(config.read_text().replace("IdentitiesOnly yes", "IdentitiesOnly no"))
        assert host_of(config).run("echo in", timeout_s=10).stdout == b"in\n"
    finally:
        agent.terminate()
        agent.wait(10)


def test_a_login_that_may_not_run_commands_is_told_so(bed, tmp_path):
    make_key(tmp_path / "narrow")
    allowed = bed.host.keys / "authorized_keys"
    before = allowed.read_text()
    public = (tmp_path / "narrow.pub").read_text()
    try:
        allowed.write_text(f'{before}restrict,command="echo only this" {public}')
        exchange = host_of(with_keys(bed, tmp_path, "narrow")).run("echo mine", timeout_s=10)
        assert exchange.stdout == b"only this\n"  # the marker of pct.py tells that it was not ours
    finally:
        allowed.write_text(before)


def with_keys(bed: Bed, folder: Path, *names: str) -> Path:
    config = config_through(bed, bed.host.port, folder)
    mine = "\n".join(f"  IdentityFile {folder}/{name}" for name in names)
    text = re.sub(r"  IdentityFile .*", mine, config.read_text())
    config.write_text(text)
    return config


# --- the way there


def test_nobody_listens(bed, tmp_path):
    gone = Relay(("127.0.0.1", 9))
    port = gone.port
    gone.close()
    with pytest.raises(HostUnreachable, match="refused") as caught:
        host_of(config_through(bed, port, tmp_path)).run("true", timeout_s=10)
    assert caught.value.changed == "no"


def test_a_name_that_means_nothing(bed, tmp_path):
    config = config_through(bed, bed.host.port, tmp_path)
    config.write_text(config.read_text().replace("127.0.0.1", "no-such-host.invalid"))
    with pytest.raises(HostUnreachable):
        host_of(config).run("true", timeout_s=10)


def test_somebody_accepts_and_never_speaks(wired, relay):
    relay.freeze()
    begin = time.monotonic()
    with pytest.raises(HostUnreachable):
        wired.run("true", timeout_s=60)
    assert time.monotonic() - begin < 8  # ConnectTimeout is 3


JUMP = """
Host behind
  HostName 127.0.0.1
  Port {port}
  User root
  HostKeyAlias wired
  IdentityFile {key}
  UserKnownHostsFile {known}
  ConnectTimeout 3
  ProxyJump pve
"""


@pytest.fixture
def behind(bed, relay, tmp_path):
    """A host behind a jump host; the wire between the two can be cut and frozen."""
    key, known = bed.host.keys / "client", tmp_path / "known_hosts"
    further = JUMP.format(port=relay.port, key=key, known=known)
    made = host_of(config_through(bed, bed.host.port, tmp_path, further), "behind", dead_after_s=3)
    yield made
    made.close()


def test_through_a_jump_host(behind, relay):
    data = os.urandom(2_000_000)
    assert behind.run("cat", stdin=data, timeout_s=30).stdout == data
    assert relay.accepted == 1


def test_time_outs_hold_through_a_jump_host(behind, relay):
    relay.freeze()
    begin = time.monotonic()
    with pytest.raises(HostUnreachable, match="through pve"):
        behind.run("true", timeout_s=60)
    assert time.monotonic() - begin < 8


def test_silence_behind_a_jump_host_is_noticed(behind, relay):
    behind.run("true", timeout_s=10)
    threading.Timer(0.5, relay.freeze).start()
    begin = time.monotonic()
    exchange = behind.run("sleep 60", timeout_s=60)
    assert (exchange.outcome, exchange.connected) == ("lost", False)
    assert time.monotonic() - begin < 6


# --- and when it breaks


def test_a_lost_connection_is_lost_and_never_a_success(host, bed):
    host.run("true", timeout_s=10)
    threading.Timer(0.5, faults.kill_sessions, [bed]).start()
    begin = time.monotonic()
    exchange = host.run("echo begun; sleep 20", timeout_s=60)
    assert (exchange.outcome, exchange.status, exchange.stdout) == ("lost", None, b"begun\n")
    assert time.monotonic() - begin < 5
    assert host.run("echo again", timeout_s=10).stdout == b"again\n"


def test_a_connection_that_died_between_commands_is_made_again(host, bed, tmp_path):
    for _ in range(3):
        assert host.run(f"echo once >>{tmp_path}/lines", timeout_s=10).status == 0
        faults.kill_sessions(bed)
        time.sleep(0.2)
    assert (tmp_path / "lines").read_text() == "once\n" * 3


def test_a_frozen_sshd_costs_no_more_than_its_time_outs(wired, bed):
    wired.run("true", timeout_s=10)
    with faults.frozen_sshd(bed):
        begin = time.monotonic()
        with pytest.raises(HostUnreachable):
            wired.run("true", timeout_s=60)
        assert time.monotonic() - begin < 12  # 5 s for a session, then 3 s for a new connection


def test_a_dead_network_and_a_frozen_host_are_noticed_in_15_s(tmp_path_factory, bed, tmp_path):
    """With the settings that a run has; both at once, because both take their time."""
    frozen = host_of(bed.host.ssh_config)
    with ThreadPoolExecutor(1) as pool, dark_network(tmp_path_factory) as (network, far):
        frozen.run("true", timeout_s=10)
        noticed = pool.submit(lost_after, frozen)
        time.sleep(0.5)
        with faults.frozen_sshd(bed):
            network.as_client(lambda: far.run("true", timeout_s=10))
            threading.Timer(0.5, network.pull).start()
            assert network.as_client(lambda: lost_after(far)) < 15
            assert noticed.result() < 15
        network.plug()
        wait_for(lambda: network.as_client(lambda: answers(far)))
        far.close()
    frozen.close()


def answers(host: Host) -> bool:
    try:
        return host.run("true", timeout_s=30).status == 0
    except HostUnreachable:
        return False


def lost_after(host: Host) -> float:
    begin = time.monotonic()
    exchange = host.run("sleep 60", timeout_s=60)
    assert (exchange.outcome, exchange.connected) == ("lost", False)
    return time.monotonic() - begin


class dark_network:  # noqa: N801  # used like a function
    """A host in a network of its own, and the cable to it."""

    def __init__(self, tmp_path_factory) -> None:
        self._network = Network()
        folder = tmp_path_factory.mktemp("dark")
        self._bed = Bed.make(folder, namespace=self._network.host, address=HOST_ADDRESS)

    def __enter__(self) -> tuple[Network, Host]:
        self._bed.start()
        return self._network, host_of(self._bed.host.ssh_config)

    def __exit__(self, *_) -> None:
        self._bed.stop()
        self._network.close()


PATIENT = """
import sys
from pathlib import Path
from helpers.reach.ssh import Host
from helpers.reach.ssh_settings import resolve
host = Host(resolve("pve", config=Path(sys.argv[1])), dead_after_s=1.5)
print(host.run("echo begun >$0; sleep 4; echo done".replace("$0", sys.argv[2]), timeout_s=30))
host.close()
"""


def test_a_program_that_was_stopped_meanwhile_does_not_blame_the_host(bed, tmp_path):
    marker = tmp_path / "begun"
    argv = [sys.executable, "-c", PATIENT, str(bed.host.ssh_config), shlex.quote(str(marker))]
    program = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
    wait_for(marker.exists)
    program.send_signal(signal.SIGSTOP)
    time.sleep(2.5)
    program.send_signal(signal.SIGCONT)
    assert "outcome='exited', status=0, stdout=b'done\\n'" in program.communicate(timeout=30)[0]


def wait_for(happened, patience_s: float = 20) -> None:
    until = time.monotonic() + patience_s
    while not happened():
        assert time.monotonic() < until
        time.sleep(0.05)
