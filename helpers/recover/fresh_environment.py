"""Build an environment with uv, fill it, and measure what is in it.

It knows uv's commands. It must not know what stood at the path before, nor what happens when a
step fails.
"""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from helpers.errors import PreconditionFailed, RunbookError
from helpers.reach.command import Command
from helpers.reach.payload import run_payload
from helpers.recover.inventory import SYSTEM_PYTHON, look_at, look_at_packages
from helpers.recover.work import Json, Work

FREEZE_FILE = "10_environment.old-freeze.txt"
LOCK_FILE = "10_environment.lock.txt"
_BUILD_TIMEOUT_S = 600.0
_INSTALL_DEADLINE_S = 3600.0


def after_rename(path: str, venv: str, aside: str | None) -> str:
    """Where a program is after the environment it may lie in was set aside.

    **Changes:** nothing.
    """
    inside = f"{venv}/"
    return f"{aside}/{path.removeprefix(inside)}" if aside and path.startswith(inside) else path


def _uv(
    argv: tuple[str, ...], purpose: str, *, timeout_s: float = 120.0, changes: bool = False
) -> Command:
    # From the root folder, so that no project that happens to lie around has a say.
    env = {"NO_COLOR": "1", "UV_NO_PROGRESS": "1"}
    return Command(argv, purpose=purpose, env=env, cwd="/", timeout_s=timeout_s, changes=changes)


def keep_freeze(work: Work, uv_path: str, facts: Json) -> Json:
    """Write the old environment's freeze into the run folder.

    **Runs on:** container. **Changes:** nothing in the container.

    Returns:
        ``kept`` (the file's name), ``by`` ("uv pip freeze", or "metadata" when its Python does not
        answer), ``packages`` (how many lines).
    """
    python = f"{work.target.environment.venv}/bin/python"
    argv = (uv_path, "pip", "freeze", "--no-cache", "--python", python)
    result = work.container.run(_uv(argv, "freeze the old environment"))
    if result.ok:
        lines, by = result.text.splitlines(), "uv pip freeze"
    else:
        lines, by = _from_metadata(facts), "metadata"
    work.keep(FREEZE_FILE, "\n".join(lines) + "\n")
    return {"kept": FREEZE_FILE, "by": by, "packages": len(lines)}


def _from_metadata(looked_at: Json) -> list[str]:
    distributions: Any = looked_at["distributions"] or {}
    found = distributions.get("distributions") or ()
    return [f"{d['name']}=={d['version']}" for d in found if d["name"] and d["version"]]


def refuse_what_is_there(work: Work) -> None:
    """Refuse to build where something is that no plan has named: it would be moved away on failure.

    **Runs on:** container. **Changes:** nothing.

    Raises:
        PreconditionFailed: there is something at the environment's path; nothing was touched.
    """
    venv = work.target.environment.venv
    script = (
        '{ [ ! -e "$1" ] && [ ! -L "$1" ]; } || '
        '{ [ -d "$1" ] && [ ! -L "$1" ] && [ -z "$(ls -A -- "$1")" ]; }'
    )
    argv = ("bash", "-c", script, "free", venv)
    if not work.container.run(Command(argv, purpose="see that the path is free")).ok:
        raise PreconditionFailed(
            f"There is something at {venv} that is no environment, or came since the plan was made.",
            hint="Look at it, move it away yourself if it is not needed, then run the stage again.",
        )


def build(work: Work, uv_path: str) -> None:
    """Make an empty environment at the declared path, of the declared Python.

    **Runs on:** container. **Changes:** the environment's folder; a Python, when uv has to fetch
    it.
    """
    declared = work.target.environment
    work.say(f"building an environment with Python {declared.python}", None)
    argv = (uv_path, "venv", "--no-project", "--python", declared.python, declared.venv)
    work.container.check(
        _uv(
            argv,
            f"build an environment with Python {declared.python}",
            timeout_s=_BUILD_TIMEOUT_S,
            changes=True,
        ),
        hint=f"Put Python {declared.python} into the container, or let uv fetch it; run again.",
    )


