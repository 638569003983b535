"""Judge of stage 10: the declared packages and nothing else, and the old environment alive?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.judge import packages
from helpers.judge.reading import at, holds, items, none_of, text
from helpers.target import Target
from helpers.verdict import Check, Status, Verdict, verdict

_DECLARATION = "environment in the target"


def judge(evidence: Mapping[str, Any], target: Target) -> Verdict:
    """Judge the environment as it was measured, or as the facts found it when nothing was applied.

    **Runs on:** operator. **Changes:** nothing.
    """
    measured = evidence.get("measured")
    now = evidence.get("facts") if measured is None else measured
    venv = at(now, "venv")
    checks = [
        _runs(venv),
        _python_version(venv, target),
        *packages.declared(at(venv, "packages"), target.environment),
        packages.forbidden(at(venv, "packages"), target.environment),
        none_of(
            "nothing extra",
            at(now, "comparison", "extra"),
            expected="the declared packages and what they need",
            source=_DECLARATION,
            meaning="Something is installed that no declared package needs.",
        ),
        none_of(
            "scripts start this environment",
            at(venv, "foreign_scripts"),
            expected="every console script starts this environment's Python",
            source="rule: a script that starts another Python uses other packages",
            meaning="These start another environment: copied, or left behind by a rename.",
        ),
        _pip_check(at(measured, "pip_check")),
        _kept(
            "lock kept",
            at(measured, "lock") if at(measured, "lock", "packages") else None,
            expected="the resolved versions in the run folder",
            rule="what was installed can be installed again",
        ),
        *_old(evidence),
        *_set_asides(venv, measured),
    ]
    return verdict(checks)


def _runs(venv: object) -> Check:
    error, version = text(venv, "python", "error"), text(venv, "python", "version")
    there = at(venv, "exists")
    right = False if there is False or error is not None else None if version is None else True
    return holds(
        "environment runs",
        right,
        measured="there is no environment" if there is False else error or version,
        expected="its Python starts",
        source="rule: an environment whose Python does not start is none",
        meaning="The environment is not usable at all.",
    )


def _python_version(venv: object, target: Target) -> Check:
    found = text(venv, "python", "version")
    wanted = target.environment.python
    return holds(
        "python version",
        None if found is None else found.split(".")[:2] == wanted.split("."),
        measured=found,
        expected=f"{wanted}.x",
        source="environment.python in the target",
        meaning="The environment was made with another Python than declared.",
    )


def _pip_check(checked: object) -> Check:
    ok = at(checked, "ok")
    by = text(checked, "by") or "uv pip check"
    return holds(
        "packages fit together",
        ok if isinstance(ok, bool) else None,
        measured=at(checked, "lines") if ok is False else f"clean, by {by}" if ok is True else None,
        expected="every requirement of every package is met",
        source=by,
        meaning="Installed packages contradict one another; see the lines."
        if ok is False
        else "It was not checked.",
    )


def _kept(name: str, document: object, *, expected: str, rule: str) -> Check:
    """A check that something is written down in the run folder."""
    file = text(document, "kept")
    return holds(
        name,
        None if file is None else True,
        measured=file,
        expected=expected,
        source=f"rule: {rule}",
        meaning="It was not written in this run.",
    )


def _old(evidence: Mapping[str, Any]) -> list[Check]:
    """The old environment's checks; none when it was not touched in this run and need not be."""
    measured = evidence.get("measured")
    if measured is None:
        if not at(evidence.get("facts"), "rebuild_because"):
            return []
    elif isinstance(measured, Mapping) and "old" in measured and measured["old"] is None:
        return []
    return [
        _old_works(at(measured, "old")),
        _kept(
            "old freeze kept",
            at(measured, "old", "freeze"),
            expected="what the old environment held, in the run folder",
            rule="what is replaced can be made again",
        ),
    ]


def _set_asides(venv: object, measured: object) -> list[Check]:
    """Told only where an earlier set-aside was cut short, or is not known to be whole."""
    cut_short = items(at(venv, "unfinished"))
    checks = []
    if cut_short or venv is None:
        checks.append(unfinished(venv))
    for one in items(at(measured, "finished")) or []:
        answers = _answers(at(one, "check"))
        silent = sorted(name for name, ok in answers.items() if not ok)
        checks.append(
            holds(
                f"works aside: {(text(one, 'path') or '').rpartition('/')[2]}",
                not silent if "python" in answers else None,
                measured={"asked": len(answers), "broken": [*silent]},
                expected="everything in it that can be asked reports it under its path",
                source="rule: what is set aside must still be usable",
                meaning="Its setting aside is finished; these do not report it, and may never have.",
                otherwise=Status.DRIFT,
            )
        )
    return checks


def findings(facts: Mapping[str, Any], target: Target) -> list[Check]:
    """What the facts alone say is wrong with what was set aside. **Changes:** nothing."""
    found = unfinished(at(facts, "venv"))
    return [] if found.status is Status.PASS else [found]


def unfinished(venv: object) -> Check:
    """Whether every environment that was set aside was so to the end. **Changes:** nothing."""
    cut_short = items(at(venv, "unfinished"))
    unread = [one for one in cut_short or [] if at(one, "error")]
    named = [
        f"{at(one, 'path')}: {len(items(at(one, 'left')) or [])} files" for one in cut_short or []
    ]
    return holds(
        "set aside to the end",
        None if cut_short is None or (unread and len(unread) == len(cut_short)) else not cut_short,
        measured=None if cut_short is None else [*named],
        expected="no environment whose scripts start another one than itself",
        source="set-aside.json in each environment that was set aside",
        meaning=f"Its record cannot be read: {at(unread[0], 'error')}"
        if unread
        else "A stage was killed while it set these aside: their scripts start what is at the old path "
        "now. Stage 10 finishes it."
        if cut_short
        else "It was not looked for.",
    )


def _old_works(old: object) -> Check:
    """What worked under the old name must work under the new one; what never did is named."""
    path = text(old, "path")
    before, after = _answers(at(old, "check_before")), _answers(at(old, "check"))
    broken = sorted(n for n, ok in after.items() if not ok and before.get(n) is not False)
    never = sorted(n for n, ok in after.items() if not ok and before.get(n) is False)
    errors = items(at(old, "check", "errors"))
    cut_short = bool(errors)
    if cut_short and not broken:
        meaning = f"It was not asked to the end: {text(errors[0], 'message')}"  # type: ignore[index]
    elif broken:
        meaning = "It is kept and its packages are untouched, but these no longer report it."
    elif never:
        meaning = "These did not work before it was set aside either."
    else:
        meaning = "It has not been set aside in this run, or not been asked."
    return holds(
        "old environment works",
        (not broken and not never)
        if "python" in after and not (cut_short and not broken)
        else None,
        measured={"path": path, "asked": len(after), "broken": [*broken], "never_worked": [*never]}
        if after
        else None,
        expected="its Python, pip, activate file and console scripts report it under its new path",
        source="rule: what is set aside must still be usable",
        meaning=meaning,
        otherwise=Status.FAIL if broken else Status.DRIFT,
    )


def _answers(found: object) -> dict[str, bool]:
    """Who answered, and whether rightly, when the environment was asked who it is."""
    asked = {name: at(found, name, "ok") for name in ("python", "pip", "activate")}
    for script in items(at(found, "scripts")) or []:
        asked[f"bin/{at(script, 'script')}"] = at(script, "ok")
    return {name: ok for name, ok in asked.items() if isinstance(ok, bool)}
