"""The faults: each breaks one thing of a healthy sandbox, for real, as in the true case.

Whatever happens in the container goes through the same interface as a recovery, and packages come
from where a recovery would take them. This room must not know how a fault is found or mended.
"""

from __future__ import annotations

import difflib
import hashlib
import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from pydantic import JsonValue

from helpers.errors import ParameterError, PreconditionFailed, RunbookError
from helpers.reach.command import Command
from helpers.reach.payload import run_payload
from helpers.recover import uv, warm_record
from helpers.recover.inventory import SYSTEM_PYTHON, look_at
from helpers.recover.work import Work
from helpers.sandbox import thread_race
from helpers.sandbox.folder import SandboxFolder
from helpers.sandbox.history import apply_patch
from helpers.sandbox.wheels import stand_in
from helpers.target import SandboxReach

HACKS_FOLDER = Path(__file__).resolve().parent / "hacks"
HACKED_FILE = "dflash_model.py"
ALL = "all"
# The build that the true case expected; no CPU build can be it.
_OTHER_TORCH = {"version": "2.11.0+cu128", "cuda": "12.8", "available": True, "device_count": 8}
_INSTALL_DEADLINE_S = 600.0
# Drifting these would download hundreds of megabytes.
_TOO_LARGE = {"torch", "torchvision", "torchaudio", "numpy"}

# Deletes all but every so-manieth file of a cache, as somebody does who frees space in /tmp; the
# dates of what is left stay. Prints how many there were and how many are left.
_THIN = """
import os, sys
cache, every, record = sys.argv[1], int(sys.argv[2]), sys.argv[3]
files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(cache) for name in names)
entries = [path for path in files if path != record]
gone = [path for number, path in enumerate(entries) if number % every]
for path in [*gone, *(path for path in files if path == record)]:
    os.unlink(path)
for folder, _, _ in os.walk(cache, topdown=False):
    if folder != cache and not os.listdir(folder):
        os.rmdir(folder)
print(len(entries), len(entries) - len(gone))
"""
_KEEP_EVERY = 8


@dataclass(frozen=True)
class Fault:
    """One way of breaking a sandbox.

    Attributes:
        name: as it is given on the command line.
        what: what it does, in words.
        breaks: does it and says what came of it, in words.
    """

    name: str
    what: str
    breaks: Callable[[Work, SandboxFolder], str]


def pollute(work: Work, folder: SandboxFolder) -> str:
    """Install what the target forbids, and drift one declared package to an older version.

    **Runs on:** container. **Changes:** the environment; wheels in the sandbox's folder; uv's
    cache.

    Returns:
        What was installed, and what could not be drifted and why.
    """
    folder.wheels.mkdir(exist_ok=True)
    forbidden = work.target.environment.forbidden
    wheels = {name: _inside(work, stand_in(folder.wheels, name)) for name in forbidden}
    machine: Any = look_at(work, "machine", purpose="look for uv")["machine"]
    found: Any = uv.find(work, machine)
    if found["path"] is None:
        raise PreconditionFailed("There is no uv in the sandbox.", hint="Create the sandbox anew.")
    wanted = [f"{name} @ {path.as_uri()}" for name, path in wheels.items()]
    failed = _install(work, found["path"], wanted)
    if failed is not None:
        raise RunbookError(
            f"The stand-ins for {', '.join(forbidden)} could not be installed: {failed}",
            hint="Read uv's words above, mend that, and create the sandbox again.",
            changed="yes",
        )
    return f"installed stand-ins for {', '.join(forbidden)}; {_drift(work, found['path'])}"


def _inside(work: Work, wheel: Path) -> Path:
    """Where the container finds a wheel: a folder of this machine is its own, any other gets a copy."""
    if isinstance(work.target.reach, SandboxReach):
        return wheel
    place = Path(posixpath.dirname(work.target.environment.venv), "wheels", wheel.name)
    make = Command(
        ("mkdir", "-p", "--", str(place.parent)), "make a folder for wheels", changes=True
    )
    work.container.check(make, hint="Create the sandbox anew.")
    work.container.push(wheel.read_bytes(), str(place))
    return place


def _drift(work: Work, uv_path: str) -> str:
    """Take one declared package, the first that can be had, back to an older version."""
    why = "no declared package has a fixed version and a small wheel"
    for requirement in _drifting(work.target.environment.packages):
        pinned = next(s.version for s in requirement.specifier if s.operator == "==")
        failed = _install(work, uv_path, [f"{requirement.name}<{pinned}"])
        if failed is None:
            return f"{requirement.name} taken back below {pinned}"
        why = f"{requirement.name}<{pinned}: {failed}"
    return f"NO declared package was drifted, none can be had in an older version here ({why})"


def _drifting(packages: Sequence[str]) -> Iterator[Requirement]:
    for requirement in map(Requirement, reversed(packages)):
        fixed = [s for s in requirement.specifier if s.operator == "=="]
        if fixed and requirement.name.lower() not in _TOO_LARGE:
            yield requirement


