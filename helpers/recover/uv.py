"""uv in the container: where it is, and how it gets there when it is not.

It knows where people and installers put uv, and the two ways of bringing it: the container's own
pip, which knows the machine's package sources, and this operator's copy. It must not know what uv
is used for.
"""

from __future__ import annotations

import platform
import posixpath
import re
import shlex
from pathlib import Path
from typing import Any

import uv as uv_package
from packaging.version import Version

from helpers.errors import CommandError, PreconditionFailed
from helpers.plan import Change
from helpers.reach.command import Command
from helpers.recover.inventory import SYSTEM_PYTHON
from helpers.recover.work import Json, Work

# The payload install_packages asks for it: indexes in the order that pip has, pylock output.
OLDEST_USABLE = Version("0.7")
_BRING = "bring uv"


def tools_folder(venv: str) -> str:
    """Where uv is brought to: beside the environment, so that nothing of the system is touched."""
    return f"{venv}.tools"


def find(work: Work, machine: Json | None) -> Json:
    """Where uv is in the container.

    **Runs on:** container. **Changes:** nothing.

    Args:
        work: the stage's surroundings.
        machine: the inventory's section; it has looked on PATH, in ~/.local/bin and in
        ~/.cargo/bin.

    Returns:
        ``path`` and ``version`` of the first one that is new enough (None = there is none),
        ``candidates`` (all that were found), ``pip`` (whether the container's pip could bring it;
        None = not asked).
    """
    venv = work.target.environment.venv
    known: Any = (machine or {}).get("uv") or []
    candidates = [dict(found) for found in known]
    for path in (f"{tools_folder(venv)}/bin/uv", f"{venv}/bin/uv"):
        script = '[ -x "$1" ] || exit 44; exec "$1" --version --no-config'
        command = Command(("bash", "-c", script, "uv", path), purpose=f"ask for uv at {path}")
        result = work.container.run(command)
        if result.returncode != 44:
            version = result.text.strip() if result.ok else None
            candidates.append(
                {"path": path, "version": version, "error": None if result.ok else result.tail(3)}
            )
    usable = next((c for c in candidates if _usable(c["version"])), None)
    return {
        "path": usable["path"] if usable else None,
        "version": usable["version"] if usable else None,
        "candidates": list(candidates),
        "pip": None if usable else _pip_works(work),
    }


def _usable(version_text: str | None) -> bool:
    found = re.match(r"uv (\d+(?:\.\d+)+)", version_text or "")
    return found is not None and Version(found.group(1)) >= OLDEST_USABLE


def _pip_works(work: Work) -> bool:
    argv = (SYSTEM_PYTHON, "-B", "-m", "pip", "--disable-pip-version-check", "--version")
    return work.container.run(Command(argv, purpose="ask whether the container has pip")).ok


def bring_change(work: Work, found: Json) -> Change:
    """The change that brings uv. **Changes:** nothing."""
    tools = tools_folder(work.target.environment.venv)
    way = (
        "the container's own pip, from its package sources"
        if found["pip"]
        else "a copy of the operator's"
    )
    otherwise = ", or a copy of the operator's where that fails" if found["pip"] else ""
    seen: Any = found["candidates"]
    old = ", ".join(f"{c['path']} ({c['version'] or 'does not run'})" for c in seen)
    return Change(
        what=_BRING,
        where=f"{tools}/bin/uv",
        before=f"none that is {OLDEST_USABLE} or newer{': ' + old if old else ''}",
        after=f"uv by {way}{otherwise}",
        undo=f"mv -T {shlex.quote(tools)} {shlex.quote(f'{tools}.set-aside-{work.run_id}')}",
    )


def is_bring(change: Change) -> bool:
    """Whether a change is the one that brings uv."""
    return change.what == _BRING


def bring(work: Work, found: Json, machine: Json | None) -> Json:
    """Bring uv into the container.

    **Runs on:** container. **Changes:** the tools folder beside the environment; pip's cache.

    Returns:
        ``path``, ``version`` and ``brought_by`` ("pip" or "copy"), and pip's last words if it
        failed.

    Raises:
        PreconditionFailed: neither way works here.
    """
    said = None
    if found["pip"]:
        work.say("bringing uv with the container's pip", None)
        said = _by_pip(work)
        if said is None:
            return {**_proved(work), "brought_by": "pip", "pip_said": None}
    work.say("copying this operator's uv into the container", None)
    _by_copy(work, machine)
    return {**_proved(work), "brought_by": "copy", "pip_said": said}


def _by_pip(work: Work) -> str | None:
    """None when it worked, otherwise what pip said."""
    tools = tools_folder(work.target.environment.venv)
    part = f"{tools}.part-{work.run_id}"
    options = ("--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--no-input")
    wanted = ("--target", part, f"uv>={OLDEST_USABLE}")
    install = Command(
        (SYSTEM_PYTHON, "-m", "pip", "install", *options, *wanted),
        purpose="bring uv with the container's pip",
        # A rule against pip outside of an environment means the system's packages, not this folder.
        env={"PIP_REQUIRE_VIRTUALENV": "0"},
        timeout_s=600,
        changes=True,
    )
    prove = Command((f"{part}/bin/uv", "--version", "--no-config"), purpose="start the new uv")
    script = '[ ! -e "$2" ] || mv -T -- "$2" "$2.set-aside-$3"; mv -T -- "$1" "$2"'
    place = Command(
        ("bash", "-c", script, "place", part, tools, work.run_id),
        purpose="put uv in its place",
        changes=True,
    )
    for command in (install, prove, place):
        try:
            result = work.container.run(command)
        except CommandError as error:
            return str(error)
        if not result.ok:
            return result.tail(10)
    return None


def _by_copy(work: Work, machine: Json | None) -> None:
    here, there = platform.machine(), (machine or {}).get("architecture")
    if there is not None and here != there:
        raise PreconditionFailed(
            f"No uv in the container, and this operator's ({here}) does not run there ({there}).",
            hint="Install uv in the container, for instance with: python3 -m pip install uv",
        )
    tools = tools_folder(work.target.environment.venv)
    work.container.check(
        Command(
            ("mkdir", "-p", "--", f"{tools}/bin"), purpose="make a folder for uv", changes=True
        ),
        hint="Check permissions and space beside the environment.",
    )
    work.container.push(Path(uv_package.find_uv_bin()).read_bytes(), f"{tools}/bin/uv", mode="0755")


def _proved(work: Work) -> Json:
    path = posixpath.join(tools_folder(work.target.environment.venv), "bin", "uv")
    result = work.container.check(
        Command((path, "--version", "--no-config"), purpose="start the uv that was brought"),
        hint="Install uv in the container by hand, then run the stage again.",
    )
    return {"path": path, "version": result.text.strip()}
