"""Stage 40: a compile cache that is warm for every role and shape, and proven so.

The old cache is set aside, a fresh one is filled with one Python thread and one compile thread (two
threads that compile at once are what breaks this kind of training), and then another process does
the same work and counts what it found. A cache proven warm carries a record; while that fits, only
the proof is run again, in a copy: the cache itself stays as it is. This room must not know which
counts are good enough.

Facts::

    {cache: inventory's section without the record's own file, record: {..}|null,
     record_error: str|null,
     key: see ``warm_record``, misfits: [why it is not known to be warm],
     processes: [{pid, command, ..}] running from the environment, errors: [payload errors]}

Measured::

    {warm: what the payload measured while warming, or null; prove: likewise while proving, or null;
     warm_errors, prove_errors: [payload errors],
     first_steps: [{role, device, shape, cold_s: null = never seen, warm_s}],
     proven: no misses, hits, no errors; recorded: a record lies in the cache;
     set_aside: where the old cache is now, or null; put_back: the old cache is in place again;
     half_warm: where a cache is whose warming failed, or null}
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

from helpers.errors import CommandFailed, PreconditionFailed, RunbookError
from helpers.plan import LATER, Change, Plan
from helpers.reach.command import Command
from helpers.reach.payload import PayloadDocument
from helpers.recover import warm_process, warm_record
from helpers.recover.inventory import look_at
from helpers.recover.work import Json, Work

STAGE = "40_warm_cache"
_SET_ASIDE = "set the old compile cache aside"
_WARM = "fill a fresh compile cache and prove it"
# An activated shell does not compile; a process that runs the environment's Python may.
_IN_USE = {"exe", "argv0", "maps"}
_RENAME = '[ ! -e "$2" ] || { echo "$2 is there already" >&2; exit 65; }; exec mv -T -- "$1" "$2"'

_NEVER_ASIDE = "never-aside"
# Moves a half-warm cache to a free name and prints it; where the old one was never set aside it is
# still in its place and stays there.
_MAKE_ROOM = f"""
if [ -n "$3" ] && [ ! -e "$3" ] && [ ! -L "$3" ]; then printf %s {_NEVER_ASIDE}; exit 0; fi
[ -e "$1" ] || exit 44
n=1; free=$2
while [ -e "$free" ]; do n=$((n + 1)); free=$2-$n; done
mv -T -- "$1" "$free" && printf %s "$free"
"""


class _WarmingError(Exception):
    """The workload did not get through; what was measured until then is evidence."""

    def __init__(self, document: PayloadDocument) -> None:
        super().__init__("; ".join(str(error.get("message")) for error in document.errors))
        self.document = document


def look(work: Work) -> Json:
    """What the cache holds, what it says of itself, and whether that fits.

    **Runs on:** container. **Changes:** nothing.
    """
    sections = ("machine", "venv", "scripts", "cache")
    found = look_at(
        work, *sections, purpose="look at the compile cache and what decides whether it fits"
    )
    record, own_bytes, record_error = warm_record.read(work)
    cache: Any = found["cache"]
    if cache is not None and own_bytes:
        cache = {**cache, "files": cache["files"] - 1, "bytes": cache["bytes"] - own_bytes}
    venv: Any = found["venv"] or {}
    key = warm_record.key(work, found)
    processes = [p for p in venv.get("processes") or [] if _IN_USE & set(p["evidence"])]
    return {
        "cache": cache,
        "record": record,
        "record_error": record_error,
        "key": key,
        "misfits": list(warm_record.misfits(record, key, cache or {})),
        "processes": processes,
        "errors": found["errors"],
    }


def plan(work: Work, facts: Json) -> Plan:
    """Set aside and warm afresh; nothing when the cache is recorded as warm for what is there now.

    **Runs on:** operator. **Changes:** nothing.
    """
    entries = len(warm_process.entries(work.target))
    measures = (
        f"a second process takes the first steps of {entries} entries and counts hits and misses",
    )
    misfits: Any = facts["misfits"]
    if not misfits:
        return Plan(
            stage=STAGE,
            measures=measures,
            why="The cache is recorded as warm for what is there now.",
        )
    directory, cache = work.target.cache.directory, facts["cache"]
    changes = []
    if isinstance(cache, dict) and cache["exists"]:
        aside = _free_name(work, cache)
        before = f"{cache['files']} files, {cache['bytes']} bytes"
        undo = _move(aside, directory)
        changes.append(
            Change(what=_SET_ASIDE, where=directory, before=before, after=f"at {aside}", undo=undo)
        )
    changes.append(
        Change(
            what=_WARM,
            where=directory,
            before="empty",
            after=f"{entries} entries, forward and backward: {LATER}",
            undo=_move(directory, f"{directory}.undone-{work.run_id}"),
        )
    )
    return Plan(
        stage=STAGE, changes=tuple(changes), measures=measures, why=f"Because {'; '.join(misfits)}."
    )


def _move(old: str, new: str) -> str:
    return f"mv -T {shlex.quote(old)} {shlex.quote(new)}"


def _free_name(work: Work, cache: Mapping[str, Any]) -> str:
    taken = {aside["path"] for aside in cache.get("set_aside") or []}
    first = name = f"{work.target.cache.directory}.set-aside-{work.run_id}"
    number = 1
    while name in taken:
        number += 1
        name = f"{first}-{number}"
    return name


def apply(work: Work, facts: Json, plan: Plan) -> Json:
    """Warm as planned, then let a second process prove it; without a planned change only prove.

    **Runs on:** container. **Changes:** the compile cache as planned. When warming fails the old
    cache is back in its place and the half-warm one beside it.

    Raises:
        PreconditionFailed: something runs from the environment and may be using the cache.
        RunbookError: as ``run_payload``; ``changed`` says what is true after putting back.
    """
    if not plan.changes:
        record: Any = facts["record"]
        proof = warm_process.proof(
            warm_process.run(work, "prove", in_copy=True), work.target, record.get("cold") or []
        )
        return {**_nothing_done(), **proof, "recorded": True}
    _refuse_while_in_use(facts)
    *before, warm = plan.changes
    aside = before[0].after.removeprefix("at ") if before else None
    try:
        for change in before:
            with work.change(change):
                _rename(work, change.where, str(aside))
        with work.change(warm) as made:
            document = _warmed(work)
            count = len(warm_process.entries(work.target))
            made.after = f"{count} entries, forward and backward, compiled"
    except _WarmingError as failure:
        half_warm = _put_back(work, plan, aside, str(failure))
        said: Json = {
            "warm": failure.document.measured,
            "warm_errors": list(failure.document.errors),
        }
        return {**_nothing_done(), **said, "put_back": True, "half_warm": half_warm}
    except BaseException as error:
        _put_back(work, plan, aside, str(error))
        if isinstance(error, RunbookError):
            error.changed = "no"
        raise
    return {**_nothing_done(), "set_aside": aside, **_prove_and_record(work, facts, document)}


def _nothing_done() -> Json:
    names = ("warm", "prove", "set_aside", "half_warm")
    flags = ("proven", "recorded", "put_back")
    return {
        **dict.fromkeys(names),
        **dict.fromkeys(flags, False),
        "warm_errors": [],
        "prove_errors": [],
        "first_steps": [],
    }


def _refuse_while_in_use(facts: Json) -> None:
    processes: Any = facts["processes"]
    if processes:
        named = "; ".join(f"{p['pid']} ({str(p['command'])[:60]})" for p in processes)
        raise PreconditionFailed(
            f"Processes run from the environment and may be using the compile cache: {named}.",
            hint="Stop them (renaming a cache breaks the process that uses it), then resume.",
        )


def _warmed(work: Work) -> PayloadDocument:
    document = warm_process.run(work, "warm")
    if not warm_process.whole(document, work.target):
        raise _WarmingError(document)
    return document


def _prove_and_record(work: Work, facts: Json, warm: PayloadDocument) -> Json:
    """Have a second process prove the fresh cache, and leave the record in it when it is warm."""
    cold = warm_process.first_steps(warm)
    said: Json = {"warm": warm.measured, "warm_errors": list(warm.errors)}
    try:
        proving = warm_process.run(work, "prove")
        proof = warm_process.proof(proving, work.target, cold)
        if proof["proven"]:
            key: Any = facts["key"]
            totals: Any = proving.measured["totals"]
            record = warm_record.make(
                key, totals, cold, proven_at=proving.started_at, run_id=work.run_id
            )
            text = json.dumps(record, indent=1, ensure_ascii=False)
            work.container.push(text.encode(), warm_record.path(work.target))
    except RunbookError as error:
        error.changed = "yes"  # the fresh cache is in place, and the journal has its undo
        raise
    return {**said, **proof, "recorded": proof["proven"]}


def _put_back(work: Work, plan: Plan, aside: str | None, why: str) -> str | None:
    """Move a half-warm cache away, to the returned name, and give the old one its name back."""
    directory = work.target.cache.directory
    half_warm = f"{directory}.set-aside-{work.run_id}-half-warm"
    command = Command(
        ("bash", "-c", _MAKE_ROOM, "move", directory, half_warm, aside or ""),
        purpose="move the half-warm cache away",
        changes=True,
    )
    with work.container.whatever_the_record():
        result = work.container.run(command)
    if not result.ok and result.returncode != 44:
        raise CommandFailed(
            f"The half-warm cache could not be moved away from {directory}.",
            result=result,
            hint=f"Move it away by hand, then: {plan.changes[0].undo}",
            changed="yes",
        )
    if result.text == _NEVER_ASIDE:
        return None
    if aside is not None:
        with work.container.whatever_the_record():
            _rename(work, aside, directory)
        work.undone(plan.changes[0], why)
    return result.text if result.ok else None


def _rename(work: Work, old: str, new: str) -> None:
    command = Command(
        ("bash", "-c", _RENAME, "rename", old, new), purpose=f"rename {old} to {new}", changes=True
    )
    work.container.check(
        command, hint="Look at both names in the container; nothing is deleted by this stage."
    )
