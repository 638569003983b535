"""The fault that no clean environment and no git HEAD can mend: training's own start races.

It is committed before anything is built or measured, so that HEAD itself is not the good state, as
in the true case. Two commits: one emulates torch 2.11 towards threads and says so in its head and
its message; the other one has training start all threads at once. The baseline is measured with the
first steps made one by one, which is what training would reach if it did so.

Measured with a completely warm cache on two busy cores: 6 of 6 starts of training itself crash, and
8 of 8 of stage 50's. This room must not know how the race is found or cured.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helpers.sandbox.history import apply_patch, commit_files
from helpers.target import Target

NAME = "thread-race"
WHAT = "a commit after which training's threads trace at once, on a torch that behaves like 2.11"
EMULATION = "torch_211_threads.py"
_HACKS = Path(__file__).resolve().parent / "hacks"
_ROLES, _PIPELINE, _START = "dflash_roles.py", "train_dflash_pipeline.py", "start_training.sh"
_EMULATED = (
    "2026-02-17T10:05:00+00:00",
    f"EMULATION: towards threads torch 2.13 behaves as torch 2.11 did, see {EMULATION}",
)
_AT_ONCE = (
    "2026-02-17T18:40:00+00:00",
    "Start all threads at once, with a longer queue: first steps one by one took half a minute",
)


def declare(declared: dict[str, Any]) -> dict[str, Any]:
    """The target with the additional file of the repository. **Changes:** nothing."""
    sources = declared["sources"]
    return {**declared, "sources": {**sources, "files": [*sources["files"], {"path": EMULATION}]}}


def commit(repository: Path) -> str:
    """Commit the emulation and the start that races.

    **Runs on:** operator. **Changes:** the repository.

    Returns:
        The full name of the commit at HEAD.
    """
    emulated = {
        EMULATION: (_HACKS / EMULATION).read_bytes(),
        _ROLES: _patched(repository, _ROLES, "torch_211_threads.patch"),
    }
    date, message = _EMULATED
    commit_files(repository, emulated, date=date, message=message)
    at_once = {
        _PIPELINE: _patched(repository, _PIPELINE, "start_all_at_once.patch"),
        _START: _patched(repository, _START, "long_queue.patch"),
    }
    date, message = _AT_ONCE
    return commit_files(repository, at_once, date=date, message=message)


def _patched(repository: Path, name: str, patch: str) -> bytes:
    return apply_patch(_HACKS / patch, name, (repository / name).read_bytes())


def warmed_first(target: Target) -> Target:
    """The same target as if training called the remedy. **Changes:** nothing."""
    threads = target.threads.model_copy(update={"remedy": "prewarm"})
    return target.model_copy(update={"threads": threads})
