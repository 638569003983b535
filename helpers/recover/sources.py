"""Stage 20: the training scripts as the declared commit holds them, deployed all together.

It reads git objects on the operator's machine and compares, deploys and hashes in the container.
It must not know how a verdict is reached.

Facts::

    {repository, ref, commit, author_date, subject, dirty_files: [path]|null, folder,
     missing_folders: [path],
     files: [{path, deployed_path, aside, state: same|differs|mode|missing, mode,
              sha256_at_ref, md5_at_ref, bytes_at_ref, diff: text|null, diff_kept: name|null,
              deployed: as inventory's scripts}],
     undeclared: as inventory's scripts, errors}

Measured: ``scripts`` as the inventory found them afterwards, ``commit``, ``replaced`` (names under
which the replaced files are kept), ``errors``.
"""

from __future__ import annotations

import difflib
import posixpath
import shlex
from typing import Any

from helpers.errors import PreconditionFailed
from helpers.plan import Change, Plan
from helpers.reach.command import Command
from helpers.recover.aftermath import after_changes
from helpers.recover.deploy import Deployment, deploy, replace_undo
from helpers.recover.git_objects import CommittedFile, find_commit, read_files
from helpers.recover.inventory import look_at
from helpers.recover.work import Json, Work

STAGE = "20_sources"
_MAKE_FOLDER = "make the folder"
_LONGEST_DIFF = 200_000
# Prints, each ended by a NUL, what is there of the names given.
_THERE = 'for name; do if [ -e "$name" ] || [ -L "$name" ]; then printf "%s\\0" "$name"; fi; done'


def look(work: Work) -> Json:
    """The declared files at the declared commit, the deployed ones, and how they differ.

    **Runs on:** operator and container. **Changes:** nothing; the diffs go into the run folder.

    Raises:
        PreconditionFailed: the ref, a file or a declared hash is not what the target says. Raised
        before the
            container is asked anything.
    """
    sources = work.target.sources
    work.say(f"reading {sources.ref} of {sources.repository}", None)
    commit = find_commit(sources)
    committed = read_files(sources, commit)
    found = look_at(work, "scripts", purpose="look at the deployed scripts")
    scripts: Any = found["scripts"]
    if scripts is None:
        raise PreconditionFailed(
            f"The scripts in {sources.deploy_to} could not be looked at: {found['errors']}",
            hint="Check that the container may read that folder, then run the stage again.",
        )
    deployed = {file["path"]: file for file in scripts["files"]}
    label = f"{sources.ref} ({commit.id[:12]})"
    files = [_compare(work, file, deployed[file.declared.path], label) for file in committed]
    folders = {above for file in files for above in _above(str(file["deployed_path"]))}
    there = _there(work, [*folders, *(str(file["aside"]) for file in files)])
    for file in files:
        number, first = 1, file["aside"]
        while file["aside"] in there:  # this run has replaced it before
            number += 1
            file["aside"] = f"{first}-{number}"
    return {
        "repository": sources.repository,
        "ref": sources.ref,
        **commit.as_json(),
        "folder": sources.deploy_to,
        "missing_folders": [*sorted(folders - there)],
        "files": list(files),
        "undeclared": scripts["undeclared"],
        "errors": found["errors"],
    }


def _above(path: str) -> list[str]:
    folder = posixpath.dirname(path)
    return [] if folder in ("/", "") else [folder, *_above(folder)]


def _there(work: Work, paths: list[str]) -> set[str]:
    argv = ("bash", "-c", _THERE, "there", *paths)
    result = work.container.check(
        Command(argv, purpose="see which folders and kept files are there"),
        hint="Check that the container may read the deploy folder.",
    )
    return set(result.text.split("\0")) - {""}


def _compare(work: Work, file: CommittedFile, deployed: dict[str, Any], label: str) -> Json:
    path = posixpath.join(work.target.sources.deploy_to, file.declared.path)
    if not deployed["exists"]:
        state = "missing"
    elif deployed["sha256"] != file.sha256:
        state = "differs"
    else:
        state = "same" if deployed["mode"] == file.declared.mode else "mode"
    diff = _diff(work, file, path, label) if state == "differs" else None
    kept = f"{STAGE}.{file.declared.path.replace('/', '_')}.diff" if diff is not None else None
    if diff is not None and kept is not None:
        work.keep(kept, diff)
    return {
        "path": file.declared.path,
        "deployed_path": path,
        "aside": f"{path}.set-aside-{work.run_id}",
        "state": state,
        "mode": file.declared.mode,
        "sha256_at_ref": file.sha256,
        "md5_at_ref": file.md5,
        "bytes_at_ref": len(file.content),
        "diff": None if diff is None else diff[:_LONGEST_DIFF],
        "diff_kept": kept,
        "deployed": deployed,
    }


