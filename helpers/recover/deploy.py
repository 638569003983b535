"""Put files into a folder of the container: all of them or none, each one whole at every moment.

It knows names and bytes. It must not know that they come from git, nor what is in them.
"""

from __future__ import annotations

import posixpath
import shlex
from dataclasses import dataclass

from helpers.errors import RunbookError
from helpers.plan import Change
from helpers.reach.command import Command
from helpers.recover.aftermath import way_back
from helpers.recover.work import Work

# The old file gets a second name, then the new one takes its first: there is no moment without a
# file.
_SWAP = """
set -eu
part=$1 path=$2 aside=$3
if [ -d "$path" ] && [ ! -L "$path" ]; then echo "$path is a folder" >&2; exit 65; fi
if [ -e "$path" ] || [ -L "$path" ]; then
  [ ! -e "$aside" ] || { echo "$aside is there already" >&2; exit 67; }
  ln -- "$path" "$aside" 2>/dev/null || cp -a -- "$path" "$aside"
  [ "$(id -u)" != 0 ] || chown --reference="$path" -- "$part"
fi
mv -fT -- "$part" "$path"
"""
_TAKE_BACK = """
set -eu
path=$1 aside=$2 failed=$3
if [ -e "$aside" ] || [ -L "$aside" ]
then mv -fT -- "$aside" "$path"
else mv -fT -- "$path" "$failed"
fi
"""
# Only a second name of the same file is taken away again, never a file of its own.
_FORGET_SECOND_NAME = 'if [ "$1" -ef "$2" ]; then rm -f -- "$2"; fi'


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

    def part(self, run_id: str) -> str:
        """Its temporary name: in the same folder, so that the rename is at once."""
        folder, name = posixpath.split(self.path)
        return f"{folder}/.{name}.{run_id}.new"


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
    staged: list[Deployment] = []
    done: list[Deployment] = []
    try:
        for number, deployment in enumerate(deployments):
            work.say(f"sending {posixpath.basename(deployment.path)}", number / len(deployments))
            if deployment.content is not None:
                staged.append(deployment)
                part = deployment.part(work.run_id)
                work.container.push(deployment.content, part, mode=deployment.mode)
        for deployment in deployments:
            with work.change(deployment.change):
                done.append(deployment)
                _put_in_place(work, deployment)
    except BaseException as error:
        with way_back(error), work.container.whatever_the_record():
            _take_back(work, done)
            _clean(work, staged)
        for deployment in reversed(done):
            work.undone(deployment.change, f"another file could not be put in place: {error}")
        if isinstance(error, RunbookError):
            error.what += " Every file that had been replaced is back." if done else ""
            error.changed = "no"
        raise
    replaced = [d for d in deployments if d.content is not None and d.mode_before is not None]
    return [deployment.aside for deployment in replaced]


def _put_in_place(work: Work, deployment: Deployment) -> None:
    path = deployment.path
    if deployment.content is None:
        argv: tuple[str, ...] = ("chmod", "--", deployment.mode, path)
    else:
        argv = ("bash", "-c", _SWAP, "swap", deployment.part(work.run_id), path, deployment.aside)
    work.container.check(
        Command(argv, purpose=f"put {path} in place", changes=True),
        hint="Check permissions in the folder, then run the stage again.",
    )


def _take_back(work: Work, done: list[Deployment]) -> None:
    """The last one first. The very last may or may not have been put in place: both are handled."""
    for number, deployment in enumerate(reversed(done)):
        path = deployment.path
        if deployment.content is None:
            argv: tuple[str, ...] = ("chmod", "--", deployment.mode_before or deployment.mode, path)
        elif number == 0 and _is_there(work, deployment.part(work.run_id)):
            argv = ("bash", "-c", _FORGET_SECOND_NAME, "forget", path, deployment.aside)
        else:
            failed = f"{path}.failed-{work.run_id}"
            argv = ("bash", "-c", _TAKE_BACK, "back", path, deployment.aside, failed)
        work.container.check(
            Command(argv, purpose=f"put the old {path} back", changes=True),
            hint=f"By hand: {deployment.change.undo}",
        )


def _clean(work: Work, staged: list[Deployment]) -> None:
    """Remove the temporary files: they are ours and nobody's only copy."""
    parts = [deployment.part(work.run_id) for deployment in staged]
    if parts:
        work.container.check(
            Command(("rm", "-f", "--", *parts), purpose="remove temporary files", changes=True),
            hint=f"Remove them by hand: {' '.join(map(shlex.quote, parts))}",
        )


def _is_there(work: Work, path: str) -> bool:
    return work.container.run(
        Command(("test", "-e", path), purpose=f"see whether {path} is there")
    ).ok
