"""Host keys: is this the host it was last time? Unknown and changed keys are refused, always.

A refusal names the fingerprint and the exact command that accepts the key. This room reads
known_hosts files and writes nothing; it must not know what happens on a connection.
"""

from __future__ import annotations

import fnmatch
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.hostkeys import HostKeyEntry, InvalidHostKey

from helpers.errors import HostKeyMismatch
from helpers.reach.ssh_settings import HostSettings

# A key of type ssh-rsa signs by newer algorithms; its old SHA-1 one is never asked for.
_SIGNED_BY = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}


@dataclass(frozen=True)
class _Line:
    """One line of a known_hosts file that is understood."""

    patterns: tuple[str, ...]
    key: paramiko.PKey
    revoked: bool

    def about(self, name: str) -> bool:
        """Whether the line speaks of this name: hashed, literal, with wildcards or negated."""
        hit = False
        for pattern in self.patterns:
            if pattern.startswith("|1|"):
                hit = hit or paramiko.HostKeys.hash_host(name, pattern) == pattern
            elif pattern.startswith("!") and _fits(name, pattern[1:]):
                return False
            else:
                hit = hit or _fits(name, pattern)
        return hit


class KnownHosts:
    """What is known of one host."""

    def __init__(self, settings: HostSettings) -> None:
        self._settings = settings
        self._lines = list(_read(settings.known_hosts))

    @property
    def name(self) -> str:
        """The name its key is filed under."""
        filed = self._settings.host_key_alias or self._settings.hostname
        plain = self._settings.port == 22 or self._settings.host_key_alias is not None
        return filed if plain else f"[{filed}]:{self._settings.port}"

    def algorithms(self) -> tuple[str, ...]:
        """What to ask the host to sign with: of several keys it has, one that is known here."""
        kinds = dict.fromkeys(line.key.get_name() for line in self._known() if not line.revoked)
        return tuple(a for kind in kinds for a in _SIGNED_BY.get(kind, (kind,)))

    def check(self, key: paramiko.PKey) -> None:
        """Accept the key or refuse it.

        **Runs on:** operator. **Changes:** nothing.

        Raises:
            HostKeyMismatch: it is unknown, changed or revoked.
        """
        same = [line for line in self._known() if line.key.asbytes() == key.asbytes()]
        if any(line.revoked for line in same):
            raise HostKeyMismatch(
                f"The key of {self._settings} is marked as revoked: {_shown(key)}.",
                hint="Do not log in. Ask whoever runs the host why its key was revoked.",
            )
        if same:
            return
        if any(not line.revoked for line in self._known()):
            raise HostKeyMismatch(
                f"The key of {self._settings} is not the one on file. It is now {_shown(key)}.",
                hint="Somebody may be in between, or the host was installed anew: ask. "
                + self._how_to_accept(key, changed=True),
            )
        raise HostKeyMismatch(
            f"The key of {self._settings} is not known here. It is {_shown(key)}.",
            hint=self._how_to_accept(key, changed=False),
        )

    def _known(self) -> list[_Line]:
        found = [line for line in self._lines if line.about(self.name)]
        if found or self._settings.host_key_alias:
            return found
        return [line for line in self._lines if line.about(self._settings.hostname)]

    def _how_to_accept(self, key: paramiko.PKey, *, changed: bool) -> str:
        kind = key.get_name().removeprefix("ssh-").partition("-")[0]
        files = self._settings.known_hosts
        file = shlex.quote(str(files[0] if files else Path("~/.ssh/known_hosts").expanduser()))
        line = shlex.quote(f"{self.name} {key.get_name()} {key.get_base64()}")
        command = f"printf '%s\\n' {line} >> {file}"
        if changed:
            command = f"ssh-keygen -R {shlex.quote(self.name)} -f {file} && {command}"
        return (
            "Compare the fingerprint on the host's own console "
            f"(ssh-keygen -lf /etc/ssh/ssh_host_{kind}_key.pub). "
            f"If it is the same, accept the key with:\n{command}"
        )


def _fits(name: str, pattern: str) -> bool:
    # Brackets are literal in known_hosts ([host]:port); only * and ? are wild.
    return fnmatch.fnmatchcase(name.lower(), pattern.lower().replace("[", "[[]"))


def _shown(key: paramiko.PKey) -> str:
    return f"{key.get_name()} {key.fingerprint}"


def _read(files: Iterable[Path]) -> Iterator[_Line]:
    for file in files:
        if not file.is_file():
            continue
        for text in file.read_text(encoding="utf-8", errors="replace").splitlines():
            fields = text.split()
            revoked = fields[:1] == ["@revoked"]
            if not fields or (fields[0].startswith(("#", "@")) and not revoked):
                continue  # certificate authorities are not supported: such a host stays unknown
            try:
                entry = HostKeyEntry.from_line(" ".join(fields[1:] if revoked else fields))
            except (InvalidHostKey, paramiko.SSHException, ValueError):
                continue  # a damaged line proves nothing about anybody
            if entry is not None:
                yield _Line(tuple(entry.hostnames or ()), entry.key, revoked)
