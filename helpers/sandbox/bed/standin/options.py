"""Arguments as ``pct`` understands them: Getopt::Long and PVE::JSONSchema, oddities included.

Knows the shape of every subcommand and nothing of what it does.
"""

from __future__ import annotations

import locale
import re
import sys

Value = bool | str


class Die(Exception):
    """Perl's ``die``: a message on standard error, and the leftover errno or 255 as exit code."""

    def __init__(self, message: str, code: int = 255) -> None:
        super().__init__(message)
        self.code = code


class Usage(Die):
    """Wrong arguments."""

    def __init__(self, message: str, command: str) -> None:
        super().__init__(f"400 {message}\n{USAGE[command]}", 2)


USAGE = {
    "status": "pct status <vmid> [OPTIONS]",
    "exec": "pct exec <vmid> [<extra-args>] [OPTIONS]",
    "push": "pct push <vmid> <file> <destination> [OPTIONS]",
    "pull": "pct pull <vmid> <path> <destination> [OPTIONS]",
    "config": "pct config <vmid> [OPTIONS]",
    "list": "pct list",
    "start": "pct start <vmid> [OPTIONS]",
    "stop": "pct stop <vmid> [OPTIONS]",
    "shutdown": "pct shutdown <vmid> [OPTIONS]",
    "reboot": "pct reboot <vmid> [OPTIONS]",
    "snapshot": "pct snapshot <vmid> <snapname> [OPTIONS]",
    "delsnapshot": "pct delsnapshot <vmid> <snapname> [OPTIONS]",
    "listsnapshot": "pct listsnapshot <vmid>",
    "rollback": "pct rollback <vmid> <snapname> [OPTIONS]",
    "unlock": "pct unlock <vmid>",
}
OPTIONS = {
    "status": {"verbose": "bool"},
    "exec": {"keep-env": "bool"},
    "push": {"perms": "str", "user": "str", "group": "str"},
    "pull": {"perms": "str", "user": "str", "group": "str"},
    "config": {"current": "bool", "snapshot": "str"},
    "list": {},
    "start": {"skiplock": "bool", "debug": "bool"},
    "stop": {"skiplock": "bool", "overrule-shutdown": "bool"},
    "shutdown": {"timeout": "str", "forceStop": "bool"},
    "reboot": {"timeout": "str"},
    "snapshot": {"description": "str"},
    "delsnapshot": {"force": "bool"},
    "listsnapshot": {},
    "rollback": {"start": "bool"},
    "unlock": {},
}
_POSITIONAL = {
    "exec": ["vmid", "*"],
    "push": ["vmid", "file", "destination"],
    "pull": ["vmid", "path", "destination"],
    "list": [],
    "snapshot": ["vmid", "snapname"],
    "delsnapshot": ["vmid", "snapname"],
    "rollback": ["vmid", "snapname"],
}
_SNAPSHOT_NAME = re.compile(r"[a-z][a-z0-9_-]+\Z", re.I)


class Arguments:
    """A subcommand's arguments, checked: positions and options by name, ``pct exec``'s words."""

    def __init__(
        self, named: dict[str, str], options: dict[str, Value], words: list[bytes]
    ) -> None:
        self.named = named
        self.options = options
        self.words = words

    @property
    def vmid(self) -> str:
        """The container's number."""
        return self.named["vmid"]

    def text(self, name: str) -> str | None:
        """A textual option, or None when it was not given."""
        value = self.options.get(name)
        return value if isinstance(value, str) else None

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean option."""
        return bool(self.options.get(name, default))


def parse(command: str, argv: list[bytes]) -> Arguments:
    """Read a subcommand's arguments as pct does: permuted, prefixes allowed, ``--`` ends options."""
    given, rest = _split(command, argv)
    options = {name: _value(command, name, raw) for name, raw in given.items()}
    named: dict[str, str] = {}
    words: list[bytes] = []
    for name in _POSITIONAL.get(command, ["vmid"]):
        if name == "*":
            words, rest = [_decoded(word) for word in rest], []
        elif rest:
            named[name] = _decoded(rest.pop(0)).decode()
        else:
            raise Usage("not enough arguments", command)
    if rest:
        raise Usage("too many arguments", command)
    _check(command, named)
    return Arguments(named, options, words)


def _decoded(raw: bytes) -> bytes:
    """JSONSchema.pm:2506: decoded with the locale's charset; what does not fit becomes U+FFFD."""
    charset = locale.nl_langinfo(locale.CODESET) or "ascii"
    return raw.decode("ascii" if charset.startswith("ANSI") else charset, "replace").encode("utf-8")


def _split(command: str, argv: list[bytes]) -> tuple[dict[str, bytes], list[bytes]]:
    """Options and the rest (JSONSchema.pm:2346)."""
    known = OPTIONS[command]
    given: dict[str, bytes] = {}
    rest: list[bytes] = []
    waiting, bad = list(argv), False
    while waiting:
        word = waiting.pop(0)
        if word == b"--":
            rest += waiting
            break
        found = re.match(rb"(?:--|-)([^=]+)(?:=(.*))?\Z", word, re.S)
        if not found or word == b"-":
            rest.append(word)
            continue
        wanted = found[1].decode("utf-8", "replace").lower()
        hits = [o for o in known if o.lower() == wanted]
        hits = hits or [o for o in known if o.lower().startswith(wanted)]
        if len(hits) != 1:
            print(f"Unknown option: {wanted}", file=sys.stderr)
            bad = True
        elif found[2] is not None:
            given[hits[0]] = found[2]
        elif known[hits[0]] == "bool":  # its value is optional
            takes = waiting and not waiting[0].startswith(b"-")
            given[hits[0]] = waiting.pop(0) if takes else b""
        elif waiting:
            given[hits[0]] = waiting.pop(0)
        else:
            print(f"Option {hits[0]} requires an argument", file=sys.stderr)
            bad = True
    if bad:
        raise Usage("unable to parse option", command)
    return given, rest


def _value(command: str, name: str, raw: bytes) -> Value:
    text = _decoded(raw).decode()
    if OPTIONS[command][name] == "str":
        return text
    if text == "" or re.fullmatch("1|on|yes|true", text, re.I):
        return True
    if re.fullmatch("0|off|no|false", text, re.I):
        return False
    raise Usage("unable to parse boolean option", command)


def _check(command: str, named: dict[str, str]) -> None:
    failed = "Parameter verification failed.\n"
    vmid = named.get("vmid")
    if vmid is not None and not re.fullmatch(r"-?\d+", vmid):
        raise Usage(f"{failed}vmid: type check ('integer') failed - got '{vmid}'", command)
    if vmid is not None and not re.fullmatch(r"[1-9][0-9]{2,8}", vmid):
        text = "vmid: invalid format - value does not look like a valid VM ID"
        raise Usage(failed + text, command)
    name = named.get("snapname")
    if name is not None and not (_SNAPSHOT_NAME.match(name) and len(name) <= 40):
        text = f"snapname: invalid format - invalid configuration ID '{name}'"
        raise Usage(failed + text, command)
