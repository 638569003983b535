"""Set an environment aside so that it keeps working, and put it back as it was.

It knows how an environment is renamed, checked and restored. It must not know what is built in its
place.
"""

from __future__ import annotations

import re
import shlex
from typing import Any

from pydantic import JsonValue

from helpers.errors import RunbookError
from helpers.plan import Change, Plan
from helpers.reach.command import Command
from helpers.reach.payload import PayloadDocument, run_payload
from helpers.recover.aftermath import after_changes
from helpers.recover.inventory import SYSTEM_PYTHON
from helpers.recover.work import Json, Work

_SET_ASIDE = "set the old environment aside"
_FINISH = "finish setting aside the environment"
_DEADLINE_S = 300.0

# Moves a half-built environment out of the way, never the old one: that is known to be aside by
# then.
_MAKE_ROOM = """
set -eu
venv=$1 aside=$2 failed=$3
if [ -n "$aside" ] && [ ! -e "$aside" ]; then exit 0; fi
if [ ! -e "$venv" ] && [ ! -L "$venv" ]; then exit 0; fi
n=1; free=$failed
while [ -e "$free" ]; do n=$((n + 1)); free=$failed-$n; done
mv -T -- "$venv" "$free"; printf %s "$free"
"""


def free_name(work: Work, taken: list[str]) -> str:
    """A name for the environment that is set aside in this run. **Changes:** nothing."""
    first = name = f"{work.target.environment.venv}.set-aside-{work.run_id}"
    number = 1
    while name in taken:
        number += 1
        name = f"{first}-{number}"
    return name


def set_aside_change(venv: str, aside: str, before: str) -> Change:
    """The change that sets an environment aside. **Changes:** nothing."""
    return Change(
        what=_SET_ASIDE,
        where=venv,
        before=before,
        after=f"at {aside}, its scripts and activate files rewritten so that it works there",
        undo=_undo_command(venv, aside),
    )


def is_set_aside(change: Change) -> bool:
    """Whether a change is the one that sets the environment aside."""
    return change.what == _SET_ASIDE


def finish_changes(venv: Json | None) -> tuple[Change, ...]:
    """A change for each environment whose setting aside was cut short. **Changes:** nothing.

    Args:
        venv: the inventory's section of the environment.
    """
    found: dict[str, Any] = venv or {}
    cut_short = [one for one in found.get("unfinished") or [] if one["left"]]
    free = len(cut_short) == 1 and not found["exists"]  # only one of them can have the name again
    return tuple(_finish_change(found["path"], one, free=free) for one in cut_short)


def _finish_change(venv: str, unfinished: dict[str, Any], *, free: bool) -> Change:
    aside, left = unfinished["path"], unfinished["left"]
    return Change(
        what=_FINISH,
        where=aside,
        before=f"{len(left)} of its files still name {venv}: what they start is not this one",
        after=f"they name {aside}, so that it works there",
        # Where another environment has its place, the way back leads to what was before, no further.
        undo=_undo_command(venv, aside) if free else _names_back(venv, aside),
    )


def is_finish(change: Change) -> bool:
    """Whether a change is one of those that finish a set-aside."""
    return change.what == _FINISH


def finish_all(work: Work, plan: Plan) -> list[JsonValue]:
    """Finish what the plan says was cut short, and ask each environment who it is.

    **Runs on:** container. **Changes:** files of those environments that hold their old path.

    Raises:
        RunbookError: a file could not be rewritten; what was is right and stays.
    """
    finished: list[JsonValue] = []
    for change in filter(is_finish, plan.changes):
        aside = change.where
        with work.change(change):
            document = _ask(
                work, "finish", aside, purpose=f"finish setting aside {aside}", changes=True
            )
            left: Any = document.measured.get("left")
            if document.errors or left:
                raise RunbookError(
                    f"Setting {aside} aside could not be finished: {left or _last(document)}.",
                    hint="Check permissions and space there, then run the stage again.",
                    changed="unknown",
                )
        with after_changes():
            checked = check(work, aside)
        finished.append({"path": aside, **document.measured, "check": checked})
    return finished


