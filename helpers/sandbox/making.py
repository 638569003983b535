"""What making a sandbox is told and tells: folder, target, and one step after another.

This room knows that there are steps; it must not know what any of them does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from helpers.reach.container import Container
from helpers.reach.local import LocalContainer
from helpers.recover.work import Work
from helpers.sandbox.folder import SandboxFolder
from helpers.target import Target

Say = Callable[[str], None]
How = Literal["made", "reused"]

RUN_ID = "sandbox"
# A step that takes long says what it is at, this often.
_TELL_EVERY_S = 5.0


class StepReport(BaseModel):
    """One step of making a sandbox.

    Attributes:
        how: "reused" when the costly part of it came from an earlier sandbox.
        detail: what came of it, in words.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    how: How
    elapsed_s: float
    detail: str


@dataclass
class Outcome:
    """What a step says of itself; it is filled in while the step runs."""

    detail: str = ""
    how: How = "made"


@dataclass
class Making:
    """A sandbox on its way.

    Attributes:
        folder: where everything goes.
        target: the sandbox's target, as stages will see it.
        say: shows one line to a person.
        container: the way into it; None = a folder of this machine.
        outside: where a path of the container lies on this machine.
        steps: what has been done so far.
    """

    folder: SandboxFolder
    target: Target
    say: Say
    container: Container | None = None
    outside: Callable[[str], Path] = Path
    steps: list[StepReport] = field(default_factory=list)
    _told_at_s: float = 0.0
    _began_s: float = field(default_factory=time.monotonic)

    @property
    def work(self) -> Work:
        """The surroundings in which the stages' own rooms work here."""
        return Work(
            container=self.container or LocalContainer(self.target.name),
            target=self.target,
            run_id=RUN_ID,
            evidence_of=_nothing_before,
            keep=self._keep,
            say=self.progress,
            on_change=_unrecorded,
        )

    def close(self) -> None:
        """End what is held open on the way into the container. **Changes:** nothing."""
        if self.container is not None:
            self.container.close()

    @contextmanager
    def step(self, name: str, begins: str) -> Iterator[Outcome]:
        """Do one step, say that it begins, and say its seconds when it has ended well.

        **Runs on:** operator. **Changes:** nothing by itself.

        Args:
            name: a word or two, for instance ``compile cache``.
            begins: what is going to happen, as a sentence's end.
        """
        self.say(f"… {name}: {begins}")
        began_s = self._told_at_s = time.monotonic()
        outcome = Outcome()
        yield outcome
        elapsed_s = time.monotonic() - began_s
        step = StepReport(
            name=name, how=outcome.how, elapsed_s=round(elapsed_s, 2), detail=outcome.detail
        )
        self.steps.append(step)
        self.say(f"✓ {name} ({elapsed_s:.1f} s, {step.how}): {step.detail}")

    def progress(self, text: str, fraction: float | None) -> None:
        """Show now and then what a long step is at. **Changes:** nothing."""
        now_s = time.monotonic()
        if now_s - self._told_at_s >= _TELL_EVERY_S:
            self._told_at_s = now_s
            share = "" if fraction is None else f" ({fraction:.0%})"
            self.say(f"    {now_s - self._began_s:.0f} s: {text.strip()[:100]}{share}")

    def _keep(self, name: str, content: str) -> None:
        self.folder.healthy.mkdir(exist_ok=True)
        (self.folder.healthy / name).write_text(content, encoding="utf-8")


def _nothing_before(stage: str) -> Mapping[str, Any] | None:
    """No stage has run here before."""
    return None


def _unrecorded(*event: object) -> None:
    """Making a sandbox has no journal: what it makes is new, and there is nothing to undo."""
