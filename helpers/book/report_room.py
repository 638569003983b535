"""Stage 90 as a room: it looks at the run folder instead of the container, and writes the report there."""

from __future__ import annotations

from helpers.plan import Plan
from helpers.record.report import write_report
from helpers.record.run_folder import RunFolder, StageState
from helpers.recover.work import Json, Work

_STAGE = "90_report"


class ReportRoom:
    """Look, plan and apply over one run folder."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder

    def look(self, work: Work) -> Json:
        """What the run folder holds. **Runs on:** operator. **Changes:** nothing."""
        records = [r for r in self._folder.stage_records() if r.name != _STAGE]
        ran = [r.name for r in records if r.state is not StageState.PENDING]
        return {
            "stages": [
                {"stage": r.name, "state": r.state.value, "summary": r.summary} for r in records
            ],
            "stages_without_evidence": [s for s in ran if self._folder.evidence(s) is None],
            "journal_problems": list(self._folder.journal.problems()),
            "journal_head": self._folder.journal.head(),
        }

    def plan(self, work: Work, facts: Json) -> Plan:
        """Nothing in the container changes. **Runs on:** operator. **Changes:** nothing."""
        return Plan(
            stage=_STAGE,
            measures=("write report.html into the run folder",),
            why="A report reads the run folder and changes nothing else.",
        )

    def apply(self, work: Work, facts: Json, plan: Plan) -> Json:
        """Write the report. **Runs on:** operator. **Changes:** the run folder's report."""
        path = write_report(self._folder)
        return {"report": str(path), "report_bytes": path.stat().st_size}
