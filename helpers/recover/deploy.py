"""Put files into a folder of the container as one journalled step: all of them or none.

How bytes travel and are proved at every hop is ``reach.deploy``; here each file is a change with its
undo. This room must not know that the files come from git, nor what is in them.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from helpers.errors import RunbookError
from helpers.plan import Change
from helpers.reach import deploy as reach
from helpers.reach.command import Command
from helpers.recover.aftermath import way_back
from helpers.recover.work import Work


@dataclass(frozen=True)
class Deployment:
    """One file that is to be replaced or made, or only given another mode.

    Attributes:
        path: in the container.
        content: None = only the mode is set.
        aside: where the replaced file is kept.
        mode_before: None = there was no file.
    """

    path: str
    aside: str
    content: bytes | None
    mode: str
    mode_before: str | None
    change: Change


def replace_undo(path: str, aside: str, *, existed: bool) -> str:
    """The command that takes a replacement back. **Changes:** nothing."""
    if existed:
        return f"mv -fT {shlex.quote(aside)} {shlex.quote(path)}"
    return f"mv -T {shlex.quote(path)} {shlex.quote(aside)}"


def deploy(work: Work, deployments: list[Deployment]) -> list[str]:
    """Put every file in place, or leave everything as it was.

    **Runs on:** container. **Changes:** the files; replaced ones are kept beside them.

    Returns:
        The names under which replaced files are kept.

    Raises:
        RunbookError: one of them could not be put in place; ``changed`` says whether the others
        are back.
    """
    modes = [deployment for deployment in deployments if deployment.content is None]
    with _modes_set(work, modes):
        return _put(work, [d for d in deployments if d.content is not None])


def _put(work: Work, deployments: list[Deployment]) -> list[str]:
    files = [
        reach.File(d.path, d.content or b"", mode=d.mode, aside=d.aside if d.mode_before else None)
        for d in deployments
    ]
    work.say(f"deploying {len(files)} files together", None)
    try:
        with ExitStack() as changes:
            for deployment in deployments:
                changes.enter_context(work.change(deployment.change))
            written = reach.deploy(work.container, files).written
    except BaseException as error:
        # Only then is it known that the container has every old file.
        if isinstance(error, RunbookError) and error.changed == "no":
            error.what += " Every file that had been replaced is back."
            for deployment in reversed(deployments):
                work.undone(deployment.change, f"not all files could be put in place: {error.what}")
        raise
    return [d.aside for d in deployments if d.mode_before is not None and d.path in written]


@contextmanager
def _modes_set(work: Work, deployments: list[Deployment]) -> Iterator[None]:
    """Set modes; when anything in the block fails, set them back."""
    done: list[Deployment] = []
    try:
        for deployment in deployments:
            with work.change(deployment.change):
                done.append(deployment)
                _chmod(work, deployment.mode, deployment.path, f"chmod {deployment.path}")
        yield
    except BaseException as error:
        with way_back(error), work.container.whatever_the_record():
            for deployment in reversed(done):
                before = deployment.mode_before or deployment.mode
                _chmod(work, before, deployment.path, f"give {deployment.path} its mode back")
                work.undone(deployment.change, f"another file could not be put in place: {error}")
        raise


def _chmod(work: Work, mode: str, path: str, purpose: str) -> None:
    work.container.check(
        Command(("chmod", "--", mode, path), purpose=purpose, changes=True),
        hint="Check permissions in the folder, then run the stage again.",
    )
