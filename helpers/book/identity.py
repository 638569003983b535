"""Is it still the one? The container's marker, and the host and container that this run has met before.

A run meets one host and one container. What they proved to be the first time is kept in ``run.json``;
from then on anything else that answers is refused. This room must not know what a stage does there.
"""

from __future__ import annotations

from helpers.errors import WrongTarget
from helpers.reach.container import Container
from helpers.reach.opening import host_identity
from helpers.record.run_folder import RunFolder
from helpers.target import PctReach, Target

# An address may change; these may not. In the words of a refusal.
_SAID = {
    "host_key": "the host's key",
    "node": "the host's own name",
    "vmid": "the container's number",
    "hostname": "the container's name",
}


def refuse_wrong_target(container: Container, target: Target, folder: RunFolder) -> None:
    """Refuse anything but the declared container, and anything but what this run has met before.

    **Runs on:** host and container. **Changes:** nothing there; the identity goes into ``run.json`` once.

    Raises:
        WrongTarget: the marker is missing or another, or the host or container is not the same as before.
        TargetError: it is not reached, not there, not running, or locked.
    """
    found = host_identity(container)
    refuse_another_host(folder, found)
    refuse_another_marker(container, target)
    if found and folder.asked.host_identity is None:
        folder.keep_host_identity(found)


def refuse_another_host(folder: RunFolder, found: dict[str, str]) -> None:
    """Compare with what this run has met before. **Runs on:** operator. **Changes:** nothing.

    Raises:
        WrongTarget: something is different; it is named.
    """
    known = folder.asked.host_identity
    if known is None:
        return
    differing = [
        f"{said} is {found.get(part)}, it was {known.get(part)}"
        for part, said in _SAID.items()
        if found.get(part) != known.get(part)
    ]
    if differing:
        raise WrongTarget(
            f"This is not what the run {folder.asked.run_id} has met before: {'; '.join(differing)}.",
            hint="Find out what has changed on the way there. If it is meant to be so, start a new run.",
        )


def refuse_another_marker(container: Container, target: Target) -> None:
    """Refuse a container without the declared marker. **Runs on:** container. **Changes:** nothing.

    Raises:
        WrongTarget: the marker is missing or another.
    """
    declared = target.identity
    content = container.read(declared.marker_file)
    found = None if content is None else content.decode("utf-8", "backslashreplace").strip()
    if found != declared.marker.strip():
        remote = isinstance(target.reach, PctReach)
        made = "" if remote else " Is the sandbox made? `recover sandbox create` makes it."
        raise WrongTarget(
            f"This is not the declared container: {declared.marker_file} holds {found!r}, "
            f"declared is {declared.marker!r}.",
            hint=f"Correct the way in or the target's identity.{made}",
        )
