"""Say what a sandbox is and what is broken in it now, from a fresh look."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from helpers.errors import ParameterError
from helpers.reach.opening import open_container
from helpers.recover import environment, sources, warm_cache
from helpers.recover.work import Json
from helpers.sandbox import remote
from helpers.sandbox.folder import Kind, SandboxFolder
from helpers.sandbox.making import Making, Say
from helpers.target import load_target


def describe(root: Path) -> Json:
    """What the sandbox is, and what is broken in it now.

    **Runs on:** operator and in the sandbox. **Changes:** nothing.

    Returns:
        ``root``, ``target`` (its target file), ``kind``, ``state``, ``made_at``, ``faults`` (what was broken
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
        "kind": note.kind,
        "broken_now": _broken_now(folder, note.kind) if note.state == "ready" else None,
    }


def making_of(folder: SandboxFolder, kind: Kind, say: Say) -> Making:
    """A sandbox's surroundings, once its target file is there. **Changes:** nothing."""
    target = load_target(str(folder.target_file))
    if kind == "sandbox":
        return Making(folder=folder, target=target, say=say)
    return Making(
        folder=folder,
        target=target,
        say=say,
        container=open_container(target),
        outside=partial(remote.outside, folder),
    )


def _broken_now(folder: SandboxFolder, kind: Kind) -> Json:
    making = making_of(folder, kind, _silent)
    target, work = making.target, making.work
    built = environment.look(work)
    scripts: Any = sources.look(work)["files"]
    cache: Any = warm_cache.look(work)["misfits"]
    packages: Any = (built["venv"] or {}).get("packages") or ()  # type: ignore[union-attr]
    torch = next((p["version"] for p in packages if p["name"] == "torch"), None)
    making.close()
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
