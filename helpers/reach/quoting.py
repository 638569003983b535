"""Words that arrive byte for byte: through ssh, the host's shell, pct and a shell in the container.

pct decodes its arguments by the host's locale and in the C locale corrupts every byte above 127, so
what it is given is printable ASCII only. This room knows shells and nothing of connections.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from helpers.reach.command import Command

# sshd hands the whole line to the shell as one argument, which Linux limits to 131,071 bytes.
LONGEST_LINE_BYTES = 130_000

# `pct exec` keeps the host's environment, with a PATH that lacks /usr/local/bin; this one is ours.
DECLARED_ENVIRONMENT: Mapping[str, str] = {
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "container": "lxc",
    "PATH": "/root/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
}

_PLAIN = re.compile(rb"[A-Za-z0-9_@%+=:,./-]+\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

# Refuses to go on in another container than the one meant. Reading is all it does, with the shell's
# own means: no other program is started before this is settled.
_GUARD = (
    "read -r h </proc/sys/kernel/hostname; m=; "
    "[ -r {file} ] && read -r -d '' m <{file}; "
    "[[ $h == {hostname} && $m == {marker} ]] || "
    '{{ printf \'\\036{token} stranger %q %q\\036\' "$h" "$m" >&2; exit 125; }}; '
)
_ABSENT = "{{ echo {why} >&2; printf '\\036{token} absent\\036' >&2; exit 126; }}; "
# Said on both streams: a host whose login greets people puts that before it.
_STARTED = (
    "printf '\\036{token} started %d\\036' \"$$\"; "
    "printf '\\036{token} started %d\\036' \"$$\" >&2; "
)
# The command is a child and not the shell itself, so that its end can be told from the shell's: the
# shell says how it ended. The shell's own remarks ("Killed") do not belong to the command.
_RUN = (
    "{{ (exec -- {argv} 2>&3 3>&-); r=$?; }} 3>&2 2>/dev/null; "
    'printf \'\\036{token} ended %d\\036\' "$r" >&2; exit "$r"'
)


class CannotBeSent(ValueError):
    """The command cannot travel: a NUL byte, a bad variable name, or too long a line."""


@dataclass(frozen=True)
class Meant:
    """The container that is meant: what it must say of itself before anything runs in it."""

    hostname: str
    marker_file: str
    marker: str


def bash_word(text: str | bytes) -> str:
    """One word for bash, in printable ASCII and on one line. **Changes:** nothing.

    Args:
        text: any bytes but NUL; text is UTF-8 with undecodable bytes escaped as Python does it.
    """
    raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    if b"\0" in raw:
        raise CannotBeSent("an argument cannot hold a NUL byte")
    if _PLAIN.match(raw):
        return raw.decode()
    if all(32 <= byte < 127 for byte in raw):
        return shlex.quote(raw.decode())
    plain = (chr(b) if 32 <= b < 127 and b not in b"\\'" else f"\\{b:03o}" for b in raw)
    return "$'" + "".join(plain) + "'"


def pct_exec_line(
    vmid: int,
    command: Command,
    *,
    token: str,
    meant: Meant | None,
    environment: Mapping[str, str],
) -> str:
    """The line for the host's shell that runs a command in a container. **Changes:** nothing.

    Args:
        vmid: the container's number.
        command: what to run.
        token: marks what the line itself says on standard error; see ``marks``.
        meant: None = whichever container has this number.
        environment: variables that every command gets, besides its own.

    Raises:
        CannotBeSent: see there.
    """
    if not command.argv:
        raise CannotBeSent("there is no program to run")
    script = _guard(meant, token) if meant else ""
    program, folder = bash_word(command.argv[0]), bash_word(command.cwd or "")
    if command.cwd is None:
        script += "cd 2>/dev/null || cd /; "  # pct would keep the folder it was started in
    else:
        why = bash_word(f"there is no folder {command.cwd} that can be entered")
        script += f"cd -- {folder} 2>/dev/null || " + _ABSENT.format(why=why, token=token)
    script += "unset OLDPWD; "
    for name, value in {**environment, **command.env}.items():
        if not _NAME.match(name):
            raise CannotBeSent(f"{name!r} is no name for a variable")
        script += f"export {name}={bash_word(value)}; "
    why = bash_word(f"{command.argv[0]} is no program that can be run")
    script += f"type -P -- {program} >/dev/null || " + _ABSENT.format(why=why, token=token)
    script += _STARTED.format(token=token)
    argv = " ".join(map(bash_word, command.argv))
    script += _RUN.format(argv=argv, token=token)
    clean = [f"{name}={value}" for name, value in DECLARED_ENVIRONMENT.items()]
    inside = ["env", "-i", *clean, "bash", "-c", script]
    return host_line(["pct", "exec", str(vmid), "--", *inside])


def _guard(meant: Meant, token: str) -> str:
    return _GUARD.format(
        file=bash_word(meant.marker_file),
        hostname=_pattern(meant.hostname),
        marker=_pattern(meant.marker.strip()),
        token=token,
    )


def _pattern(text: str) -> str:
    """A word that ``==`` compares literally: quoted, also when it is plain or empty."""
    word = bash_word(text)
    return word if word.startswith(("'", "$'")) else f"'{word}'"


def digest_script(path: str) -> str:
    """A piece of shell that prints the SHA-256 of a file. **Changes:** nothing.

    openssl, where it is at hand, is several times as fast as sha256sum.
    """
    file = shlex.quote(path)
    return f"(openssl dgst -sha256 -r <{file} || sha256sum <{file}) 2>/dev/null | cut -c1-64"


def host_line(words: Sequence[str]) -> str:
    """A line for the host's shell; it must be such that pct hands it on unchanged.

    Raises:
        CannotBeSent: it is not printable ASCII, or too long.
    """
    line = shlex.join(words)
    if not (line.isascii() and line.isprintable()):
        raise CannotBeSent("the line for the host is not printable ASCII")
    if len(line) > LONGEST_LINE_BYTES:
        raise CannotBeSent(
            f"the line for the host has {len(line)} bytes, {LONGEST_LINE_BYTES} is the most; "
            "send data through standard input"
        )
    return line
