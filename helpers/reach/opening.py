"""From what a target declares to a container that can be spoken to: here all kinds are known.

Opening connects to nothing; the first command does. This room must not know what commands are for.
"""

from __future__ import annotations

from pathlib import Path

from helpers.reach.container import Container, Observer
from helpers.reach.job import JobPlace
from helpers.reach.local import LocalContainer
from helpers.reach.pct import PctContainer
from helpers.reach.quoting import Meant
from helpers.reach.ssh import Host
from helpers.reach.ssh_settings import resolve
from helpers.target import PctReach, SandboxReach, Target


def open_container(target: Target, observer: Observer | None = None) -> Container:
    """The container that a target means.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        target: what is declared about it.
        observer: called with the result of every command.

    Raises:
        ParameterError: the ssh configuration is wrong.
    """
    reach = target.reach
    if isinstance(reach, SandboxReach):
        return LocalContainer(f"{target.name} (a folder of this machine)", observer)
    config = Path(reach.ssh_config).expanduser() if reach.ssh_config else None
    settings = resolve(reach.host, user=reach.user, port=reach.port, config=config)
    identity = target.identity
    return PctContainer(
        f"{target.name} (container {reach.vmid} on {reach.host})",
        Host(settings),
        reach.vmid,
        meant=Meant(reach.hostname, identity.marker_file, identity.marker),
        environment=reach.environment,
        observer=observer,
    )


def job_place(target: Target, name: str) -> JobPlace:
    """Where a job of this name lives in the target's container. **Changes:** nothing."""
    reach = target.reach
    if isinstance(reach, PctReach):
        return JobPlace(f"{reach.staging}/jobs", name)
    root = Path(reach.root).expanduser().resolve()
    return JobPlace(f"{root}/container/var/lib/recover-runbooks/jobs", name)


def host_identity(container: Container) -> dict[str, str]:
    """What tells this host and this container from any other, for the record of a run.

    **Runs on:** host. **Changes:** nothing.

    Returns:
        For a container behind a host: the host's key, its own name, the container's number and
        name. Empty for a folder of this machine.

    Raises:
        TargetError: it is not there, not running, locked, or another one.
    """
    if not isinstance(container, PctContainer):
        return {}
    found = container.proxmox.require()
    return {
        "host": str(container.host.settings),
        "host_key": container.host.key,
        "node": found.node,
        "vmid": str(container.vmid),
        "hostname": str(found.hostname),
    }
