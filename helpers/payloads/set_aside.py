"""Rename a virtual environment so that it still works under its new name, and back again.

A virtual environment knows its own path: in the first lines of its console scripts, in its
activate files, in ``pyvenv.cfg``.  After a plain rename all of these point at the old path, where
soon another environment stands, so ``old/bin/pip install`` would install into the new one.  This
payload rewrites them with the rename.

Parameters (JSON): ``action``, ``venv`` (the path that the environment has or had) and ``aside``
(the other one).

- ``set_aside`` renames ``venv`` to ``aside`` and rewrites the files.  When that fails it is taken
  back.
- ``restore`` takes it back: every file gets the bytes it had, which is checked by hash, then the
  name.
- ``finish`` takes up a set-aside that was killed half-way: what still points at ``venv`` is
  rewritten.
- ``check`` asks the environment at ``aside`` who it is, in every way in which it can be asked.
  Changes nothing.

What was rewritten stands in ``<aside>/set-aside.json``, written before anything else is done, so
that ``restore`` also works after a set-aside that was killed half-way.  Files that another program
may hold hard links to (uv's cache) are replaced, never written in place.

``measured``; paths of files are relative to the environment. ::

    set_aside  {renamed: bool, taken_back: bool, rewritten: [{path, sha256_before, sha256_after}],
                links: [{path, before, after}], left: [{path, reason}]}
    finish     {rewritten: [path], left: [{path, reason}]}
    restore    {renamed: bool, restored: [{path, sha256}], not_restored: [{path, reason}]}
    check      {python: {ok, said}, pip: {ok, said}|null, scripts: [{script, ok, said}],
                activate: {ok, said}|null, still_mention_old: [path]}

Standard library only, Python 3.9 and newer.  Sent along with it: ``protocol``, ``relocation``,
``relocation_record``, ``inventory_machine``.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import relocation
import relocation_record
from inventory_machine import ask
from protocol import REQUIRED, Param, Reporter, run

SCHEMA = 1
PARAMS = {
    "action": Param(str, REQUIRED, choices=("set_aside", "finish", "restore", "check")),
    "venv": Param(str, REQUIRED),
    "aside": Param(str, REQUIRED),
}
# Stands in for the machine's own sitecustomize: a script's interpreter says which environment it
# is and ends before the first line of the script itself is run.
WHO = 'import os, sys\nos.write(1, ("\\nprefix=" + sys.prefix + "\\n").encode())\nos._exit(0)\n'
ACTIVATE = '. "$1/bin/activate" && printf "%s\\n%s\\n" "$VIRTUAL_ENV" "$(command -v python)"'


def set_aside(venv: Path, aside: Path, reporter: Reporter) -> None:
    """Rename and rewrite; on any failure take everything back."""
    if os.path.lexists(aside):
        raise FileExistsError(f"{aside} is there already")
    moves = relocation.moves(venv, aside)
    rewrites, left = relocation.rewrites(venv, moves)
    links = relocation.links(venv, moves)
    reporter.measured.update(
        renamed=False,
        taken_back=False,
        rewritten=[
            {"path": r.path, "sha256_before": r.before, "sha256_after": r.after} for r in rewrites
        ],
        links=[link._asdict() for link in links],
        left=left,
    )
    relocation_record.write_record(venv, aside, rewrites, links)
    try:
        os.rename(venv, aside)
        reporter.measured["renamed"] = True
        for done, rewrite in enumerate(rewrites):
            reporter.progress(rewritten=done, of=len(rewrites))
            relocation.replace(aside / rewrite.path, rewrite.content)
        for link in links:
            relocation.relink(aside / link.path, link.after)
    except BaseException:
        reporter.measured["taken_back"] = not restore(venv, aside)[1]
        reporter.measured["renamed"] = False
        raise


def restore(venv: Path, aside: Path) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Give every rewritten file its bytes back and the environment its name."""
    if not os.path.lexists(aside):  # ended before the rename
        relocation_record.remove_record(venv)
        return [], []
    if os.path.lexists(venv):
        raise FileExistsError(f"{venv} is taken: move it away first")
    restored, not_restored = relocation_record.undo(aside)
    os.rename(aside, venv)
    if not not_restored:  # after the rename: an end in between leaves nothing half-done unrecorded
        relocation_record.remove_record(venv)
    return restored, not_restored


def check(venv: Path, aside: Path, reporter: Reporter) -> None:
    """Ask the environment who it is: its Python, pip, console scripts and activate file."""
    measured = reporter.measured
    measured.update(python=None, pip=None, scripts=[], activate=None, still_mention_old=[])
    ask_python = [str(aside / "bin" / "python"), "-I", "-B", "-c", "import sys; print(sys.prefix)"]
    measured["python"] = _answer(ask_python, r"^(/.*)$", aside)
    pip = aside / "bin" / "pip"
    if pip.exists():
        ask_pip = [str(pip), "--disable-pip-version-check", "--version"]
        measured["pip"] = _answer(ask_pip, r"^pip \S+ from (/.*)/lib/", aside)
    if (aside / "bin" / "activate").is_file():
        ask_shell = ["bash", "-c", ACTIVATE, "activate", str(aside)]
        measured["activate"] = _answer(ask_shell, r"^(/.*)\n\1/bin/python$", aside)
    measured["still_mention_old"] = relocation.mentioning(aside, venv)
    folder = tempfile.mkdtemp(prefix="set-aside-")
    reporter.at_end(lambda: shutil.rmtree(folder, ignore_errors=True))
    Path(folder, "sitecustomize.py").write_text(WHO, encoding="utf-8")
    os.environ.update(PYTHONPATH=folder, PYTHONDONTWRITEBYTECODE="1", PYTHONNOUSERSITE="1")
    scripts = relocation.console_scripts(aside)
    for done, script in enumerate(scripts):
        reporter.progress(checked=done, of=len(scripts))
        answer = _answer([str(script)], r"^prefix=(/.*)$", aside)
        measured["scripts"].append({"script": script.name, **answer})


def _answer(argv: list[str], pattern: str, aside: Path) -> dict[str, Any]:
    """What a program says, and whether the path in it is this environment's."""
    text, error = ask(argv)
    found = re.findall(pattern, text or "", re.MULTILINE)  # .pth files may print something before
    right = bool(found) and os.path.realpath(found[-1]) == os.path.realpath(aside)
    return {"ok": right, "said": (error or text or "").strip()[-400:]}


def measure(params: dict[str, Any], reporter: Reporter) -> None:
    """Do what is asked."""
    venv, aside = Path(params["venv"]), Path(params["aside"])
    if params["action"] == "set_aside":
        set_aside(venv, aside, reporter)
    elif params["action"] == "finish":
        done, left = relocation_record.finish(aside)
        reporter.measured.update(rewritten=done, left=left)
    elif params["action"] == "restore":
        reporter.measured.update(renamed=False, restored=[], not_restored=[])
        restored, not_restored = restore(venv, aside)
        reporter.measured.update(renamed=True, restored=restored, not_restored=not_restored)
    else:
        check(venv, aside, reporter)


if __name__ == "__main__":
    run("set_aside", SCHEMA, PARAMS, measure, deadline_s=300.0)
