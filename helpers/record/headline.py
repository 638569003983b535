"""How a run is told in one word and one sentence: the head of its report.

The word is the run's recorded outcome; where the record has no end, the word says that. This room
decides nothing that the stages have not recorded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from helpers.record.measured import Rates
from helpers.record.outcome import outcome_of
from helpers.record.reading import Reading, StageReading
from helpers.record.run_folder import Outcome, StageState
from helpers.record.wording import ratio_text, tok_per_s_text, value_text, when_text
from helpers.verdict import Check

REPORT_STAGE = "90_report"

_WORDS = {
    Outcome.RECOVERED: ("Recovered", "✓", "good"),
    Outcome.DEGRADED: ("Degraded", "▼", "warn"),
    Outcome.FAILED: ("Failed", "✗", "bad"),
    Outcome.UNKNOWN: ("Unknown", "?", "open"),
    Outcome.NEEDS_APPROVAL: ("Needs approval", "!", "warn"),
    Outcome.INTERRUPTED: ("Interrupted", "■", "warn"),
    Outcome.PLANNED: ("Planned", "○", "note"),
    Outcome.STEPPED: ("Stepped by hand", "○", "note"),
}

STATE_MARKS = {
    StageState.PENDING: ("○", "quiet"),
    StageState.RUNNING: ("▸", "note"),
    StageState.PASSED: ("✓", "good"),
    StageState.FAILED: ("✗", "bad"),
    StageState.UNKNOWN: ("?", "open"),
    StageState.SKIPPED: ("–", "quiet"),
    StageState.NEEDS_APPROVAL: ("!", "warn"),
    StageState.INTERRUPTED: ("■", "warn"),
}
_STOPPING = (
    StageState.INTERRUPTED,
    StageState.FAILED,
    StageState.UNKNOWN,
    StageState.RUNNING,
    StageState.NEEDS_APPROVAL,
)


@dataclass(frozen=True)
class Headline:
    """The head of a report.

    Attributes:
        word: the outcome.
        symbol: one character that tells it without colour.
        tone: its colours, by name.
        sentence: why, naming what decided it.
        more: what it means or what to do next; may be empty.
    """

    word: str
    symbol: str
    tone: str
    sentence: str
    more: str


def headline(reading: Reading, rates: Rates) -> Headline:
    """Word and sentence for a run. **Runs on:** operator. **Changes:** nothing."""
    outcome = reading.outcome or _so_far(reading)
    if outcome is None:
        return _without_end(reading)
    word, symbol, tone = _WORDS[outcome]
    sentence, more = _why(reading, outcome, rates)
    return Headline(word, symbol, tone, sentence, more)


def check_sentence(check: Check) -> str:
    """A check in a sentence: what was measured and what was expected."""
    between = ": " if isinstance(check.measured, (dict, list)) else " is "
    said = f"{check.name}{between}{value_text(check.measured, check.name)}"
    return f"{said}, expected {check.expected}." if check.expected else f"{said}."


def _so_far(reading: Reading) -> Outcome | None:
    """The outcome as the stages have it, where nothing but the report itself is still to come."""
    others = [s.record for s in reading.stages if s.record.name != REPORT_STAGE]
    if any(record.state is StageState.RUNNING for record in others):
        return None
    if reading.asked.mode == "step":
        outcome, _ = outcome_of("run", others)
        unproven = all(r.state in (StageState.PASSED, StageState.SKIPPED) for r in others)
        return Outcome.STEPPED if outcome is Outcome.UNKNOWN and unproven else outcome
    report = reading.stage(REPORT_STAGE)
    if report is None or report.record.state is StageState.PENDING:
        return None
    return outcome_of(reading.asked.mode, others)[0]


def _without_end(reading: Reading) -> Headline:
    last = reading.last_event
    running = next((s for s in reading.stages if s.record.state is StageState.RUNNING), None)
    where = f"It stops in {running.record.name}." if running else "No stage is under way."
    when = f" Its last entry is of {when_text(str(last.get('at', '')))}." if last else ""
    return Headline(
        "Unfinished",
        "?",
        "open",
        f"The record has no end. {where}{when}",
        "Either the run is still going on, or its runner died without a word. "
        "What it was doing then may or may not have happened.",
    )


def _why(reading: Reading, outcome: Outcome, rates: Rates) -> tuple[str, str]:
    if outcome is Outcome.RECOVERED and rates.now is not None and rates.baseline:
        share = ratio_text(rates.now / rates.baseline)
        now, baseline = tok_per_s_text(rates.now), tok_per_s_text(rates.baseline)
        said = f"Training runs at {now}, {share} of the baseline of {baseline}."
        if rates.now_as_measured is None:
            return said, ""
        seen = tok_per_s_text(rates.now_as_measured)
        return said, f"Both are corrected for other work on the machine; the clock saw {seen} now."
    stopped = _stopping_stage(reading.stages)
    if stopped is None or outcome in (Outcome.PLANNED, Outcome.RECOVERED):
        return reading.summary or _count(reading.stages), ""
    deciding, error = stopped.deciding, stopped.error
    where = f"In {stopped.record.name}, "
    if deciding is not None:
        return where + check_sentence(deciding), deciding.meaning
    if error is not None:
        return where + error.get("what", ""), error.get("hint", "")
    return where + (stopped.record.summary or f"the state is {stopped.record.state.value}."), ""


def _stopping_stage(stages: Sequence[StageReading]) -> StageReading | None:
    for state in _STOPPING:
        found = next((s for s in stages if s.record.state is state), None)
        if found is not None and found.record.name != REPORT_STAGE:
            return found
    return None


def _count(stages: Sequence[StageReading]) -> str:
    passed = sum(s.record.state is StageState.PASSED for s in stages)
    return f"{passed} of {len(stages)} stages passed."
