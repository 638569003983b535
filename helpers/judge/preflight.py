"""Judge of stage 00: can the recovery begin? And, apart from that, what is wrong?

The verdict asks only whether the next stages may start on this target. The damage itself does not
count against it: ``symptoms`` (in its own room) names that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.judge.reading import at, holds, items, number, text
from helpers.judge.symptoms import symptoms
from helpers.target import Target
from helpers.verdict import Check, Status, Verdict, equal, verdict

__all__ = ["judge", "symptoms"]

SPARE_BYTES = 1024**3
_CXX = ("g++", "c++", "clang++")
# An activated shell is named, but it does not use the environment's files.
_IN_USE = {"exe", "argv0", "maps"}


def judge(evidence: Mapping[str, Any], target: Target) -> Verdict:
    """Judge whether the recovery can begin, from the facts alone.

    **Runs on:** operator. **Changes:** nothing.
    """
    facts = evidence.get("facts")
    machine = at(facts, "machine")
    return verdict(
        [
            _reached(facts),
            _identity(machine, target),
            _disk_space(facts),
            _writable(machine),
            _compiler(machine),
            _python(machine, target),
            _repository(facts, target),
            _nobody_trains(facts),
        ]
    )


def _reached(facts: object) -> Check:
    return holds(
        "container reached",
        True if at(facts, "reached", "python3") is True else None,
        measured=text(facts, "reached", "container"),
        expected="it runs a program and answers",
        source="reach in the target",
        meaning="Nothing is known of the container.",
    )


def _identity(machine: object, target: Target) -> Check:
    return equal(
        "identity",
        text(machine, "marker"),
        target.identity.marker.strip(),
        source=f"identity in the target: content of {target.identity.marker_file}",
        meaning=f"{target.identity.marker_file} could not be read, so this may be another machine."
        if text(machine, "marker") is None
        else "This is another machine than the one declared. Nothing must be changed here.",
    )


def _disk_space(facts: object) -> Check:
    """The old environment and the old cache stay; the new ones come beside them."""
    disks = items(at(facts, "machine", "disk")) or []
    free = [number(disk, "free_bytes") for disk in disks]
    kept = [_size(at(facts, "venv")), _size(at(facts, "cache"))]
    need = sum(size for size in kept if size is not None) + SPARE_BYTES
    known = [size for size in free if size is not None]
    least = min(known) if known and None not in [*free, *kept] else None
    return holds(
        "disk space",
        None if least is None else least >= need,
        measured=None if least is None else f"{_gib(least)} free",
        expected=f"at least {_gib(need)} on every disk involved",
        source="rule: size of the old environment and the old cache, which are kept, and 1 GiB",
        meaning="Not measured." if least is None else "Make room first; nothing is deleted here.",
    )


def _size(folder: object) -> float | None:
    return 0 if at(folder, "exists") is False else number(folder, "bytes")


def _gib(size_bytes: float) -> str:
    return f"{size_bytes / 1024**3:.1f} GiB"


def _writable(machine: object) -> Check:
    disks = items(at(machine, "disk"))
    closed = [str(at(d, "path")) for d in disks or [] if at(d, "writable") is False]
    known = bool(disks) and all(isinstance(at(d, "writable"), bool) for d in disks or [])
    return holds(
        "folders writable",
        False if closed else True if known else None,
        measured=[*closed] if closed or known else None,
        expected="environment, scripts and cache may be written",
        source="rule: the next stages write there",
        meaning="Log in as the user who owns them, or mend the permissions.",
    )


def _compiler(machine: object) -> Check:
    listed = items(at(machine, "compilers"))
    found = [
        f"{at(c, 'path')}: {at(c, 'version')}"
        for c in listed or []
        if str(at(c, "path")).rpartition("/")[2] in _CXX and at(c, "version")
    ]
    return holds(
        "C++ compiler",
        None if listed is None else bool(found),
        measured=found[0] if found else None if listed is None else "none that runs",
        expected=f"one of {', '.join(_CXX)}",
        source="rule: torch.compile builds C++ code",
        meaning="Install a C++ compiler in the container (on Debian: apt-get install g++).",
    )


def _python(machine: object, target: Target) -> Check:
    wanted = target.environment.python
    listed = items(at(machine, "pythons"))
    found = [
        f"{at(p, 'path')}: {at(p, 'version')}"
        for p in listed or []
        if str(at(p, "version")).split(".")[:2] == wanted.split(".")
    ]
    return holds(
        "declared Python",
        None if listed is None else bool(found),
        measured=found[0] if found else None if listed is None else f"no Python {wanted}",
        expected=f"Python {wanted} in the container",
        source="environment.python in the target",
        meaning="It is not in the container. uv will fetch it, which needs a way to the network.",
        otherwise=Status.DRIFT,
    )


def _repository(facts: object, target: Target) -> Check:
    found = at(facts, "repository")
    error, commit = text(found, "error"), text(found, "commit")
    return holds(
        "repository and ref",
        False if error else None if commit is None else True,
        measured=error or commit,
        expected=f"{target.sources.ref} in {target.sources.repository} with every declared file",
        source="sources in the target",
        meaning="The scripts cannot be restored from there." if error else "It was not looked at.",
    )


def _nobody_trains(facts: object) -> Check:
    listed = items(at(facts, "venv", "processes"))
    users = [p for p in listed or [] if _IN_USE & set(map(str, items(at(p, "evidence")) or []))]
    others = [p for p in listed or [] if p not in users]
    if users:
        meaning = "Stop training first, and let it write its checkpoint: its environment would go."
    elif listed is None:
        meaning = "It could not be found out whether something runs from the environment."
    else:
        meaning = "A shell has the environment activated. After the recovery it means the new one."
    return holds(
        "nothing runs from the environment",
        None if listed is None else not listed,
        measured=None if listed is None else [_process(p) for p in users or others],
        expected="no process",
        source="rule: an environment in use is not taken away",
        meaning=meaning,
        otherwise=Status.FAIL if users else Status.DRIFT,
    )


def _process(process: object) -> str:
    return f"pid {at(process, 'pid')}: {at(process, 'command')}"