def _install(work: Work, uv_path: str, packages: list[str]) -> str | None:
    """Install as stage 10 does. None when it worked, otherwise uv's last words."""
    params: dict[str, JsonValue] = {
        "uv": uv_path,
        "venv": work.target.environment.venv,
        "packages": [*packages],
        "torch_index": None,
    }
    document = run_payload(
        work.container,
        "install_packages",
        params,
        python=SYSTEM_PYTHON,
        purpose=f"install {', '.join(packages)}",
        deadline_s=_INSTALL_DEADLINE_S,
        changes=True,
        on_progress=lambda record: work.say(
            f"{record.get('phase')}: {record.get('line', '')}", None
        ),
    )
    return str(document.errors[-1].get("message")) if document.errors else None


def hack(work: Work, folder: SandboxFolder) -> str:
    """Patch the deployed model file so that torch's guard against tracing threads is silent.

    **Runs on:** container. **Changes:** the deployed ``dflash_model.py``; the repository's copy
    stays.
    """
    path = f"{work.target.sources.deploy_to}/{HACKED_FILE}"
    content = work.container.read(path)
    if content is None:
        raise PreconditionFailed(f"There is no {path} to hack.", hint="Create the sandbox anew.")
    patched = apply_patch(HACKS_FOLDER / "dflash_model.patch", HACKED_FILE, content)
    mode = next((f.mode for f in work.target.sources.files if f.path == HACKED_FILE), "0644")
    work.container.push(patched, path, mode=mode)
    short = [hashlib.sha256(data).hexdigest()[:12] for data in (content, patched)]
    return f"{path}: {short[0]} → {short[1]}"


def chill(work: Work, folder: SandboxFolder) -> str:
    """Delete most of the compile cache, and the record that says it is warm.

    **Runs on:** container. **Changes:** the compile cache.
    """
    cache = work.target.cache.directory
    argv = (
        SYSTEM_PYTHON,
        "-B",
        "-c",
        _THIN,
        cache,
        str(_KEEP_EVERY),
        warm_record.path(work.target),
    )
    result = work.container.check(
        Command(argv, purpose="delete most of the compile cache", changes=True),
        hint="Create the sandbox anew.",
    )
    before, after = result.text.split()
    return f"{after} of {before} files left in {cache}"


def committed_before(work: Work, folder: SandboxFolder) -> str:
    """Nothing is left to break: see ``sandbox.thread_race``. **Changes:** nothing."""
    return "committed before the baseline was measured"


def expect_other_torch(work: Work, folder: SandboxFolder) -> str:
    """Have the sandbox's target file expect a torch build that cannot be installed here.

    The environment stays as it is: the build that the file asks for needs GPUs and gigabytes.

    **Runs on:** operator. **Changes:** ``sandbox.yaml``.
    """
    declared = yaml.safe_load(folder.target_file.read_text(encoding="utf-8"))
    before = declared["torch"]["version"]
    declared["torch"] |= _OTHER_TORCH
    write_target(folder, declared)
    after = f"{_OTHER_TORCH['version']} with {_OTHER_TORCH['device_count']} devices"
    return f"the target file expects torch {after}; installed is {before}"


def write_target(folder: SandboxFolder, declared: dict[str, Any]) -> None:
    """Write the sandbox's own target file. **Changes:** ``sandbox.yaml``."""
    head = "# The target file of the sandbox in this folder, written by `recover sandbox create`.\n"
    text = yaml.safe_dump(declared, sort_keys=False, allow_unicode=True)
    folder.target_file.write_text(head + text, encoding="utf-8")


# In the order in which they are done: a hacked training runs before its cache is deleted.
FAULTS = {
    fault.name: fault
    for fault in (
        Fault(
            "polluted-venv", "packages that do not belong here, and a version that drifted", pollute
        ),
        Fault("hacked-model", "a monkey patch over torch's guard in the deployed model file", hack),
        Fault("cold-cache", "a compile cache that is mostly gone", chill),
        Fault(thread_race.NAME, thread_race.WHAT, committed_before),
        Fault("wrong-torch", "a target that expects another torch build", expect_other_torch),
    )
}
DEFAULT = ("polluted-venv", "hacked-model", "cold-cache")


def chosen(names: Sequence[str]) -> tuple[str, ...]:
    """The faults meant by names, in the order in which they are done.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        names: names of ``FAULTS``; ``all`` means the default ones.

    Raises:
        ParameterError: a name is unknown; the nearest one is in the hint.
    """
    unknown = [name for name in names if name not in (*FAULTS, ALL)]
    if unknown:
        near = difflib.get_close_matches(unknown[0], [*FAULTS, ALL], n=1)
        hint = f"Did you mean {near[0]}?" if near else f"Known faults: {', '.join(FAULTS)}, {ALL}."
        raise ParameterError(f"There is no fault called {unknown[0]!r}.", hint=hint)
    wanted = {*names, *(DEFAULT if ALL in names else ())}
    return tuple(name for name in FAULTS if name in wanted)
