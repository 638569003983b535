"""A stage as a notebook sees it: look, plan, act, judge, close.

Every cell of a runbook calls one of these and shows what it returns. This room carries a room's three
functions and its judge through one run folder; it must not know what any of them does.
"""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from helpers.book import panel, pictures
from helpers.book.alone import alone
from helpers.book.approval import offer_approval
from helpers.book.binding import Binding
from helpers.book.keeping import ActionFailure, Keeping
from helpers.book.progress import Progress
from helpers.book.view import View
from helpers.errors import Changed, NeedsApproval, VerificationFailed
from helpers.plan import Plan
from helpers.record.run_folder import StageState
from helpers.record.wording import value_text
from helpers.recover.work import Json
from helpers.verdict import Check, Status, Verdict

_NOT_PASSED = (StageState.FAILED, StageState.UNKNOWN, StageState.INTERRUPTED)
_ROLL_BACK = "Read the checks above; the report lists every change with its undo."


class Stage:
    """One stage of one run, opened by ``helpers.open_stage``.

    Args:
        binding: target, container and run folder that belong together, and the stage's own room and judge.
        apply: whether the plan is approved as it will be shown.
        live: the progress line of whatever phase is going on.
    """

    def __init__(self, binding: Binding, *, apply: bool, live: Progress) -> None:
        self._binding = binding
        self._approval: Json | None = self._approved_by("apply=True") if apply else None
        self._plan: Plan | None = None
        self._done: Plan | None = None  # the plan that was applied, whatever is planned now
        self._failure: ActionFailure | None = (
            None  # the last action, when it did not come to its end
        )
        self._keeping = Keeping(binding, live)

    @property
    def evidence(self) -> dict[str, Any]:
        """What is known so far, as it stands in the run folder."""
        return self._keeping.evidence

    def _repr_mimebundle_(
        self, **_: object
    ) -> dict[str, str]:  # IPython passes include/exclude here
        how = "APPLY" if self._approval else "DRY RUN: nothing changes until the plan is approved"
        return panel.header_view({**self._binding.heading(), "mode": how})._repr_mimebundle_()

    def look(self) -> View:
        """Find out how it is now. **Runs on:** container. **Changes:** nothing."""
        with self._keeping.phase("look"):
            self._binding.refuse_wrong_target()
            self._keeping.wait_for_left_work()
            self._keeping.evidence["facts"] = self._binding.room.look(self._binding.work)
            self._keeping.evidence["findings"] = [
                c.model_dump(mode="json") for c in self._findings()
            ]
            self._keeping.save()
        return pictures.facts(self._binding.name, self._keeping.evidence)

    def findings(self) -> View:
        """What is wrong, said as checks of the facts. **Changes:** nothing."""
        return panel.checks_view("What is wrong now", self._findings())

    def show(self, picture: str) -> View:
        """One thing of this stage worth looking at, by name. **Changes:** nothing.

        Raises:
            ParameterError: this stage has no picture of that name.
        """
        return pictures.show(
            self._binding.name, picture, self._keeping.evidence, self._binding.folder
        )

    def plan(self) -> View:
        """What would be changed, each with its undo. **Changes:** nothing."""
        with self._keeping.phase("plan"):
            plan = self._make_plan()
            self._keeping.event("plan", plan_hash=plan.hash, changes=len(plan.changes))
            self._keeping.save()
        if plan.changes and not self._approves(plan) and not self._binding.batch:
            offer_approval(plan, lambda: self._approve(plan))
        return panel.plan_view(plan)

    def act(self) -> View:
        """Make the planned changes when they are approved, then measure.

        Nobody else acts on the container meanwhile: the stage holds its lock, or its chain does.

        **Runs on:** container. **Changes:** what the plan says, and only when approved; a plan that has
        changed since it was shown asks again.
        """
        if self._plan is None:
            self.plan()
        assert self._plan is not None
        if self._applied_as_planned():
            return panel.note_view("Already done in this notebook; nothing was done twice.")
        if self._plan.changes and not self._approves(self._plan):
            return panel.note_view(
                "Not approved: nothing was changed. Approve the plan above to go on."
            )
        if self._binding.planning:
            return panel.note_view("This is a plan: nothing is measured or changed.")
        with self._keeping.phase("act"), alone(self._binding):
            self._binding.refuse_wrong_target()
            plan = self._unchanged_plan()
            # What an earlier attempt measured says nothing about this one.
            self._keeping.evidence.update(applied=False, measured=None, verdict=None)
            with self._failure_known(plan):
                self._keeping.evidence["measured"] = self._binding.room.apply(
                    self._binding.work, self._keeping.evidence["facts"], plan
                )
            self._keeping.evidence["applied"] = True
            self._done = plan
            self._keeping.save()
        return pictures.measured(self._binding.name, self._keeping.evidence)

    def judge(self) -> View:
        """Compare what was found with what is declared. **Changes:** nothing."""
        with self._keeping.phase("judge"):
            found = self._verdict()
            self._keeping.evidence["verdict"] = found.model_dump(mode="json")
            deciding = found.deciding.name if found.deciding else None
            self._keeping.event("verdict", status=found.status.value, deciding=deciding)
            self._keeping.save()
        return panel.verdict_view(found)

    def close(self) -> View:
        """Seal the stage's evidence; raise when it did not pass, so that the chain stops here.

        **Runs on:** operator. **Changes:** the run folder.

        Raises:
            NeedsApproval: there are changes to make and nobody approved them.
            VerificationFailed: the verdict is not a pass.
        """
        with self._keeping.phase("close") as phase:
            found = self._verdict()
            self._keeping.evidence["verdict"] = found.model_dump(mode="json")
            state, summary = self._state(found)
            if state is StageState.NEEDS_APPROVAL and not self._binding.planning:
                assert self._plan is not None
                raise NeedsApproval(
                    summary,
                    plan_hash=self._plan.hash,
                    hint="Read the plan, then approve it: --yes in a run, -p apply True with papermill, "
                    "the button in JupyterLab.",
                )
            if state in _NOT_PASSED:
                phase.ends_as = state  # an action that failed has failed, whatever is known now
                raise VerificationFailed(
                    summary, verdict=found, hint=_ROLL_BACK, changed=self._changed()
                )
        self._keeping.end(state, summary)
        return panel.banner_view(
            self._binding.name, found.status, summary, self._binding.next_notebook()
        )

    def _state(self, found: Verdict) -> tuple[StageState, str]:
        plan, deciding = self._plan, found.deciding
        if self._failure:
            return self._failure.state, self._failure.said
        if plan and plan.changes and not self._applied_as_planned():
            said = f"{_counted(len(plan.changes))} planned, none made."
            return StageState.NEEDS_APPROVAL, said
        if self._binding.planning and plan and (plan.measures or plan.changes):
            return StageState.SKIPPED, "Nothing to change; not measured in a plan."
        if found.status.good:
            return StageState.PASSED, self._passed(found)
        name = deciding.name if deciding else "no check at all"
        meaning = deciding.meaning if deciding else "nothing was measured"
        state = StageState.UNKNOWN if found.status is Status.UNKNOWN else StageState.FAILED
        return state, f"{found.status.value}: {name}: {meaning}"

    def _passed(self, found: Verdict) -> str:
        done = len(self._done.changes) if self._done else 0
        quoted = [c for c in found.checks if c.name == self._binding.kind.headline]
        said = f"{_counted(done)} made." if done else "Nothing had to be changed."
        return " ".join([said, *(f"{c.name}: {value_text(c.measured)}." for c in quoted)])

    def _make_plan(self) -> Plan:
        if self._keeping.evidence["facts"] is None:
            self.look()
        self._plan = self._binding.room.plan(self._binding.work, self._keeping.evidence["facts"])
        self._keeping.evidence["plan"] = self._plan.model_dump(mode="json")
        self._keeping.evidence["plan_hash"] = self._plan.hash
        return self._plan

    def _unchanged_plan(self) -> Plan:
        """The plan that was shown, proven to be still the right one."""
        assert self._plan is not None
        shown = self._plan
        if not shown.changes:
            return shown
        self._keeping.evidence["facts"] = self._binding.room.look(self._binding.work)
        now = self._make_plan()
        if now.hash != shown.hash:
            self._approval = None
            self._plan = shown  # the new one has not been shown to anybody yet
            raise NeedsApproval(
                "The plan has changed since it was shown: something else touched the target.",
                plan_hash=now.hash,
                hint="Run the plan cell again, read it, and approve it anew.",
            )
        assert self._approval is not None
        self._keeping.evidence["approval"] = {**self._approval, "plan_hash": now.hash}
        self._keeping.event(
            "approval", plan_hash=now.hash, by=self._approval["by"], how=self._approval["how"]
        )
        return now

    @contextmanager
    def _failure_known(self, plan: Plan) -> Iterator[None]:
        """Remember how the action failed: a verdict about what it left says nothing of that."""
        self._failure = None
        try:
            yield
        except BaseException as error:
            self._failure = ActionFailure.of(error, changing=bool(plan.changes))
            raise

    def _approve(self, plan: Plan) -> None:
        self._approval = {**self._approved_by("button"), "plan_hash": plan.hash}

    def _approves(self, plan: Plan) -> bool:
        """Whether there is an approval and it covers this plan: a click covers only what it was for."""
        given = self._approval
        return given is not None and given.get("plan_hash", plan.hash) == plan.hash

    def _applied_as_planned(self) -> bool:
        """Whether the plan as it stands is the one that was applied, or nothing is left to change."""
        if not self._keeping.evidence["applied"] or self._plan is None:
            return bool(self._keeping.evidence["applied"])
        same = self._done is not None and self._plan.hash == self._done.hash
        return same or not self._plan.changes

    def _approved_by(self, how: str) -> Json:
        return {"by": getpass.getuser(), "how": how, "at": datetime.now(UTC).isoformat()}

    def _findings(self) -> list[Check]:
        if self._binding.find is None or self._keeping.evidence["facts"] is None:
            return []
        return self._binding.find(self._keeping.evidence["facts"], self._binding.target)

    def _verdict(self) -> Verdict:
        return self._binding.judge(self._keeping.evidence, self._binding.target)

    def _changed(self) -> Changed:
        earlier: Changed = "yes" if self._done and self._done.changes else "no"
        if self._failure is None or self._failure.changed == "no":
            return earlier
        return self._failure.changed


def _counted(changes: int) -> str:
    return f"{changes} change{'s' * (changes != 1)}"