def _undo_command(venv: str, aside: str) -> str:
    old, new = shlex.quote(venv), shlex.quote(aside)
    return (
        f"mv -T {new} {old} && {_names_back(venv, aside, at=venv, then=' && rm -f set-aside.json')}"
    )


def _names_back(venv: str, aside: str, *, at: str | None = None, then: str = "") -> str:
    """The command that writes the old name again into every file that holds the new one."""
    new = shlex.quote(aside)
    pattern = re.sub(r"([.\[\]*^$|\\])", r"\\\1", aside)
    replacement = re.sub(r"([&|\\])", r"\\\1", venv)
    sed = shlex.quote(f"s|{pattern}|{replacement}|g")
    places = "bin/* pyvenv.cfg lib/python3*/site-packages/*.pth share/jupyter/kernels/*/kernel.json"
    return (
        f"(cd {shlex.quote(at or aside)} && grep -lIsF -- {new} {places} | tr '\\n' '\\0' "
        f"| xargs -0r sed -i {sed}{then})"
    )


def set_aside(work: Work, aside: str) -> Json:
    """Rename the environment and rewrite what points at its old name.

    **Runs on:** container. **Changes:** the environment's name, and its files that hold its path.

    Raises:
        RunbookError: it could not be done; ``changed`` says whether all of it was taken back.
    """
    document = _ask(
        work, "set_aside", aside, purpose=f"rename the environment to {aside}", changes=True
    )
    if document.errors:
        measured: dict[str, Any] = document.measured
        back = measured.get("taken_back", "renamed" not in measured)
        raise RunbookError(
            f"The old environment could not be set aside: {_last(document)}.",
            hint="Check permissions and space beside the environment, then run the stage again.",
            changed="no" if back else "unknown",
        )
    return document.measured


def check(work: Work, path: str) -> Json:
    """Ask the environment at a path who it is, in every way in which it can be asked.

    **Runs on:** container. **Changes:** nothing.
    """
    document = _ask(work, "check", path, purpose="ask the old environment who it is", changes=False)
    return {"path": path, **document.measured, "errors": list(document.errors)}


def put_back(work: Work, aside: str | None) -> str:
    """Move a half-built environment away and give the old one its name and its bytes back.

    **Runs on:** container. **Changes:** what is at the environment's path.

    Args:
        work: the stage's surroundings.
        aside: where the old environment was set aside; None when there was none.

    Returns:
        Where the half-built environment is now; empty when there was none.

    Raises:
        RunbookError: the old environment is not back as it was; the hint says how to go on by hand.
    """
    venv = work.target.environment.venv
    work.say("putting the old environment back", None)
    failed = f"{venv}.failed-{work.run_id}"
    argv = ("bash", "-c", _MAKE_ROOM, "make-room", venv, aside or "", failed)
    by_hand = "Look at what is there."
    if aside is not None:
        by_hand = f"Look at what is there, then: {_undo_command(venv, aside)}"
    moved = work.container.check(
        Command(argv, purpose="move the half-built environment away", changes=True), hint=by_hand
    ).text
    if aside is not None:
        document = _ask(
            work, "restore", aside, purpose="put the old environment back", changes=True
        )
        not_restored: Any = document.measured.get("not_restored")
        if document.errors or not_restored:
            why = f"{not_restored}" if not_restored else _last(document)
            raise RunbookError(
                f"The old environment is not back as it was: {why}.", hint=by_hand, changed="yes"
            )
    return moved


def _ask(work: Work, action: str, aside: str, *, purpose: str, changes: bool) -> PayloadDocument:
    def tell(progress: dict[str, Any]) -> None:
        done, of = progress.get("checked", progress.get("rewritten")), progress.get("of")
        work.say(purpose, done / of if done is not None and of else None)

    return run_payload(
        work.container,
        "set_aside",
        {"action": action, "venv": work.target.environment.venv, "aside": aside},
        python=SYSTEM_PYTHON,
        purpose=purpose,
        deadline_s=_DEADLINE_S,
        changes=changes,
        on_progress=tell,
    )


def _last(document: PayloadDocument) -> str:
    return str(document.errors[-1].get("message")) if document.errors else "no reason was given"
