"""Where the judge of stage 40 draws its lines: just inside, just outside, not known."""

import copy
import math

import pytest

from helpers.judge.warm_cache import judge as judge_warm
from helpers.verdict import Status
from tests.unit import captured
from tests.unit.test_judge_warm_cache import evidence as warm_evidence

S = Status
F32, F64, BF16, TF32 = 2.0**-23, 2.0**-52, 2.0**-7, 2.0**-10


def above(value):
    return math.nextafter(value, math.inf)


def proof(**changed):
    """The captured proof with single parts of its totals changed."""
    prove = copy.deepcopy(captured.document("warm_cache_prove")["measured"])
    prove["totals"] |= changed
    return prove


def counted(**counters):
    prove = proof()
    prove["totals"]["counters"] |= counters
    return prove


def warm(target_=None, **changed):
    return judge_warm(warm_evidence(**changed), target_ or captured.target())


@pytest.mark.parametrize("kind", ["fxgraph_cache_miss", "aot_autograd_cache_miss"])
@pytest.mark.parametrize(("count", "status"), [(0, S.PASS), (1, S.FAIL), (None, S.UNKNOWN)])
def test_a_miss_of_either_kind(kind, count, status):
    assert warm(prove=counted(**{kind: count}))["cache misses"].status is status


@pytest.mark.parametrize("kind", ["fxgraph_cache_bypass", "aot_autograd_cache_bypass"])
@pytest.mark.parametrize("count", [0, 1, None])
def test_a_bypass_of_either_kind_is_told(kind, count):
    found = warm(prove=counted(**{kind: count}))
    assert found.status is (S.DRIFT if count else S.PASS)


@pytest.mark.parametrize(("hits", "status"), [(1, S.PASS), (0, S.FAIL), (None, S.UNKNOWN)])
def test_hits(hits, status):
    assert warm(prove=counted(fxgraph_cache_hit=hits))["cache hits"].status is status


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [
        ({"files": 2, "bytes": 9}, {"files": 2, "bytes": 9}, S.PASS),
        ({"files": 2, "bytes": 9}, {"files": 3, "bytes": 9}, S.DRIFT),
        ({"files": 2, "bytes": 9}, {"files": 2, "bytes": 10}, S.DRIFT),
        (None, {"files": 2, "bytes": 9}, S.UNKNOWN),
        ({"files": 2, "bytes": 9}, None, S.UNKNOWN),
        (None, None, S.UNKNOWN),
    ],
)
def test_a_proof_writes_nothing(before, after, status):
    found = warm(prove=proof(cache_before=before, cache_after=after))
    assert found["nothing written"].status is status
    assert found.status is status


@pytest.mark.parametrize(
    ("cold_s", "warm_s", "status"),
    [
        (10.0, 8.0, S.PASS),
        (10.0, 8.001, S.DRIFT),
        (10.0, 8.5, S.DRIFT),
        (10.0, 0.0, S.PASS),
        (0.0, 1.0, None),
        (None, 1.0, None),
        (10.0, None, None),
    ],
)
def test_how_much_faster(cold_s, warm_s, status):
    step = {"role": "target", "device": "cpu", "shape": {}, "cold_s": cold_s, "warm_s": warm_s}
    found = warm(first_steps=[step])
    assert [c.status for c in found.checks if c.name == "first steps"] == (
        [status] if status else []
    )


def test_first_steps_are_added_where_both_are_known():
    steps = [{"cold_s": 10.0, "warm_s": 1.0}, {"cold_s": 10.0, "warm_s": 16.0}, {"warm_s": 99.0}]
    assert warm(first_steps=steps)["first steps"].measured["warm_cold_ratio"] == 0.85


ROLES = [
    {"name": "target", "devices": ["cuda:0", "cuda:1", "cuda:1"], "shapes": [{"batch": 2}]},
    {"name": "drafter", "devices": ["cuda:2"], "shapes": [{"batch": 2}, {"batch": 5}]},
]
ENTRIES = [("target", "cuda:0", 2), ("target", "cuda:1", 2), ("drafter", "cuda:2", 2),
           ("drafter", "cuda:2", 5)]  # fmt: skip


def entries(lost=None, **changed):
    """An entry for each role, device and shape; the one numbered ``lost`` is left out or changed."""
    first = proof()["entries"][0]
    found = []
    for number, (role, device, batch) in enumerate(ENTRIES):
        one = first | {"role": role, "device": device, "shape": {"batch": batch}}
        if number != lost:
            found.append(one)
        elif changed:
            found.append(one | changed)
    return proof() | {"entries": found}


@pytest.mark.parametrize("lost", range(len(ENTRIES)))
def test_every_role_device_and_shape_has_to_be_proven(lost):
    declared = captured.target(workload={"roles": ROLES})
    assert warm(declared, prove=entries())["coverage"].measured == "4 of 4"
    assert warm(declared, prove=entries()).status is S.PASS
    role, device, batch = ENTRIES[lost]
    for prove in (entries(lost), entries(lost, first_step_s=None)):
        check = warm(declared, prove=prove)["coverage"]
        assert check.status is S.UNKNOWN
        assert check.measured == "3 of 4"
        assert f'{role} on {device} {{"batch": {batch}}}' in check.meaning
    failed = entries(lost, error="RuntimeError: no", first_step_s=1.0)
    assert warm(declared, prove=failed)["coverage"].status is S.FAIL


def test_an_error_beside_whole_entries_fails():
    errors = [{"where": "signal", "type": "SIGTERM", "message": "ended"}]
    check = warm(prove_errors=errors)["coverage"]
    assert check.status is S.FAIL
    assert check.measured == "2 of 2"
    assert "signal: SIGTERM: ended" in check.meaning


def test_an_error_of_an_entry_is_told_once():
    prove = proof()
    prove["entries"][1] |= {"error": "RuntimeError: no", "first_step_s": None}
    warmed = copy.deepcopy(captured.document("warm_cache")["measured"])
    warmed["entries"][1]["error"] = "RuntimeError: no"
    errors = [{"where": "entry drafter", "type": "RuntimeError", "message": "no"}]
    found = warm(prove=prove, prove_errors=errors, warm=warmed, warm_errors=errors)
    assert found["warming"].measured == ['drafter on cpu {"batch": 2}: RuntimeError: no']


def test_warming_is_judged_only_where_it_was_done():
    assert warm()["warming"].status is S.PASS
    assert (
        warm(warm_errors=[{"where": "x", "type": "E", "message": "m"}])["warming"].status is S.FAIL
    )
    assert "warming" not in [check.name for check in warm(warm=None).checks]


@pytest.mark.parametrize(
    ("proven", "recorded", "status"),
    [(True, True, S.PASS), (True, False, S.DRIFT), (False, False, S.PASS)],
)
def test_a_warm_cache_without_its_record_is_told(proven, recorded, status):
    assert warm(proven=proven, recorded=recorded).status is status
