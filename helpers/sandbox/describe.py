"""Say what a sandbox is and what is broken in it now, from a fresh look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.errors import ParameterError
from helpers.recover import environment, sources, warm_cache
from helpers.recover.work import Json
from helpers.sandbox.folder import SandboxFolder
from helpers.sandbox.making import Making
from helpers.target import load_target


def describe(root: Path) -> Json:
    """What the sandbox is, and what is broken in it now.

    **Runs on:** operator and in the sandbox. **Changes:** nothing.

    Returns:
        ``root``, ``target`` (its target file), ``state``, ``made_at``, ``faults`` (what was broken
        on purpose), ``steps``, and ``broken_now``: what is not as declared, a list each for
        environment, scripts, compile cache and torch; None while the sandbox is half-made.

    Raises:
        ParameterError: there is no sandbox of ours in that folder.
    """
    folder = SandboxFolder(root)
    note = folder.note()
    if note is None:
        raise ParameterError(
            f"There is no sandbox in {root}.", hint="`recover sandbox create` makes one."
        )
    return {
        "root": str(root),
        "target": str(folder.target_file),
        "state": note.state,
        "made_at": note.started_at,
        "faults": list(note.faults),
        "steps": list(note.steps),
        "broken_now": _broken_now(folder) if note.state == "ready" else None,
    }


def _broken_now(folder: SandboxFolder) -> Json:
    target = load_target(str(folder.target_file))
    work = Making(folder=folder, target=target, say=_silent).work
    built = environment.look(work)
    scripts: Any = sources.look(work)["files"]
    cache: Any = warm_cache.look(work)["misfits"]
    packages: Any = (built["venv"] or {}).get("packages") or ()  # type: ignore[union-attr]
    torch = next((p["version"] for p in packages if p["name"] == "torch"), None)
    expected = target.torch.version
    return {
        "environment": built["rebuild_because"],
        "scripts": [f"{f['path']}: {f['state']}" for f in scripts if f["state"] != "same"],
        "compile cache": list(cache),
        "torch": []
        if torch == expected
        else [f"installed is {torch}, the target expects {expected}"],
    }


def _silent(line: str) -> None:
    """Nobody watches a look that takes a moment."""
