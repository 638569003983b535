"""Judge of stage 20: deployed bytes are committed bytes, and no guard of torch is overridden?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.judge.reading import at, holds, items, none_of, text
from helpers.target import SourceFile, Target
from helpers.verdict import Check, Status, Verdict, equal, verdict


def judge(evidence: Mapping[str, Any], target: Target) -> Verdict:
    """Judge the deployed scripts as measured, or as the facts found them when nothing was applied.

    **Runs on:** operator. **Changes:** nothing.
    """
    facts = evidence.get("facts")
    at_ref = {text(f, "path"): f for f in items(at(facts, "files")) or []}
    measured = evidence.get("measured")
    if measured is None:
        deployed = {path: at(file, "deployed") for path, file in at_ref.items()}
        undeclared = at(facts, "undeclared")
    else:
        deployed = {text(f, "path"): f for f in items(at(measured, "scripts", "files")) or []}
        undeclared = at(measured, "scripts", "undeclared")
    checks = [_commit(facts, target), _working_tree(facts)]
    for declared in target.sources.files:
        checks += _file(declared, at_ref.get(declared.path), deployed.get(declared.path))
    checks += [_guards(deployed, target), _others(undeclared)]
    return verdict(checks)


def _commit(facts: object, target: Target) -> Check:
    commit = text(facts, "commit")
    return holds(
        "commit found",
        None if commit is None else True,
        measured=commit,
        expected=f"the commit that {target.sources.ref} names",
        source="sources.ref in the target",
        meaning="It is not known which commit was compared with.",
    )


def _working_tree(facts: object) -> Check:
    dirty = at(facts, "dirty_files")
    bare = at(facts, "commit") is not None and dirty is None
    return holds(
        "working tree clean",
        True if bare else None if items(dirty) is None else not dirty,
        measured="a bare repository: it has none" if bare else dirty,
        expected="no changes beside the commit",
        source="rule: files are taken from the commit, never from the working tree",
        meaning="Somebody has changes here that are not committed. They were not deployed."
        if items(dirty)
        else "It was not asked.",
        otherwise=Status.DRIFT,
    )


def _file(declared: SourceFile, at_ref: object, deployed: object) -> list[Check]:
    wanted = text(at_ref, "sha256_at_ref")
    exists = at(deployed, "exists")
    found = "not there" if exists is False else text(deployed, "sha256")
    checks = [
        holds(
            f"{declared.path} content",
            None if wanted is None or found is None else found == wanted,
            measured=found,
            expected=str(wanted or "the SHA-256 of the git object"),
            source="the git object at the declared ref",
            meaning="What would run is not what was committed."
            if found is not None and wanted is not None
            else "It could not be compared.",
        ),
        equal(
            f"{declared.path} mode",
            "not there" if exists is False else text(deployed, "mode"),
            declared.mode,
            source="sources.files in the target",
            meaning="The file has another mode than declared; a start script may not start.",
        ),
    ]
    for kind, known in (("sha256", declared.sha256), ("md5", declared.md5)):
        if known is not None:
            hashed = text(deployed, kind)
            name = f"{declared.path} declared {kind}"
            meaning = "It is not the file that somebody vouched for."
            source = "sources.files in the target"
            measured = "not there" if exists is False else hashed
            checks.append(equal(name, measured, known, source=source, meaning=meaning))
    return checks


def _guards(deployed: Mapping[Any, object], target: Target) -> Check:
    lists = {
        file.path: items(at(deployed.get(file.path), "tampering"))
        for file in target.sources.files
        if at(deployed.get(file.path), "exists") is not False
    }
    unread = not lists or any(found is None for found in lists.values())
    lines = [_line(path, hit) for path, found in lists.items() for hit in found or []]
    return holds(
        "torch's guards left alone",
        False if lines else None if unread else True,
        measured=None if unread and not lines else [*lines],
        expected="no deployed file overrides torch's tracing checks",
        source="rule: a muted check turns a crash into a silent crawl",
        meaning="What runs now overrides a check of torch. If the file is as committed (above), correct "
        "the repository; otherwise this stage replaces it."
        if lines
        else "Not every file could be read.",
    )


def _others(undeclared: object) -> Check:
    listed = items(undeclared)
    lines = [
        _line(at(f, "path"), hit) for f in listed or [] for hit in items(at(f, "tampering")) or []
    ]
    return none_of(
        "no override in other files",
        None if listed is None else lines,
        expected="no other Python file in the folder overrides torch's tracing checks",
        source="rule: training may import any file beside its scripts",
        meaning="This file is not declared and was left alone. Does training import it?"
        if lines
        else "The folder could not be read.",
        otherwise=Status.DRIFT,
    )


def _line(path: object, hit: object) -> str:
    return f"{path}:{at(hit, 'line')}: {at(hit, 'text')}"
