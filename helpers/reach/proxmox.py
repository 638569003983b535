"""What the Proxmox host itself can say and do about one container: look, snapshot, roll back.

Only the subcommands below are ever run on the host, each with its words fixed here. A lock is never
taken away. This room must not know what happens inside the container.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from helpers.errors import (
    ContainerElsewhere,
    OutcomeUnknown,
    ParameterError,
    PreconditionFailed,
    RunbookError,
    WrongTarget,
)
from helpers.reach import pct_words
from helpers.reach.cleaning import and_then
from helpers.reach.command import Command, CommandResult
from helpers.reach.container import Observer
from helpers.reach.pct_words import Listed, Snapshot
from helpers.reach.quoting import digest_script, host_line
from helpers.reach.ssh import Host

# One round trip tells everything: is there a pct, which member of the cluster has the container,
# how it is. The mark comes after whatever a login on this host says first.
_LOOK = """\
command -v pct >/dev/null || {{ echo pct: not found >&2; exit 127; }}; \
printf '\\036'; hostname; echo /etc/pve/nodes/*/lxc/{vmid}.conf; \
pct status {vmid} && pct config {vmid}"""
_NODE = re.compile(r"/etc/pve/nodes/([^/*]+)/lxc/")
_SNAPSHOT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{1,39}\Z")


@dataclass(frozen=True)
class Found:
    """A container that is there, is running and is free.

    Attributes:
        node: the host's own name.
        config: its settings.
    """

    node: str
    config: dict[str, str]

    @property
    def hostname(self) -> str | None:
        """The name the host gives it."""
        return self.config.get("hostname")

    @property
    def unprivileged(self) -> bool:
        """Whether its root is somebody else on the host."""
        return self.config.get("unprivileged") == "1"


class Proxmox:
    """One container, seen from its host.

    Args:
        host: the way to the host.
        vmid: the container's number.
        hostname: what the container must be called.
        observer: called with the result of every command.
    """

    def __init__(
        self, host: Host, vmid: int, *, hostname: str, observer: Observer | None = None
    ) -> None:
        self._host = host
        self._vmid = vmid
        self._hostname = hostname
        self._observer = observer

    def require(self) -> Found:
        """Make sure that the container is there, is the one meant, is running and is not locked.

        **Runs on:** host. **Changes:** nothing.

        Raises:
            WrongTarget: the host has no pct, or calls the container by another name.
            ContainerNotFound: there is no such container.
            ContainerElsewhere: another member of the cluster has it.
            ContainerLocked: a backup, a snapshot or a migration is at work on it.
            ContainerNotRunning: it is stopped.
        """
        line, vmid, host = _LOOK.format(vmid=self._vmid), self._vmid, self._host.name
        result = self._sent(line, ("pct", "status", str(vmid)), f"look for container {vmid}")
        node, _, rest = result.text.rpartition("\x1e")[2].partition("\n")
        elsewhere = [n for n in _NODE.findall(rest.partition("\n")[0]) if n != node]
        if result.returncode:
            if elsewhere:
                raise ContainerElsewhere(
                    f"Container {vmid} is not on {host} but on its neighbour {elsewhere[0]}.",
                    hint=f"Name {elsewhere[0]} as the host in the target file, or migrate it back.",
                )
            raise self._refused(result)
        config = pct_words.read_config(rest)
        if config.get("hostname") != self._hostname:
            raise WrongTarget(
                f"Container {vmid} on {host} is called {config.get('hostname')}, "
                f"not {self._hostname}.",
                hint="Check vmid and hostname in the target file: this is another container.",
            )
        if lock := config.get("lock"):
            raise pct_words.locked(host, vmid, lock)
        if pct_words.read_state(rest) != "running":
            raise pct_words.not_running(host, vmid)
        return Found(node, config)

    def containers(self) -> tuple[Listed, ...]:
        """The containers on the host. **Runs on:** host. **Changes:** nothing."""
        return pct_words.read_list(self._pct("list", purpose="list the containers").text)

    def snapshots(self) -> tuple[Snapshot, ...]:
        """The container's snapshots, oldest first. **Runs on:** host. **Changes:** nothing."""
        result = self._pct("listsnapshot", str(self._vmid), purpose="list the snapshots")
        return pct_words.read_snapshots(result.text)

    def snapshot(self, name: str, description: str) -> None:
        """Take a snapshot; the container is frozen meanwhile.

        **Runs on:** host. **Changes:** a new snapshot of the container.

        Args:
            name: letters, digits, ``_`` and ``-``, beginning with a letter.
            description: printable ASCII.

        Raises:
            PreconditionFailed: this container cannot be snapshotted.
            ContainerLocked: something is at work on it.
        """
        self._change("snapshot", _checked(name), "--description", description)

    def rollback(self, name: str) -> None:
        """Go back to a snapshot and start the container again.

        **Runs on:** host. **Changes:** the whole container; what ran in it is killed.

        Raises:
            ContainerLocked: something is at work on it.
        """
        self._change("rollback", _checked(name))
        self._change("start")

    def push(self, data: bytes, path: str) -> None:
        """Bring bytes into the container by sftp and ``pct push``, checked on the host.

        ``pct push`` says nothing when it fails: whoever calls this looks at what has arrived.

        **Runs on:** host. **Changes:** ``path`` in the container; the host's copy is removed again.

        Args:
            data: what to bring.
            path: printable ASCII; a name that nobody else uses.

        Raises:
            PreconditionFailed: the host's /tmp took no file, or not all of it.
            ContainerNotRunning, ContainerLocked: as pct says.
        """
        copy = f"/tmp/recover-{secrets.token_hex(8)}"
        remove = ("rm", "-f", copy)
        with and_then(lambda: self._sent(host_line(remove), remove, "remove it", changes=True)):
            self._put(data, copy)
            words = ("pct", "push", str(self._vmid), copy, path, "--perms", "600")
            want = hashlib.sha256(data).hexdigest()
            line = f'[ "$({digest_script(copy)})" = {want} ] || exit 66; {host_line(words)}'
            result = self._sent(line, words, "pct push an archive", changes=True)
        if result.returncode == 66:
            raise self._no_room("what was written there is not what was sent")
        if result.returncode:
            raise self._refused(result)

    def _put(self, data: bytes, copy: str) -> None:
        try:
            self._host.put(data, copy)
        except OSError as error:
            raise self._no_room(str(error)) from error

    def _no_room(self, why: str) -> PreconditionFailed:
        return PreconditionFailed(
            f"The host {self._host.name} could not take a file in /tmp: {why}.",
            hint="Check the free space of /tmp on the host, or deploy without the detour.",
        )

    def _change(self, subcommand: str, *words: str) -> None:
        purpose = f"{subcommand} {' '.join((f'container {self._vmid}', *words[:1]))}"
        self._pct(subcommand, str(self._vmid), *words, purpose=purpose, changes=True)

    def _pct(self, *words: str, purpose: str, changes: bool = False) -> CommandResult:
        argv = ("pct", *words)
        result = self._sent(host_line(argv), argv, purpose, changes=changes)
        if result.returncode:
            raise self._refused(result)
        return result

    def _refused(self, result: CommandResult) -> RunbookError:
        said = result.stderr.decode("utf-8", "replace")
        return pct_words.refusal(self._host.name, self._vmid, result.returncode, said)

    def _sent(
        self, line: str, argv: tuple[str, ...], purpose: str, *, changes: bool = False
    ) -> CommandResult:
        command = Command(argv, purpose, timeout_s=600 if changes else 60, changes=changes)
        started_at, start = datetime.now(UTC).isoformat(), time.monotonic()
        exchange = self._host.run(line, timeout_s=command.timeout_s)
        exited = exchange.outcome == "exited"
        result = CommandResult(
            command,
            f"{self._host.name} (host)",
            "exited" if exited else "unknown",
            exchange.status,
            exchange.stdout,
            exchange.stderr,
            started_at,
            time.monotonic() - start,
        )
        if self._observer is not None:
            self._observer(result)
        if not exited:
            raise OutcomeUnknown(
                f"The host {self._host.name} did not say how it went: {purpose}.",
                result=result,
                hint=f"Look on the host: pct status {self._vmid}, pct listsnapshot {self._vmid}.",
                changed="unknown" if changes else "no",
            )
        return result


def _checked(name: str) -> str:
    if not _SNAPSHOT_NAME.match(name):
        raise ParameterError(
            f"{name!r} is no name for a snapshot.",
            hint="Use 2 to 40 letters, digits, _ and -, beginning with a letter.",
        )
    return name
