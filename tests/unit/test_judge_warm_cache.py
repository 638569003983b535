"""Judge of stage 40, over captured processes, altered ones, and ones with parts missing."""

import copy

import pytest

from helpers.judge.warm_cache import judge
from helpers.verdict import Status
from tests.unit import captured

S = Status
TARGET = captured.target()


def evidence(**changed):
    warm, prove = captured.document("warm_cache"), captured.document("warm_cache_prove")
    pairs = zip(warm["measured"]["entries"], prove["measured"]["entries"], strict=True)
    measured = {
        "warm": warm["measured"],
        "warm_errors": warm["errors"],
        "prove": prove["measured"],
        "prove_errors": prove["errors"],
        "first_steps": [
            {
                **{part: cold[part] for part in ("role", "device", "shape")},
                "cold_s": cold["first_step_s"],
                "warm_s": warm_["first_step_s"],
            }
            for cold, warm_ in pairs
        ],
        "proven": True,
        "recorded": True,
        "set_aside": None,
        "put_back": False,
        "half_warm": None,
    }
    return {"facts": {"misfits": ["it carries no record"]}, "measured": measured | changed}


def counted(**counters):
    """The captured proof with other totals."""
    prove = copy.deepcopy(captured.document("warm_cache_prove")["measured"])
    prove["totals"]["counters"] |= counters
    return evidence(prove=prove)


def test_the_captured_proof_passes():
    found = judge(evidence(), TARGET)
    assert found.status is S.PASS, found.deciding
    assert found["coverage"].measured == "2 of 2"
    assert all(check.expected and check.source for check in found.checks)


def test_a_gpu_is_proven_warm_likewise():
    warm, prove = captured.h200("warm_cache"), captured.h200("warm_cache_prove")
    declared = captured.target(workload={"roles": prove["params"]["roles"]})
    measured = evidence(warm=warm["measured"], prove=prove["measured"], first_steps=[])
    assert judge(measured, declared).status is S.PASS
    assert judge(evidence(prove=warm["measured"]), declared).status is S.FAIL


@pytest.mark.parametrize(
    ("counters", "check", "status"),
    [
        ({"fxgraph_cache_miss": 1}, "cache misses", S.FAIL),
        ({"aot_autograd_cache_miss": 2}, "cache misses", S.FAIL),
        ({"fxgraph_cache_miss": None}, "cache misses", S.UNKNOWN),
        ({"fxgraph_cache_hit": 0}, "cache hits", S.FAIL),
        ({"fxgraph_cache_hit": None}, "cache hits", S.UNKNOWN),
        ({"fxgraph_cache_bypass": 1}, "cache bypasses", S.DRIFT),
    ],
)
def test_the_proving_process_is_judged_by_its_counters(counters, check, status):
    found = judge(counted(**counters), TARGET)
    assert found[check].status is status
    assert found.status is status


@pytest.mark.parametrize(
    ("expected", "breaks", "status"),
    [
        (0, (0, 0), S.PASS),
        (0, (0, 1), S.FAIL),
        (0, (3, 0), S.FAIL),
        (2, (2, 0), S.PASS),  # the second entry finds what the first one traced
        (2, (2, 2), S.PASS),  # of each entry, not of all together
        (2, (2, 3), S.FAIL),
        (2, (2, None), S.UNKNOWN),
        (0, (None, 1), S.FAIL),  # one too many is one too many, whatever is not known
        (0, (None, None), S.UNKNOWN),
    ],
)
def test_graph_breaks_are_held_against_what_healthy_training_has(expected, breaks, status):
    prove = copy.deepcopy(captured.document("warm_cache_prove")["measured"])
    for entry, count in zip(prove["entries"], breaks, strict=True):
        entry["counters"]["graph_breaks"] = count
    prove["reasons"]["graph_breaks"] = ["print is called"]
    declared = captured.target(workload={"expected_graph_breaks": expected})
    found = judge(evidence(prove=prove), declared)
    assert found["graph breaks"].status is status
    assert found.status is status
    assert ("print is called" in found["graph breaks"].meaning) == (status is S.FAIL)


def test_a_first_process_is_no_proof():
    warm = captured.document("warm_cache")["measured"]
    found = judge(evidence(prove=warm), TARGET)
    assert found["cache misses"].status is S.FAIL
    assert found["nothing written"].status is S.DRIFT


def test_an_entry_that_was_not_done_is_unknown():
    prove = copy.deepcopy(captured.document("warm_cache_prove")["measured"])
    prove["entries"].pop()
    found = judge(evidence(prove=prove), TARGET)
    assert found["coverage"].status is S.UNKNOWN
    assert "drafter on cpu" in found["coverage"].meaning


def test_an_entry_that_failed_fails_with_its_error():
    prove = copy.deepcopy(captured.document("warm_cache_prove")["measured"])
    prove["entries"][1] |= {"error": "RuntimeError: shape mismatch\nmore", "first_step_s": None}
    found = judge(evidence(prove=prove), TARGET)
    assert found["coverage"].status is S.FAIL
    assert "RuntimeError: shape mismatch" in found["coverage"].meaning


def test_failed_warming_says_why_and_how_things_are_now():
    warm = copy.deepcopy(captured.document("warm_cache")["measured"])
    warm["entries"][0]["error"] = "ImportError: no module named dflash_model"
    found = judge(evidence(warm=warm, prove=None, half_warm="/c.set-aside-1", proven=False), TARGET)
    assert found.status is S.FAIL
    assert "ImportError" in found.deciding.meaning
    assert "old cache is back" in found.deciding.meaning


def test_an_error_outside_the_entries_is_not_lost():
    errors = [
        {"where": "measure", "type": "ContractBroken", "message": "there is no workload file"}
    ]
    found = judge(evidence(prove={}, prove_errors=errors), TARGET)
    assert found["coverage"].status is S.FAIL
    assert "there is no workload file" in found["coverage"].meaning


@pytest.mark.parametrize(("warm_s", "status"), [(1.0, S.PASS), (26.0, S.DRIFT), (60.0, S.DRIFT)])
def test_how_much_faster_it_starts_is_told_and_never_fails(warm_s, status):
    step = {
        "role": "target",
        "device": "cpu",
        "shape": {"batch": 2},
        "cold_s": 27.0,
        "warm_s": warm_s,
    }
    found = judge(evidence(first_steps=[step]), TARGET)
    assert found["first steps"].status is status
    assert found.status.good


@pytest.mark.parametrize(
    ("facts", "status"),
    [
        ({"misfits": []}, S.PASS),
        ({"misfits": ["torch is another build"]}, S.DRIFT),
        ({}, S.UNKNOWN),
    ],
)
def test_without_a_measurement_the_record_is_judged_and_the_rest_is_unknown(facts, status):
    found = judge({"facts": facts, "measured": None}, TARGET)
    assert found["recorded as warm"].status is status
    assert found.status is S.UNKNOWN


def test_losing_any_part_of_the_evidence_never_raises_and_never_passes_unseen():
    needed = ("prove", "totals", "counters", "cache_before", "cache_after", "entries")
    for where, lost in captured.losses(evidence()):
        found = judge(lost, TARGET)
        if where[:2] == ("measured", "prove") and where[-1] in needed and len(where) < 5:
            assert found.status is not S.PASS, where
