"""What a room is given to work with, and the shape every room has.

A room is a module with three functions; its judge lives in ``helpers.judge`` under the same name:

    look(work) -> Facts                      read only: how it is now
    plan(work, facts) -> Plan                the changes that would be made; changes nothing
    apply(work, facts, plan) -> Measured     makes the planned changes and measures

Facts and measured values are raw JSON without verdicts; they become the stage's evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import JsonValue

from helpers.plan import Change, Plan
from helpers.reach.container import Container
from helpers.target import Target

Json = dict[str, JsonValue]
ChangeEvent = Callable[[str, Change, str | None], None]


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
    """

    container: Container
    target: Target
    run_id: str
    evidence_of: Callable[[str], Mapping[str, Any] | None]
    keep: Callable[[str, str], None]
    say: Callable[[str, float | None], None]
    on_change: ChangeEvent

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
