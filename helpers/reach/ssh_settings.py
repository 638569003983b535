"""What a host's alias means: address, user, keys and the way there, as the operator's ssh has it.

OpenSSH itself is asked (``ssh -G``), so that Include, Match and every default mean what they mean
on the command line; where there is no ssh, paramiko reads the file. This room opens no connection.
"""

from __future__ import annotations

import getpass
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import paramiko

from helpers.errors import ParameterError

_CONNECT_TIMEOUT_S = 10.0
_MOST_JUMPS = 8
_DEFAULT_KEYS = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
_DEFAULT_KNOWN_HOSTS = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")

Options = Mapping[str, list[str]]


@dataclass(frozen=True)
class HostSettings:
    """One host and how to log in there.

    Attributes:
        alias: what people call it.
        jumps: hosts to go through, the nearest first.
        identity_files: private keys that exist, in the order to offer them.
        use_agent: whether keys held by an ssh-agent are offered as well.
        known_hosts: files that may hold its key; an accepted key goes into the first.
        host_key_alias: the name its key is filed under, when that is not its address.
    """

    alias: str
    hostname: str
    port: int
    user: str
    jumps: tuple[HostSettings, ...]
    identity_files: tuple[Path, ...]
    use_agent: bool
    known_hosts: tuple[Path, ...]
    host_key_alias: str | None
    connect_timeout_s: float

    def __str__(self) -> str:
        port = "" if self.port == 22 else f" port {self.port}"
        address = "" if self.hostname == self.alias else f" ({self.hostname}{port})"
        return f"{self.alias}{address or port}"


def resolve(
    alias: str, *, user: str | None = None, port: int | None = None, config: Path | None = None
) -> HostSettings:
    """Find out what an alias means.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        alias: a host's alias or address.
        user: overrules the configuration.
        port: overrules the configuration.
        config: another file than ``~/.ssh/config``.

    Raises:
        ParameterError: the configuration is wrong or asks for something that is not supported.
    """
    return _resolve(alias, user, port, config, depth=0)


def _resolve(
    alias: str, user: str | None, port: int | None, config: Path | None, *, depth: int
) -> HostSettings:
    if depth > _MOST_JUMPS:
        raise ParameterError(
            f"The way to {alias} goes through more than {_MOST_JUMPS} hosts.",
            hint="Look for a ProxyJump that leads back to itself in the ssh configuration.",
        )
    if alias.startswith("-") or not alias:
        raise ParameterError(f"{alias!r} is no host.", hint="Name a host in the target file.")
    ask = _ask_ssh if shutil.which("ssh") else _ask_paramiko
    options = ask(alias, user, port, config)
    if _first(options, "proxycommand") not in (None, "none"):
        raise ParameterError(
            f"The ssh configuration reaches {alias} by ProxyCommand, which is not supported.",
            hint="Use ProxyJump, or give the target another host alias without ProxyCommand.",
        )
    return _settings(alias, options, _jumps(alias, options, config, depth))


def _settings(alias: str, options: Options, jumps: tuple[HostSettings, ...]) -> HostSettings:
    hostname = _first(options, "hostname") or alias
    user = _first(options, "user") or getpass.getuser()
    port = int(_first(options, "port") or 22)
    tokens = {"h": hostname, "r": user, "p": str(port), "n": alias, "d": str(Path.home())}
    tokens |= {"u": getpass.getuser(), "%": "%"}
    files = options.get("userknownhostsfile", []) + options.get("globalknownhostsfile", [])
    timeout = _first(options, "connecttimeout")
    return HostSettings(
        alias=alias,
        hostname=hostname,
        port=port,
        user=user,
        jumps=jumps,
        identity_files=tuple(
            path
            for path in _paths(options.get("identityfile") or list(_DEFAULT_KEYS), tokens)
            if path.is_file()
        ),
        use_agent=_first(options, "identitiesonly") != "yes"
        and _first(options, "identityagent") != "none",
        known_hosts=_paths(files or list(_DEFAULT_KNOWN_HOSTS), tokens),
        host_key_alias=_first(options, "hostkeyalias"),
        connect_timeout_s=float(timeout) if timeout and timeout.isdigit() else _CONNECT_TIMEOUT_S,
    )


def _paths(texts: list[str], tokens: Mapping[str, str]) -> tuple[Path, ...]:
    filled = (re.sub(r"%(.)", lambda m: tokens.get(m[1], m[0]), text) for text in texts)
    return tuple(Path(text).expanduser() for text in filled if text != "none")


def _jumps(
    alias: str, options: Options, config: Path | None, depth: int
) -> tuple[HostSettings, ...]:
    """The hosts of ProxyJump; what leads to the first of them comes before it."""
    text = _first(options, "proxyjump")
    if text in (None, "none"):
        return ()
    found: list[HostSettings] = []
    for hop in str(text).split(","):
        parts = re.fullmatch(r"(?:ssh://)?(?:([^@]+)@)?(\[[^]]+\]|[^:]+)(?::(\d+))?", hop.strip())
        if not parts:
            raise ParameterError(
                f"The ProxyJump of {alias} is not understood: {hop!r}.",
                hint="Write it as user@host:port in the ssh configuration.",
            )
        port = int(parts[3]) if parts[3] else None
        settings = _resolve(parts[2].strip("[]"), parts[1], port, config, depth=depth + 1)
        found += [settings] if found else [*settings.jumps, settings]
    return tuple(found)


def _first(options: Options, name: str) -> str | None:
    values = options.get(name)
    return values[0] if values else None


def _ask_ssh(alias: str, user: str | None, port: int | None, config: Path | None) -> Options:
    """What ``ssh -G`` says; it connects to nothing."""
    argv = ["ssh", "-G"]
    argv += ["-F", str(config)] if config else []
    argv += ["-l", user] if user else []
    argv += ["-p", str(port)] if port else []
    done = subprocess.run([*argv, "--", alias], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ParameterError(
            f"ssh does not understand its configuration for {alias}: {done.stderr.strip()}",
            hint=f"Correct {config or '~/.ssh/config'} until `ssh -G {alias}` works.",
        )
    options: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        name, _, value = line.partition(" ")
        many = name.endswith("knownhostsfile")
        options.setdefault(name, []).extend(shlex.split(value) if many else [value])
    return options


def _ask_paramiko(alias: str, user: str | None, port: int | None, config: Path | None) -> Options:
    """What paramiko makes of the file, for a machine without ssh."""
    path = (config or Path("~/.ssh/config")).expanduser()
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if re.search(r"^\s*include\s", text, re.IGNORECASE | re.MULTILINE):
        raise ParameterError(
            f"{path} includes other files, which only ssh itself can follow.",
            hint="Install an ssh client on this machine, or name a file without Include.",
        )
    try:
        found = paramiko.SSHConfig.from_text(text).lookup(alias)
    except (paramiko.ConfigParseError, paramiko.CouldNotCanonicalize) as error:
        raise ParameterError(
            f"{path} is not understood: {error}", hint="Correct it and start again."
        ) from error
    options: dict[str, list[str]] = {}
    for name in found:
        value: str | list[str] = found[name]
        if isinstance(value, list):
            options[name] = value
        else:
            options[name] = shlex.split(value) if name.endswith("knownhostsfile") else [value]
    options |= {"user": [user]} if user else {}
    options |= {"port": [str(port)]} if port else {}
    return options
