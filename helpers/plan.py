"""A plan: the changes that a stage would make, each with its undo, and the hash by which it is approved.

Plain data; this room must not know how a change is carried out.
"""

from __future__ import annotations

import hashlib
import json

from pydantic import BaseModel, ConfigDict

LATER = "known when applied"


class Change(BaseModel):
    """One thing that would be or was changed.

    Attributes:
        what: the action, imperative: "set the old venv aside".
        where: the path or thing it touches, as the container sees it.
        before: how it is now, in words or as a hash.
        after: how it will be; ``LATER`` where only applying it tells.
        undo: the exact way back, a command where one exists.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: str
    where: str
    before: str
    after: str
    undo: str


class Plan(BaseModel):
    """What a stage would do.

    Attributes:
        stage: name of the stage.
        changes: in the order in which they would be made; empty = nothing to change.
        measures: what it would measure without changing anything, in words.
        why: one sentence: why these changes, or why none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    stage: str
    changes: tuple[Change, ...] = ()
    measures: tuple[str, ...] = ()
    why: str

    @property
    def hash(self) -> str:
        """SHA-256 of the plan: approval is given to exactly this content."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True, ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()
