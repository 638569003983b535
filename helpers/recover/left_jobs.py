"""Work that an earlier attempt of this run left going on in the container, found and waited for.

A runner or a kernel that was killed leaves its long work alone: it goes on. Nothing may be looked at,
planned or changed before it has ended. This room must not know what the work is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal

from helpers.reach.as_job import wait_for_job
from helpers.reach.command import Command
from helpers.reach.job import Job, JobPlace
from helpers.reach.opening import job_place
from helpers.recover.work import Work

# Longer than any payload may take: they end themselves.
_OLDEST_S = 6 * 3600.0
# Prints the names of jobs of one run whose end nobody has taken note of, each ended by a NUL.
_LEFT = (
    'cd -- "$1" 2>/dev/null || exit 0; '
    'for job in "$2"-*; do case $job in *.before-*) continue;; esac; '
    '[ ! -e "$job/pid" ] || [ -e "$job/collected" ] || printf "%s\\0" "$job"; done'
)


@dataclass(frozen=True)
class LeftJob:
    """One such job.

    Attributes:
        name: its name without the run's id, for instance ``40_warm_cache-warm``.
        found: whether it was still going on when it was found.
        state: how it is now: "finished" with an exit code, "killed", or "lost" by a restart.
        returncode: its exit code, where it has written one.
    """

    name: str
    found: Literal["running", "ended"]
    state: str
    returncode: int | None

    def __str__(self) -> str:
        how = (
            f"{self.state}, exit code {self.returncode}" if self.state == "finished" else self.state
        )
        waited = "was waited for" if self.found == "running" else "had ended"
        return f"{self.name} {waited}: {how}"


def wait_for_left_jobs(work: Work) -> list[LeftJob]:
    """Wait for everything that an earlier attempt of this run left going on.

    **Runs on:** container. **Changes:** a mark in the folder of each job.

    Raises:
        TargetError, OutcomeUnknown: there was no way to the container for too long.
    """
    folder = job_place(work.target, work.run_id).folder
    listed = work.container.check(
        Command(("bash", "-c", _LEFT, "left", folder, work.run_id), purpose="look for work left"),
        hint=f"Look at {folder} in the container.",
    )
    names = sorted(filter(None, listed.text.split("\0")))
    return [_waited_for(work, JobPlace(folder, name)) for name in names]


def _waited_for(work: Work, place: JobPlace) -> LeftJob:
    name = place.name.removeprefix(f"{work.run_id}-")
    running = Job(work.container, place).look().state == "running"
    if running:
        work.say(f"waiting for {name}, which an earlier attempt started", None)

    def tell(data: bytes) -> None:
        line = data.decode("utf-8", "backslashreplace").rstrip().rpartition("\n")[2]
        work.say(f"waiting for {name}: {_progress(line)}", None)

    state = wait_for_job(work.container, place, oldest_s=_OLDEST_S, on_stderr=tell)
    return LeftJob(name, "running" if running else "ended", state.state, state.returncode)


def _progress(line: str) -> str:
    """The words of a payload's progress line; any other line as it is."""
    try:
        return " ".join(str(value) for value in json.loads(line)["progress"].values())[:100]
    except (ValueError, KeyError, TypeError, AttributeError):
        return line[:100]
