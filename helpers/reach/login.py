"""Logging in: keys are offered in ssh's order, and a refusal says which ones were tried.

Passwords are not asked for: a run must be able to go on by itself. This room must not know what is
done once logged in.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import paramiko
from cryptography.exceptions import UnsupportedAlgorithm
from paramiko.pkey import UnknownKeyType

from helpers.errors import HostUnreachable, LoginRefused
from helpers.reach.ssh_settings import HostSettings

_UNUSABLE = (OSError, ValueError, paramiko.SSHException, UnsupportedAlgorithm, UnknownKeyType)


def log_in(transport: paramiko.Transport, settings: HostSettings) -> None:
    """Authenticate with the first key that the host accepts.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        LoginRefused: no key was accepted.
        HostUnreachable: the host stopped answering.
    """
    tried: list[str] = []
    agent = paramiko.Agent() if settings.use_agent else None
    try:
        for name, key in _keys(settings, agent, tried):
            started = time.monotonic()
            try:
                further = transport.auth_publickey(settings.user, key)
            except paramiko.BadAuthenticationType as error:
                allowed = ", ".join(error.allowed_types)
                raise _refused(settings, f"it accepts {allowed} only", tried) from error
            except paramiko.AuthenticationException as error:
                if time.monotonic() - started >= settings.connect_timeout_s:
                    raise _silent(settings) from error
                if not transport.is_active():
                    tried.append(f"{name}: then the host closed the connection")
                    break
                tried.append(f"{name} refused")
            except (paramiko.SSHException, EOFError, OSError) as error:
                if not transport.is_active():
                    raise _silent(settings) from error
                tried.append(f"{name}: {error}")
            else:
                if not further:
                    return
                raise _refused(settings, f"it asks for {', '.join(further)} as well", tried)
    finally:
        if agent is not None:
            agent.close()
    raise _refused(settings, "no key was accepted", tried)


def _keys(
    settings: HostSettings, agent: paramiko.Agent | None, tried: list[str]
) -> Iterator[tuple[str, paramiko.PKey]]:
    """Keys from the agent, then from files; a file that cannot be used is noted in ``tried``."""
    for held in agent.get_keys() if agent else ():
        yield f"{held.get_name()} of the agent", held
    for path in settings.identity_files:
        try:
            yield str(path), paramiko.PKey.from_path(path)
        except (TypeError, paramiko.PasswordRequiredException):
            tried.append(f"{path} has a passphrase: run `ssh-add {path}` first")
        except _UNUSABLE as error:
            tried.append(f"{path} cannot be used: {error}")


def _refused(settings: HostSettings, why: str, tried: list[str]) -> LoginRefused:
    listed = "; ".join(tried) if tried else "there was no key to offer"
    return LoginRefused(
        f"{settings} refused the login of {settings.user}: {why} ({listed}).",
        hint=f"Make `ssh -o BatchMode=yes {settings.alias} true` work, then start again.",
    )


def _silent(settings: HostSettings) -> HostUnreachable:
    return HostUnreachable(
        f"{settings} stopped answering during the login.",
        hint="Check the network and the load of the host, then start again.",
    )
