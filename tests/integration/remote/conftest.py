"""One test bed for all tests of the way to a container; see ``tests/testbed``."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from helpers.reach.container import Observer
from helpers.reach.pct import PctContainer
from helpers.reach.quoting import Meant
from helpers.reach.ssh import Host
from helpers.reach.ssh_settings import resolve
from helpers.sandbox.bed.host import missing_tools
from tests.testbed import Bed
from tests.testbed.relay import Relay

RUNNING, STOPPED, UNPRIVILEGED, WITH_BIND_MOUNT = 100, 101, 103, 105


_used: list[str] = []  # what ran the containers: said at the end, since it decides what was proven


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what ran the containers."""
    for line in dict.fromkeys(_used):
        terminalreporter.write_line(f"test bed: {line}")


def wanted_backend() -> Literal["lxc", "namespaces"] | None:
    """What is to run the containers, where somebody wants it otherwise than the machine offers."""
    return "namespaces" if os.environ.get("RECOVER_TESTBED") == "namespaces" else None


def note_backend(bed: Bed) -> None:
    """Remember it for the summary."""
    why = f", since LXC did not start: {bed.why_not_lxc.strip()}" if bed.why_not_lxc else ""
    _used.append(f"containers by {bed.backend}{why}")


@pytest.fixture(scope="session")
def bed() -> Iterator[Bed]:
    """Containers 100 (running), 101 (stopped), 103 (unprivileged, running), 105 (bind mount)."""
    if lacking := missing_tools():
        pytest.fail(f"The test bed needs {', '.join(lacking)}; .ci/run installs the packages.")
    # Not in pytest's own folder: an unprivileged container's root must get through to its files.
    folder = Path(tempfile.mkdtemp(prefix="bed-", dir="/var/tmp"))
    made = Bed.make(folder, backend=wanted_backend())
    for vmid in (RUNNING, STOPPED):
        made.add_container(vmid)
    made.add_container(UNPRIVILEGED, unprivileged=True)
    made.add_container(WITH_BIND_MOUNT, settings="mp0: /srv/data,mp=/data\n")
    try:
        made.start(RUNNING, UNPRIVILEGED)
        note_backend(made)
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder)


@pytest.fixture
def host(bed) -> Iterator[Host]:
    """The bed's host, reached the way a person's ssh would reach it."""
    made = Host(resolve("pve", config=bed.host.ssh_config), dead_after_s=6)
    yield made
    made.close()


@pytest.fixture
def relay(bed) -> Iterator[Relay]:
    """A wire to the bed's sshd that can be cut and frozen."""
    made = Relay((bed.host.address, bed.host.port))
    yield made
    made.close()


@pytest.fixture
def wired(bed, relay, tmp_path) -> Iterator[Host]:
    """The same host, at the other end of that wire."""
    made = Host(resolve("pve", config=config_through(bed, relay.port, tmp_path)), dead_after_s=3)
    yield made
    made.close()


def config_through(bed: Bed, port: int, folder: Path, further: str = "") -> Path:
    """An ssh configuration that reaches the bed's host at another port."""
    known = folder / "known_hosts"
    known.write_text(bed.host.known_as("wired"))
    path = folder / "ssh_config"
    text = bed.host.ssh_config.read_text().replace(f"Port {bed.host.port}", f"Port {port}")
    text = text.replace(str(bed.host.keys / "known_hosts"), str(known))
    path.write_text(text + "  HostKeyAlias wired\n  ConnectTimeout 3\n" + further)
    return path


def pct_container(
    bed: Bed, host: Host, vmid: int, observer: Observer | None = None
) -> PctContainer:
    """A container of the bed, known by its host name and its machine-id."""
    meant = Meant(f"ct{vmid}", "/etc/machine-id", bed.machine_id(vmid))
    return PctContainer(f"container {vmid}", host, vmid, meant=meant, observer=observer)


@pytest.fixture
def container(bed, host) -> PctContainer:
    """The running, privileged one."""
    return pct_container(bed, host, RUNNING)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here needs the bed: root, sshd and LXC."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.remote)
