"""From the states of a run's stages to how the run ended. Pure: no I/O and no clock."""

from __future__ import annotations

from collections.abc import Sequence

from helpers.record.run_folder import Outcome, StageRecord, StageState

PROVING_STAGE = "60_benchmark"
# Stages that can find that training works, and worse than it should: below the baseline, or only when
# its threads are started in another way than it starts them.
DEGRADING_STAGES = ("50_threads", PROVING_STAGE)

EXIT_CODES: dict[Outcome, int] = {
    Outcome.RECOVERED: 0,
    Outcome.PLANNED: 0,
    Outcome.FAILED: 1,
    Outcome.DEGRADED: 3,
    Outcome.UNKNOWN: 4,
    Outcome.NEEDS_APPROVAL: 5,
    Outcome.INTERRUPTED: 130,
}


def outcome_of(mode: str, records: Sequence[StageRecord]) -> tuple[Outcome, str]:
    """How a run ended, and the sentence that says why.

    A run is recovered only when throughput was measured and is back; that the steps ran is not enough.

    Args:
        mode: "run" or "plan".
        records: every stage of the run, in order.

    Returns:
        The outcome and one sentence naming the stage that decided it.
    """
    for state, outcome in (
        (StageState.INTERRUPTED, Outcome.INTERRUPTED),
        (StageState.FAILED, Outcome.FAILED),
        (StageState.UNKNOWN, Outcome.UNKNOWN),
        (StageState.RUNNING, Outcome.UNKNOWN),
    ):
        for record in records:
            if record.state is state:
                return _named(outcome, record), f"{record.name}: {record.summary or state.value}"
    if mode == "plan":
        return Outcome.PLANNED, "Nothing was changed: this was a plan."
    waiting = next((r for r in records if r.state is StageState.NEEDS_APPROVAL), None)
    if waiting:
        return Outcome.NEEDS_APPROVAL, f"{waiting.name}: {waiting.summary}"
    proof = next((r for r in records if r.name == PROVING_STAGE), None)
    if proof is None or proof.state is not StageState.PASSED:
        return Outcome.UNKNOWN, f"{PROVING_STAGE} has not measured throughput."
    return Outcome.RECOVERED, "Measured throughput is back at the baseline."


def _named(outcome: Outcome, record: StageRecord) -> Outcome:
    degraded = record.name in DEGRADING_STAGES and record.verdict == "degraded"
    return Outcome.DEGRADED if outcome is Outcome.FAILED and degraded else outcome
