"""How a run ended follows from its stages and from nothing else."""

import pytest

from helpers.record.outcome import EXIT_CODES, outcome_of
from helpers.record.run_folder import Outcome, StageRecord, StageState

S = StageState


def records(*states, verdict="pass"):
    names = ["00_preflight", "10_environment", "60_benchmark", "90_report"]
    return [
        StageRecord(n, s, None, None, "why", verdict) for n, s in zip(names, states, strict=True)
    ]


@pytest.mark.parametrize(
    ("states", "outcome"),
    [
        ((S.PASSED, S.PASSED, S.PASSED, S.PASSED), Outcome.RECOVERED),
        ((S.PASSED, S.PASSED, S.PENDING, S.PASSED), Outcome.UNKNOWN),
        ((S.PASSED, S.PASSED, S.SKIPPED, S.PASSED), Outcome.UNKNOWN),
        ((S.PASSED, S.FAILED, S.PENDING, S.PASSED), Outcome.FAILED),
        ((S.PASSED, S.UNKNOWN, S.PENDING, S.PASSED), Outcome.UNKNOWN),
        ((S.PASSED, S.RUNNING, S.PENDING, S.PENDING), Outcome.UNKNOWN),
        ((S.PASSED, S.NEEDS_APPROVAL, S.PENDING, S.PASSED), Outcome.NEEDS_APPROVAL),
        ((S.PASSED, S.INTERRUPTED, S.PENDING, S.PENDING), Outcome.INTERRUPTED),
        ((S.PASSED, S.PASSED, S.PASSED, S.FAILED), Outcome.FAILED),
    ],
)
def test_outcome_of_a_run(states, outcome):
    assert outcome_of("run", records(*states))[0] is outcome


def test_a_run_without_a_benchmark_is_not_recovered():
    partial = [StageRecord("00_preflight", S.PASSED, None, None, "", "pass")]
    assert outcome_of("run", partial)[0] is Outcome.UNKNOWN


def test_below_the_baseline_is_degraded_and_not_failed():
    below = records(S.PASSED, S.PASSED, S.FAILED, S.PASSED, verdict="degraded")
    assert outcome_of("run", below)[0] is Outcome.DEGRADED


@pytest.mark.parametrize(
    ("verdict", "outcome"), [("degraded", Outcome.DEGRADED), ("fail", Outcome.FAILED)]
)
def test_threads_that_start_only_with_a_remedy_are_degraded(verdict, outcome):
    stopped = [
        StageRecord("40_warm_cache", S.PASSED, None, None, "", "pass"),
        StageRecord("50_threads", S.FAILED, None, None, "racy", verdict),
        StageRecord("60_benchmark", S.PENDING, None, None, "", None),
    ]
    assert outcome_of("run", stopped)[0] is outcome


def test_a_plan_that_went_through_is_planned():
    assert (
        outcome_of("plan", records(S.SKIPPED, S.NEEDS_APPROVAL, S.SKIPPED, S.SKIPPED))[0]
        is Outcome.PLANNED
    )


def test_every_way_to_end_has_an_exit_code_of_its_own_or_is_good():
    codes = [EXIT_CODES[o] for o in Outcome if o in EXIT_CODES and o is not Outcome.PLANNED]
    assert len(set(codes)) == len(codes)
    assert 2 not in codes, "2 is for wrong use"
