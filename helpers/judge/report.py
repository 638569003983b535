"""Judge of stage 90: is the record of this run whole and readable?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.target import Target
from helpers.verdict import Check, Status, Verdict, verdict


def judge(evidence: Mapping[str, Any], target: Target) -> Verdict:
    """Judge what stage 90 found in the run folder. **Runs on:** operator. **Changes:** nothing."""
    facts = evidence.get("facts") or {}
    measured = evidence.get("measured") or {}
    problems = facts.get("journal_problems")
    missing = facts.get("stages_without_evidence")
    return verdict(
        [
            _empty(
                "journal whole", problems, "The journal was changed or torn after it was written."
            ),
            _empty("evidence there", missing, "A stage ran and left no evidence behind."),
            Check(
                name="report written",
                status=Status.PASS if measured.get("report_bytes") else Status.UNKNOWN,
                measured=measured.get("report_bytes"),
                expected="one self-contained HTML file",
                source="the run folder",
                meaning=""
                if measured.get("report_bytes")
                else "The report has not been written yet.",
            ),
        ]
    )


def _empty(name: str, found: list[str] | None, meaning: str) -> Check:
    status = Status.UNKNOWN if found is None else Status.FAIL if found else Status.PASS
    return Check(
        name=name,
        status=status,
        measured=None if found is None else [*found],
        expected="nothing",
        source="the run folder",
        meaning="" if status is Status.PASS else meaning,
    )
