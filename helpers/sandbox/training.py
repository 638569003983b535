"""Let training run for a moment, so that its log tells of the time before and after the break.

It is started as a person would start it, through the deployed start script. This room must not know
whether training is well.
"""

from __future__ import annotations

import re
import statistics
from dataclasses import dataclass
from typing import Literal

from helpers.reach.command import Command
from helpers.recover.work import Work

# Ends a moment that crawls; in a quiet machine each one takes a few seconds.
LONGEST_S = 60
# What the training process has on top to end its threads once it is asked to end.
_TO_END_S = 15
# timeout(1) asks the process to end, as a person with Ctrl-C would, and says so with these.
_TIMED_OUT, _KILLED = 124, 137
# Steps of each drafter, and steps between two lines. Whoever reads the log looks at its last ten
# lines: after the break there are more of them than that, before it there are few.
_LENGTHS = {"healthy": (40, 10), "broken": (12, 1)}


@dataclass(frozen=True)
class Moment:
    """A moment of training.

    Attributes:
        tok_per_s: what its lines said, in order.
        end: how it ended, in words.
    """

    tok_per_s: tuple[float, ...]
    end: str

    def __str__(self) -> str:
        if not self.tok_per_s:
            return f"no throughput in its log; {self.end}"
        lines, middle = len(self.tok_per_s), statistics.median(self.tok_per_s)
        return f"{lines} throughput lines in its log, median {middle:.0f} tok/s; {self.end}"


def train_for_a_moment(work: Work, state: Literal["healthy", "broken"]) -> Moment:
    """Start training, and end it after so many steps or seconds, whatever it does.

    **Runs on:** container. **Changes:** the training log; the compile cache where it is not warm.

    Args:
        work: the sandbox's surroundings.
        state: what the sandbox is meant to be; it decides how many steps there are.
    """
    target = work.target
    steps, interval = _LENGTHS[state]
    env = {
        "VENV": target.environment.venv,
        "CACHE_DIR": target.cache.directory,
        "LOG_FILE": target.training.log,
        "STEPS": str(steps),
    }
    bound = ("timeout", f"--kill-after={_TO_END_S}", str(LONGEST_S))
    pattern = re.compile(target.training.throughput_pattern)

    def tell(data: bytes) -> None:
        line = data.decode("utf-8", "backslashreplace").rstrip().rpartition("\n")[2]
        work.say(f"training: {line}", None)

    result = work.container.run(
        Command(
            (*bound, target.training.start_script, "--log-interval", str(interval)),
            purpose="let training run for a moment",
            env=env,
            timeout_s=LONGEST_S + 2 * _TO_END_S,
            changes=True,
        ),
        on_stdout=tell,
    )
    lines = result.text.splitlines()
    found = tuple(float(m["tok_per_s"]) for m in map(pattern.search, lines) if m)
    return Moment(found, _end(result.returncode, steps, lines))


def _end(returncode: int | None, steps: int, lines: list[str]) -> str:
    if returncode == 0:
        return f"all {steps} steps done"
    if returncode in (_TIMED_OUT, _KILLED):
        return f"ended after {LONGEST_S} s"
    return f"crashed with exit code {returncode}: {lines[-1][:200] if lines else 'it said nothing'}"
