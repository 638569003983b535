"""A container behind a Proxmox host: every command through ssh and ``pct exec``, and nowhere else.

Each command first makes sure, inside the container and by reading only, that this is the container
that is meant. What came of it is told by marks and not by exit codes alone. This room must not know
what the commands are for.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from helpers.errors import ContainerNotFound, RunbookError, TargetError, WrongTarget
from helpers.reach.channel import Exchange
from helpers.reach.command import Command, CommandResult, End
from helpers.reach.container import Container, Observer, OnOutput
from helpers.reach.marks import MarkedStream
from helpers.reach.pct_words import refusal
from helpers.reach.proxmox import Proxmox
from helpers.reach.quoting import CannotBeSent, Meant, pct_exec_line
from helpers.reach.ssh import Host

_GRACE_S = 3
_KILL_TIMEOUT_S = 20.0
# Ends the shell around a command and everything below it, found by the token in its command line: a
# number alone could be somebody else's by now. Exit code 0 = nothing of it is left.
_KILL = r"""
token=$1 grace=$2 self=$$
roots() {
  local pid words
  for pid in /proc/[0-9]*; do
    pid=${pid#/proc/}; [ "$pid" != "$self" ] || continue
    { words=$(tr '\0' ' ' <"/proc/$pid/cmdline"); } 2>/dev/null || continue
    case $words in "bash -c "*"$token started"*) echo "$pid";; esac
  done
}
tree() {
  local child
  for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do tree "$child"; done
  echo "$1"
}
pids=$(for root in $(roots); do tree "$root"; done)
left() { local pid; for pid in $pids; do
  case $(cut -d')' -f2 "/proc/$pid/stat" 2>/dev/null) in ''|' Z'*|' X'*) ;; *) return 0;; esac; done
  return 1; }
kill -TERM $pids 2>/dev/null
for ((i = 0; i < grace * 10; i++)); do left || exit 0; sleep 0.1; done
kill -KILL $pids 2>/dev/null
for ((i = 0; i < 20; i++)); do left || exit 0; sleep 0.1; done
exit 1
"""


class _Sent:
    """A command on its way, and what is heard of it."""

    def __init__(
        self, command: Command, where: str, on_stdout: OnOutput | None, on_stderr: OnOutput | None
    ) -> None:
        self.token = secrets.token_hex(8)
        self.out = MarkedStream(self.token, on_stdout)
        self.err = MarkedStream(self.token, on_stderr)
        self._command, self._where = command, where
        self._started_at, self._start = datetime.now(UTC).isoformat(), time.monotonic()

    def result(
        self, end: End, returncode: int | None = None, *, stderr: bytes | None = None
    ) -> CommandResult:
        """All that is known of it."""
        return CommandResult(
            self._command,
            self._where,
            end,
            returncode,
            bytes(self.out.output),
            bytes(self.err.output) if stderr is None else stderr,
            self._started_at,
            time.monotonic() - self._start,
        )


class PctContainer(Container):
    """A container of a Proxmox host.

    Args:
        name: how people call it.
        host: the way to its host.
        vmid: its number there.
        meant: what it must say of itself before anything runs in it.
        environment: variables of every command, besides the declared ones.
        observer: called with the result of every command.
    """

    def __init__(
        self,
        name: str,
        host: Host,
        vmid: int,
        *,
        meant: Meant,
        environment: Mapping[str, str] | None = None,
        observer: Observer | None = None,
    ) -> None:
        super().__init__(name, observer)
        self.host = host
        self.vmid = vmid
        self.proxmox = Proxmox(host, vmid, hostname=meant.hostname, observer=self.observe)
        self._meant = meant
        self._environment = dict(environment or {})
        self._may_change = False

    def close(self) -> None:
        """End the connection to the host; a further command makes a new one."""
        self.host.close()

    def _execute(
        self, command: Command, on_stdout: OnOutput | None, on_stderr: OnOutput | None
    ) -> CommandResult:
        if command.changes and not self._may_change:
            self.proxmox.require()  # exec itself does not look whether a backup holds the container
            self._may_change = True
        sent = _Sent(command, self.name, on_stdout, on_stderr)
        try:
            line = self._line(command, sent.token)
        except CannotBeSent as error:
            return sent.result("not_started", stderr=str(error).encode())
        try:
            exchange = self.host.run(
                line,
                stdin=command.stdin,
                timeout_s=command.timeout_s,
                on_stdout=sent.out.feed,
                on_stderr=sent.err.feed,
            )
        except RunbookError:
            raise  # nothing was sent
        except BaseException:  # interrupted: nothing of it may go on unseen
            self._kill(sent.token)
            raise
        return self._told(sent, exchange)

    def _told(self, sent: _Sent, exchange: Exchange) -> CommandResult:
        """What came of it, by what the marks say."""
        sent.out.close()
        sent.err.close()
        if sent.err.stranger is not None:
            raise self._stranger(sent.err.stranger)
        if exchange.outcome == "timed_out":
            gone = exchange.connected and self._kill(sent.token)
            return sent.result("timed_out" if gone else "unknown")
        if sent.err.returncode is not None:
            return sent.result("exited", sent.err.returncode)
        if sent.err.absent:
            return sent.result("not_started", stderr=bytes(sent.err.before))
        if sent.err.pid is None and exchange.outcome == "exited":
            raise self._refused(exchange, bytes(sent.err.before))
        return sent.result("unknown")

    def _line(self, command: Command, token: str) -> str:
        return pct_exec_line(
            self.vmid, command, token=token, meant=self._meant, environment=self._environment
        )

    def _kill(self, token: str) -> bool:
        """End what a command started; False when it is not known to have ended."""
        command = Command(
            ("bash", "-c", _KILL, "kill", token, str(_GRACE_S)), purpose="end a command"
        )
        own = secrets.token_hex(8)
        try:
            done = self.host.run(self._line(command, own), timeout_s=_KILL_TIMEOUT_S)
        except RunbookError:  # no way there any more: then it is not known
            return False
        marks = MarkedStream(own, None)
        marks.feed(done.stderr)
        return marks.returncode == 0

    def _refused(self, exchange: Exchange, said: bytes) -> RunbookError:
        error = refusal(self.host.name, self.vmid, exchange.status, said.decode("utf-8", "replace"))
        if isinstance(error, ContainerNotFound):
            try:
                self.proxmox.require()
            except TargetError as known_better:  # perhaps another member of the cluster has it
                return known_better
        return error

    def _stranger(self, told: str) -> WrongTarget:
        return WrongTarget(
            f"Container {self.vmid} on {self.host.name} is not the one that is meant. It says "
            f"hostname and {self._meant.marker_file}: {told}; declared are "
            f"{self._meant.hostname} and {self._meant.marker}.",
            hint="Nothing ran in it. Check vmid, hostname and identity in the target file.",
        )
