"""Stage 10: a fresh environment with the declared packages and nothing else; the old one is kept.

A virtual environment cannot be moved, so the new one is built at its final path: the old one is
set aside first, and put back when any later step fails. It must not know how a verdict is reached.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any

from helpers.errors import PreconditionFailed, RunbookError
from helpers.plan import LATER, Change, Plan
from helpers.recover import fresh_environment, set_aside, uv
from helpers.recover.aftermath import after_changes, way_back
from helpers.recover.inventory import look_at, look_at_packages
from helpers.recover.rebuild_reasons import reasons, venv_module
from helpers.recover.work import Json, Work

STAGE = "10_environment"
_BUILD = "build a new environment"
_INSTALL = "install the declared packages"
# An activated shell is no user of the environment's files; these signs are.
_IN_USE = {"exe", "argv0", "maps"}


def look(work: Work) -> Json:
    """How the environment is now, and what a rebuild would need.

    **Runs on:** container. **Changes:** nothing.
    """
    venv = work.target.environment.venv
    found = look_at(work, "machine", "venv", "pip_settings", purpose="look at the environment")
    machine: Any = found["machine"]
    errors: Any = found["errors"]
    packages: Json = {"distributions": None, "comparison": None, "errors": []}
    if found["venv"] is not None:
        packages = look_at_packages(work, venv)
    package_errors: Any = packages["errors"]
    facts: Json = {
        **found,
        **packages,
        "errors": [*errors, *package_errors],
        "uv": uv.find(work, machine),
        "venv_module": venv_module(machine, work.target.environment.python),
    }
    return {**facts, "rebuild_because": list(reasons(facts, work.target))}


def plan(work: Work, facts: Json) -> Plan:
    """Set aside, build, install; nothing when the environment is as declared.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        PreconditionFailed: what is at the path could not be looked at or is no virtual environment.
    """
    measures = ("versions against the declaration", "uv pip check", "the lock")
    because: Any = facts["rebuild_because"]
    venv: Any = facts["venv"]
    finishes = set_aside.finish_changes(venv)
    if not because:
        why = "The environment holds the declared packages, what they need, and nothing else."
        if finishes:
            why += " An earlier one was set aside and not to the end: its scripts start this one."
        return Plan(stage=STAGE, changes=finishes, measures=measures, why=why)
    _refuse_what_is_no_environment(venv, work.target.environment.venv)
    changes: list[Change] = [*finishes]
    found_uv: Any = facts["uv"]
    if found_uv["path"] is None:
        changes.append(uv.bring_change(work, found_uv))
    if venv["exists"] and venv["pyvenv_cfg"] is not None:
        aside = set_aside.free_name(work, venv["set_aside"])
        before = f"{len(venv['packages'])} packages, {venv['bytes'] / 2**20:.0f} MiB"
        changes.append(set_aside.set_aside_change(work.target.environment.venv, aside, before))
    changes += _build_changes(work)
    return Plan(
        stage=STAGE,
        changes=tuple(changes),
        measures=(*measures, "that the old environment still works"),
        why=f"Rebuild, because {'; '.join(because)}.",
    )


def _refuse_what_is_no_environment(venv: Json | None, path: str) -> None:
    if venv is None:
        raise PreconditionFailed(
            f"{path} could not be looked at, so nothing is planned for it.",
            hint="The facts above say why (errors); mend that and run the stage again.",
        )
    if venv["is_symlink"] and not venv["exists"]:
        raise PreconditionFailed(
            f"{path} is a link to {venv['real_path']}, which is not there.",
            hint="Mount or mend what it points to, or move the link away yourself; then run again.",
        )
    if venv["exists"] and venv["pyvenv_cfg"] is None and venv["files"]:
        raise PreconditionFailed(
            f"{path} is no virtual environment: it has {venv['files']} files and no pyvenv.cfg.",
            hint="Correct environment.venv in the target, or move that folder away yourself.",
        )


def _build_changes(work: Work) -> list[Change]:
    declared = work.target.environment
    undone = shlex.quote(f"{declared.venv}.undone-{work.run_id}")
    return [
        Change(
            what=_BUILD,
            where=declared.venv,
            before="nothing at this path",
            after=f"an empty environment with Python {declared.python}, by uv venv",
            undo=f"mv -T {shlex.quote(declared.venv)} {undone}",
        ),
        Change(
            what=_INSTALL,
            where=declared.venv,
            before="no packages",
            after=f"{', '.join(declared.packages)}, and what they need ({LATER})",
            undo="goes with the environment, above",
        ),
    ]


def apply(work: Work, facts: Json, plan: Plan) -> Json:
    """Rebuild the environment as planned and measure what is there then.

    **Runs on:** container. **Changes:** the environment at its path; a tools folder when uv is
    brought; uv's and pip's caches.

    Raises:
        PreconditionFailed: something runs from the environment; nothing was touched.
        RunbookError: a step failed; the old environment is back, or the hint says how to get it
        back.
    """
    rebuilds = not all(map(set_aside.is_finish, plan.changes))
    if rebuilds:
        refuse_while_used(work)
    finished = set_aside.finish_all(work, plan)
    with after_changes(made=bool(finished)):
        if rebuilds:
            return {"finished": finished, **_rebuilt(work, facts, plan)}
        found_uv: Any = facts["uv"]
        measured = fresh_environment.measure(work, found_uv["path"], None)
    return {"uv": found_uv, "old": None, "finished": finished, **measured, "install": None}


def _rebuilt(work: Work, facts: Json, plan: Plan) -> Json:
    """All of a rebuild: bring uv, replace the environment, measure both."""
    found_uv: Any = facts["uv"]
    bring = next(filter(uv.is_bring, plan.changes), None)
    if bring is not None:
        machine: Any = facts["machine"]
        with work.change(bring):
            found_uv = uv.bring(work, found_uv, machine)
    with after_changes(made=bring is not None):
        old, rebuilt = _replace(work, facts, plan, found_uv["path"])
    with after_changes():
        if old is not None:
            old["check"] = set_aside.check(work, str(old["path"]))
        measured = fresh_environment.measure(work, rebuilt.uv_path, rebuilt.install)
    return {"uv": found_uv, "old": old, **measured, "install": rebuilt.install}


def refuse_while_used(work: Work) -> None:
    """Refuse when something runs from the environment, and name it.

    **Runs on:** container. **Changes:** nothing.

    Raises:
        PreconditionFailed: something does; each process is named.
    """
    venv: Any = look_at(work, "venv", purpose="look for processes that use the environment")["venv"]
    if venv is None:
        raise PreconditionFailed(
            "It could not be found out whether something runs from the environment.",
            hint="Run the stage again; if this stays, look at /proc in the container.",
        )
    users = [p for p in venv["processes"] if _IN_USE & set(p["evidence"])]
    if users:
        named = "\n".join(
            f"  pid {p['pid']}, since {p['started_at']}: {p['command']}" for p in users
        )
        raise PreconditionFailed(
            f"In use by running processes: {venv['path']}\n{named}",
            hint="Stop training (let it write its checkpoint), then run the stage again.",
        )


@dataclass(frozen=True)
class _Rebuilt:
    """What came of a rebuild; ``uv_path`` is where uv is now: it may lie in what was renamed."""

    uv_path: str
    rewriting: Json
    install: Json


def _replace(work: Work, facts: Json, plan: Plan, uv_path: str) -> tuple[Json | None, _Rebuilt]:
    """Rebuild, and of an old environment keep what is needed to compare it with itself later."""
    if not any(map(set_aside.is_set_aside, plan.changes)):
        fresh_environment.refuse_what_is_there(work)
        return None, _rebuild(work, plan, uv_path, None)
    venv: Any = facts["venv"]
    aside = set_aside.free_name(work, venv["set_aside"])
    before = set_aside.check(work, venv["path"])
    freeze = fresh_environment.keep_freeze(work, uv_path, facts)
    rebuilt = _rebuild(work, plan, uv_path, aside)
    old: Json = {"path": aside, "freeze": freeze, "check_before": before, "check": None}
    return {**old, "rewriting": rebuilt.rewriting}, rebuilt


def _rebuild(work: Work, plan: Plan, uv_path: str, aside: str | None) -> _Rebuilt:
    """Set aside, build, install; when one of them fails, put the old environment back."""
    uv_now = fresh_environment.after_rename(uv_path, work.target.environment.venv, aside)
    rewriting: Json = {}
    install: Json = {}
    done: list[Change] = []
    try:
        for change in plan.changes:
            if uv.is_bring(change) or set_aside.is_finish(change):
                continue
            with work.change(change) as made:
                if change.what == _BUILD:
                    fresh_environment.build(work, uv_now)
                elif change.what == _INSTALL:
                    install = fresh_environment.install(work, uv_now)
                    made.after = fresh_environment.in_words(install) or made.after
                elif aside is not None:
                    rewriting = set_aside.set_aside(work, aside)
            done.append(change)
    except BaseException as error:
        _take_back(work, error, aside, done)
        raise
    return _Rebuilt(uv_now, rewriting, install)


def _take_back(work: Work, error: BaseException, aside: str | None, done: list[Change]) -> None:
    """Put the old environment back; the error keeps its kind and says how things are now."""
    with way_back(error), work.container.whatever_the_record():
        failed = set_aside.put_back(work, aside)
    for change in reversed(done):
        work.undone(change, f"a later step failed: {error}")
    if isinstance(error, RunbookError):
        if aside is not None:
            error.what += " The old environment is back, its files as they were (checked by hash)."
        if failed:
            error.what += f" The half-built one is at {failed}."
        error.changed = "yes" if failed else "no"
