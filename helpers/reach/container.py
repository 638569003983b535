"""The one small interface to a container, and what every kind of container shares.

A recovery stage speaks to the container through this class only; it must not know which kind it is. This
room knows nothing of runs, stages or verdicts: commands reach the journal through a callback.
"""

from __future__ import annotations

import hashlib
import logging
import posixpath
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from helpers.errors import Changed, CommandError, CommandFailed, CommandTimedOut, OutcomeUnknown
from helpers.reach.command import Command, CommandResult

_log = logging.getLogger(__name__)

Observer = Callable[[CommandResult], None]
OnOutput = Callable[[bytes], None]

# Writes standard input to a temporary name beside the destination, checks it there, then renames: a reader
# of the destination sees the old bytes or the new bytes, and the old bytes stay when anything goes wrong.
_PUSH = """
set -eu
folder=$1 name=$2 want=$3 mode=$4 part=$1/.$2.$5.part
[ ! -d "$folder/$name" ] || { echo "$folder/$name is a directory" >&2; exit 65; }
trap 'rm -f -- "$part"' EXIT
umask 077
cat >"$part"
got=$(sha256sum <"$part"); got=${got%% *}
[ "$got" = "$want" ] || { echo "the content changed on the way: $got is not $want" >&2; exit 66; }
chmod -- "$mode" "$part"; sync -- "$part"; mv -fT -- "$part" "$folder/$name"; sync -- "$folder"
"""


def ended(result: CommandResult) -> CommandResult:
    """The result of a command that ran to its end by itself; anything else is an error.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        CommandTimedOut, OutcomeUnknown, CommandFailed: as ``Container.run``.
    """
    command, program = result.command, result.command.argv[0]
    changed: Changed = "unknown" if command.changes else "no"
    error: type[CommandError] = CommandFailed
    match result.end:
        case "timed_out":
            error, said = CommandTimedOut, f"Timed out after {command.timeout_s:.0f} s"
            hint = "Read the output below; give the stage more time or find out what it waits for."
        case "unknown":
            error, said = OutcomeUnknown, "The connection was lost during"
            hint = "Look at the target before you run this again."
        case "not_started":
            said, changed = f"Could not start {program}", "no"
            hint = f"Check that {program} exists in the container and may be executed."
        case _:
            return result
    raise error(f"{said}: {command.purpose}.", result=result, hint=hint, changed=changed)


class Container(ABC):
    """A running container.

    Args:
        name: how people call it; written into every result.
        observer: called with the result of every command, before the caller sees it.
    """

    def __init__(self, name: str, observer: Observer | None = None) -> None:
        self.name = name
        self._observer = observer
        self._unrecorded_is_fatal = True

    @contextmanager
    def whatever_the_record(self) -> Iterator[None]:
        """Go on inside although a command cannot be recorded: the way back must not stop half-way.

        **Changes:** nothing in the container.
        """
        before, self._unrecorded_is_fatal = self._unrecorded_is_fatal, False
        try:
            yield
        finally:
            self._unrecorded_is_fatal = before

    @abstractmethod
    def _execute(
        self, command: Command, on_stdout: OnOutput | None, on_stderr: OnOutput | None
    ) -> CommandResult:
        """Run the command to its end, its time-out or the loss of the connection; never raise for those."""

    def run(
        self,
        command: Command,
        *,
        on_stdout: OnOutput | None = None,
        on_stderr: OnOutput | None = None,
        observed: bool = True,
    ) -> CommandResult:
        """Run a command and return what came of it, whatever its exit code.

        **Runs on:** container. **Changes:** what the command changes.

        Args:
            command: what to run.
            on_stdout: called with pieces of standard output as they come.
            on_stderr: called with pieces of standard error as they come.
            observed: False = it is only a means to another command, which is observed itself.

        Raises:
            CommandTimedOut: it was ended at its deadline.
            OutcomeUnknown: the connection was lost after it was sent.
            CommandFailed: the program could not be started.
            TargetError: there is no way to the container; nothing was sent.
        """
        result = self._execute(command, on_stdout, on_stderr)
        if observed:
            self.observe(result)
        return ended(result)

    def close(self) -> None:  # noqa: B027  # not every kind holds something open
        """End what is held open on the way there, if anything. **Changes:** nothing."""

    def observe(self, result: CommandResult) -> None:
        """Tell whoever keeps the record. **Changes:** nothing."""
        if self._observer is None:
            return
        try:
            self._observer(result)
        except OSError:
            if self._unrecorded_is_fatal:
                raise
            _log.exception("could not be recorded: %s", result.command.purpose)

    def check(
        self,
        command: Command,
        *,
        hint: str,
        on_stdout: OnOutput | None = None,
        on_stderr: OnOutput | None = None,
    ) -> CommandResult:
        """Run a command that must succeed.

        **Runs on:** container. **Changes:** what the command changes.

        Args:
            command: what to run.
            hint: what the operator does next when it fails.
            on_stdout: as for ``run``.
            on_stderr: as for ``run``.

        Raises:
            CommandFailed: its exit code was not 0; plus everything that ``run`` raises.
        """
        result = self.run(command, on_stdout=on_stdout, on_stderr=on_stderr)
        if not result.ok:
            raise CommandFailed(
                f"Failed with exit code {result.returncode}: {command.purpose}.",
                result=result,
                hint=hint,
                changed="unknown" if command.changes else "no",
            )
        return result

    def push(self, data: bytes, path: str, *, mode: str = "0644") -> str:
        """Put a file in place whole or not at all, and prove its hash there.

        **Runs on:** container. **Changes:** the file at ``path``; its folder must exist.

        Returns:
            SHA-256 of the data, as the container computed it.

        Raises:
            CommandFailed: the disk is full, the folder is missing, or the content changed on the way; the
                old file stays.
        """
        want = hashlib.sha256(data).hexdigest()
        folder, name = posixpath.split(path)
        argv = ("bash", "-c", _PUSH, "push", folder or "/", name, want, mode, secrets.token_hex(6))
        command = Command(argv, purpose=f"write {path}", stdin=data, timeout_s=600, changes=True)
        self.check(
            command,
            hint="The old file is still in place. Check space and permissions in the container.",
        )
        return want

    def read(self, path: str, *, limit_bytes: int = 16 * 1024 * 1024) -> bytes | None:
        """The content of a file, or None when there is no such file.

        **Runs on:** container. **Changes:** nothing.

        Raises:
            CommandFailed: it exists and cannot be read, or is larger than ``limit_bytes``.
        """
        script = '[ -e "$1" ] || exit 44; [ "$(stat -Lc %s -- "$1")" -le "$2" ] || exit 45; exec cat -- "$1"'
        command = Command(
            ("bash", "-c", script, "read", path, str(limit_bytes)), purpose=f"read {path}"
        )
        result = self.run(command)
        if result.returncode == 44:
            return None
        if not result.ok:
            raise CommandFailed(
                f"Could not read {path} (exit code {result.returncode}).",
                result=result,
                hint="45 means larger than expected; otherwise check its permissions.",
                changed="no",
            )
        return result.stdout