def install(work: Work, uv_path: str) -> Json:
    """Install the declared packages from where pip on this machine would take them.

    **Runs on:** container. **Changes:** the environment; uv's cache.

    Returns:
        What the payload ``install_packages`` measured.

    Raises:
        RunbookError: they could not be resolved or installed; uv's last words are in it.
    """
    declared = work.target.environment
    params: dict[str, JsonValue] = {
        "uv": uv_path,
        "venv": declared.venv,
        "packages": list(declared.packages),
        "torch_index": declared.torch_index,
    }

    def tell(progress: dict[str, Any]) -> None:
        work.say(f"{progress.get('phase', 'install')}: {progress.get('line', '')}", None)

    with work.job("10_environment-install_packages") as job:
        document = run_payload(
            work.container,
            "install_packages",
            params,
            python=SYSTEM_PYTHON,
            purpose="install the declared packages",
            deadline_s=_INSTALL_DEADLINE_S,
            changes=True,
            on_progress=tell,
            job=job,
        )
    if document.errors:
        said = "\n".join(f"  {error.get('message')}" for error in document.errors)
        raise RunbookError(
            f"The declared packages could not be installed:\n{said}\n",
            hint="Read uv's words: a wrong version, a source that is not reached, or a full disk.",
            changed="unknown",
        )
    return document.measured


def in_words(installed: Json) -> str:
    """What an install has put there; empty where it could not say. **Changes:** nothing."""
    lock: Any = installed.get("lock") or []
    return f"{len(lock)} packages: {', '.join(lock)}" if lock else ""


def measure(work: Work, uv_path: str | None, installed: Json | None) -> Json:
    """What is in the environment now, whether it fits together, and its lock.

    **Runs on:** container. **Changes:** nothing in the container; the lock goes into the run
    folder.

    Returns:
        ``venv`` (as inventory), ``comparison``, ``pip_check`` and ``lock`` with how they were got,
        ``errors``.
    """
    venv = work.target.environment.venv
    work.say("measuring the environment", None)
    found = look_at(work, "venv", purpose="look at the environment as it is now")
    packages = look_at_packages(work, venv)
    errors: Any = [*_list(found["errors"]), *_list(packages["errors"])]
    return {
        "venv": found["venv"],
        "comparison": packages["comparison"],
        "pip_check": _pip_check(work, uv_path, installed, packages),
        "lock": _lock(work, uv_path, installed, packages),
        "errors": errors,
    }


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _pip_check(work: Work, uv_path: str | None, installed: Json | None, packages: Json) -> Json:
    """By the install itself, by uv, or from the metadata where there is no uv."""
    checked: Any = (installed or {}).get("check")
    if checked is not None:
        return {"by": "uv pip check", **checked}
    if uv_path is not None:
        python = f"{work.target.environment.venv}/bin/python"
        argv = (uv_path, "pip", "check", "--no-cache", "--python", python)
        result = work.container.run(_uv(argv, "check that the packages fit together"))
        lines = (result.text + result.stderr.decode("utf-8", "backslashreplace")).splitlines()
        return {"by": "uv pip check", "ok": result.ok, "lines": list(lines)}
    comparison: Any = packages["comparison"]
    if comparison is None:
        return {"by": "metadata", "ok": None, "lines": []}
    return {"by": "metadata", "ok": not comparison["conflicts"], "lines": comparison["conflicts"]}


def _lock(work: Work, uv_path: str | None, installed: Json | None, packages: Json) -> Json:
    lines: Any = (installed or {}).get("lock")
    by = "uv pip freeze"
    if lines is None and uv_path is not None:
        argv = (
            uv_path,
            "pip",
            "freeze",
            "--no-cache",
            "--python",
            f"{work.target.environment.venv}/bin/python",
        )
        result = work.container.run(_uv(argv, "write down what is installed"))
        lines = result.text.splitlines() if result.ok else None
    if lines is None:
        lines, by = _from_metadata(packages), "metadata"
    work.keep(LOCK_FILE, "\n".join(lines) + "\n")
    return {"kept": LOCK_FILE, "by": by, "packages": len(lines)}