def _diff(work: Work, file: CommittedFile, path: str, label: str) -> str:
    """What the deployed file loses (-) and gets back (+)."""
    before = work.container.read(path) or b""
    lines = difflib.unified_diff(
        _lines(before),
        _lines(file.content),
        fromfile=f"deployed {path}",
        tofile=f"{label} {file.declared.path}",
    )
    missing_end = "\n\\ No newline at end of file\n"
    return "".join(line if line.endswith("\n") else line + missing_end for line in lines)


def _lines(content: bytes) -> list[str]:
    # Not splitlines: git and diff end a line at a line feed only.
    *lines, rest = content.decode("utf-8", "backslashreplace").split("\n")
    return [f"{line}\n" for line in lines] + ([rest] if rest else [])


def plan(work: Work, facts: Json) -> Plan:
    """Replace what differs, make what is missing, correct modes; skip what is right.

    **Runs on:** operator. **Changes:** nothing.
    """
    files: Any = facts["files"]
    missing: Any = facts["missing_folders"]
    changes = [_folder_change(folder) for folder in missing]
    changes += [_file_change(file, facts) for file in files if file["state"] != "same"]
    same = sum(file["state"] == "same" for file in files)
    if not changes:
        why = f"All {same} files are as {facts['ref']} has them."
    else:
        differ = [file["path"] for file in files if file["state"] != "same"]
        why = f"Not as {facts['ref']} has them: {', '.join(differ)}. {same} unchanged."
    measures = (
        "the hash and mode of every deployed file",
        "whether torch's tracing checks are overridden",
    )
    return Plan(stage=STAGE, changes=tuple(changes), measures=measures, why=why)


def _folder_change(folder: str) -> Change:
    return Change(
        what=_MAKE_FOLDER,
        where=folder,
        before="not there",
        after="an empty folder",
        undo=f"rmdir {shlex.quote(folder)}",
    )


def _file_change(file: dict[str, Any], facts: Json) -> Change:
    path, deployed = file["deployed_path"], file["deployed"]
    if file["state"] == "mode":
        return Change(
            what="set the mode",
            where=path,
            before=f"mode {deployed['mode']}",
            after=f"mode {file['mode']}",
            undo=f"chmod {deployed['mode']} {shlex.quote(path)}",
        )
    existed = file["state"] == "differs"
    return Change(
        what="replace the script" if existed else "deploy the script",
        where=path,
        before=f"SHA-256 {deployed['sha256']}" if existed else "not there",
        after=f"SHA-256 {file['sha256_at_ref']}, as commit {str(facts['commit'])[:12]} has it",
        undo=replace_undo(path, file["aside"], existed=existed),
    )


def apply(work: Work, facts: Json, plan: Plan) -> Json:
    """Deploy what differs, all of it or nothing, and measure what is deployed then.

    **Runs on:** container. **Changes:** the scripts that differ; replaced ones are kept beside
    them.

    Raises:
        PreconditionFailed: the ref names another commit than when the plan was made.
        RunbookError: a file could not be put in place; the others are back, or the error says
        which.
    """
    replaced: list[str] = []
    if plan.changes:
        commit = find_commit(work.target.sources)
        if commit.id != facts["commit"]:
            raise PreconditionFailed(
                f"{facts['ref']} names another commit now: {commit.id}, not {facts['commit']}.",
                hint="Look again, read the new diff, and approve the new plan.",
            )
        contents = {f.declared.path: f.content for f in read_files(work.target.sources, commit)}
        made = [change for change in plan.changes if change.what == _MAKE_FOLDER]
        try:
            for change in made:
                with work.change(change):
                    _make_folder(work, change)
            replaced = deploy(work, _deployments(facts, plan, contents))
        except BaseException as error:
            _remove_folders(work, made, error)
            raise
    with after_changes(made=bool(plan.changes)):
        found = look_at(work, "scripts", purpose="hash the deployed scripts")
    return {
        "scripts": found["scripts"],
        "commit": facts["commit"],
        "replaced": list(replaced),
        "errors": found["errors"],
    }


def _deployments(facts: Json, plan: Plan, contents: dict[str, bytes]) -> list[Deployment]:
    changes = {change.where: change for change in plan.changes if change.what != _MAKE_FOLDER}
    files: Any = facts["files"]
    return [
        Deployment(
            path=file["deployed_path"],
            aside=file["aside"],
            content=None if file["state"] == "mode" else contents[file["path"]],
            mode=file["mode"],
            mode_before=file["deployed"].get("mode"),
            change=changes[file["deployed_path"]],
        )
        for file in files
        if file["state"] != "same"
    ]


def _make_folder(work: Work, change: Change) -> None:
    work.container.check(
        Command(("mkdir", "-p", "--", change.where), purpose=f"make {change.where}", changes=True),
        hint="Check permissions above that folder, then run the stage again.",
    )


def _remove_folders(work: Work, made: list[Change], error: BaseException) -> None:
    """Take away the empty folders of a deployment that failed; one that is not empty stays."""
    for change in reversed(made):
        argv = ("rmdir", "--", change.where)
        if work.container.run(Command(argv, purpose=f"remove {change.where}", changes=True)).ok:
            work.undone(change, f"the scripts could not be deployed: {error}")
