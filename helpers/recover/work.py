"""What a room is given to work with, and the shape every room has.

A room is a module with three functions; its judge lives in ``helpers.judge`` under the same name:

    look(work) -> Facts                      read only: how it is now
    plan(work, facts) -> Plan                the changes that would be made; changes nothing
    apply(work, facts, plan) -> Measured     makes the planned changes and measures

Facts and measured values are raw JSON without verdicts; they become the stage's evidence.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import JsonValue

from helpers.errors import CommandError, TargetError
from helpers.plan import Change, Plan
from helpers.reach.container import Container
from helpers.reach.job import Job, JobPlace
from helpers.reach.opening import job_place
from helpers.target import Target

Json = dict[str, JsonValue]
ChangeEvent = Callable[[str, Change, str | None], None]
_STOP_GRACE_S = 3
_LEFT_ALONE = 75  # EX_TEMPFAIL: nobody is there to read it


@dataclass
class Made:
    """A change while it is made.

    Attributes:
        after: how it is afterwards, as the plan said; set it to what applying has told.
    """

    after: str


@dataclass(frozen=True)
class Work:
    """One stage's surroundings.

    Attributes:
        container: the way to the container.
        target: everything declared about it.
        run_id: names what is set aside, so that a run's leavings can be told from another's.
        evidence_of: facts and measured values of an earlier stage of this run; None when it has not run.
        keep: writes a file of evidence (name, content) into the run folder.
        say: shows progress to the operator: what is going on, and how far of how much (None = unknown).
        on_change: told of each change: "begins", "done", "failed" or "undone", with an error's text.
        runner_is_gone: whether whoever keeps the record of this process was killed meanwhile.
    """

    container: Container
    target: Target
    run_id: str
    evidence_of: Callable[[str], Mapping[str, Any] | None]
    keep: Callable[[str, str], None]
    say: Callable[[str, float | None], None]
    on_change: ChangeEvent
    runner_is_gone: Callable[[], bool] = lambda: False

    @contextmanager
    def job(self, name: str) -> Iterator[JobPlace]:
        """The place for long work that survives the loss of the connection, to be done in the block.

        When the block fails, nothing of the work may go on while the stage puts things back: it is
        stopped. When the runner was killed there is nobody to put anything back for: the work goes on
        by itself, this process ends on the spot, and ``recover resume`` finds the work.

        **Changes:** what the block does.

        Args:
            name: stage and work, for instance ``40_warm_cache-warm``; the same in a further attempt
                of this run.
        """
        place = job_place(self.target, f"{self.run_id}-{name}")
        try:
            yield place
        except BaseException:
            if self.runner_is_gone():
                os._exit(_LEFT_ALONE)
            # Where there is no way to the container, the error that is raised says so already.
            with suppress(CommandError, TargetError):
                stopped = Job(self.container, place, patience_s=0.0)
                stopped.stop(_STOP_GRACE_S)
                stopped.collect()  # a further attempt starts anew
            raise

    @contextmanager
    def change(self, change: Change) -> Iterator[Made]:
        """Record a change around the code that makes it: begun before, done or failed after.

        What only applying tells is said through the ``Made`` inside, and recorded in the plan's place.
        """
        self.on_change("begins", change, None)
        made = Made(change.after)
        try:
            yield made
        except BaseException as error:
            self.on_change("failed", change, str(error))
            raise
        self.on_change("done", change.model_copy(update={"after": made.after}), None)

    def undone(self, change: Change, why: str) -> None:
        """Record that a change was taken back by the stage itself."""
        self.on_change("undone", change, why)


class Room(Protocol):
    """The three functions of a room module."""

    def look(self, work: Work) -> Json:
        """How it is now; read only."""

    def plan(self, work: Work, facts: Json) -> Plan:
        """The changes that would be made; changes nothing."""

    def apply(self, work: Work, facts: Json, plan: Plan) -> Json:
        """Make the planned changes and measure."""
