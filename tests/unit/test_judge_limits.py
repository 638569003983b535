"""Where the judges of stages 30, 40 and 60 draw their lines: just inside, just outside, not known."""

import copy
import math

import pytest

from helpers.judge import throughput
from helpers.judge.benchmark import judge as judge_benchmark
from helpers.judge.verify_torch import judge as judge_torch
from helpers.judge.warm_cache import judge as judge_warm
from helpers.verdict import Status
from tests.unit import captured
from tests.unit.test_judge_benchmark import LEVEL, QUIET, evidence, target, wave
from tests.unit.test_judge_verify_torch import evidence as torch_evidence
from tests.unit.test_judge_verify_torch import gpu
from tests.unit.test_judge_verify_torch import target as torch_target
from tests.unit.test_judge_warm_cache import evidence as warm_evidence

S = Status
F32, F64, BF16, TF32 = 2.0**-23, 2.0**-52, 2.0**-7, 2.0**-10


def above(value):
    return math.nextafter(value, math.inf)


# ---- stage 30


@pytest.mark.parametrize(
    ("dtype", "precision", "size", "limit"),
    [
        ("float32", "highest", 256, 34 * F32),
        ("float32", "highest", 1024, 66 * F32),
        ("float32", None, 256, 34 * F32),
        ("float32", "a new word", 256, 34 * F32),
        ("float32", "high", 256, 34 * TF32),
        ("float32", "medium", 256, 32 * F32 + 2 * BF16),
        ("float64", "medium", 256, 34 * F64),
        ("bfloat16", "high", 256, 32 * F32 + 2 * BF16),
        ("float32", "highest", None, 34 * F32),
    ],
)
def test_a_product_may_be_off_by_its_rounding_errors_and_no_more(dtype, precision, size, limit):
    for error, status in (
        (limit, S.PASS),
        (above(limit), S.FAIL),
        (None, S.UNKNOWN),
        (0.0, S.PASS),
    ):
        products = copy.deepcopy(gpu()["matmul"])
        next(p for p in products if p["dtype"] == dtype)["max_relative_error"] = error
        whole = torch_evidence(
            devices=[gpu(matmul=products)],
            float32_matmul_precision=precision,
            params={"matmul_size": size},
        )
        assert judge_torch(whole, torch_target())[f"cuda:0 product {dtype}"].status is status


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_product_that_was_not_made_is_unknown_and_one_that_failed_fails(dtype):
    rest = [p for p in gpu()["matmul"] if p["dtype"] != dtype]
    name = f"cuda:0 product {dtype}"
    found = judge_torch(torch_evidence(devices=[gpu(matmul=rest)]), torch_target())
    assert found[name].status is S.UNKNOWN
    failed = {"dtype": dtype, "max_relative_error": 0.0, "error": "RuntimeError: no kernel"}
    found = judge_torch(torch_evidence(devices=[gpu(matmul=[*rest, failed])]), torch_target())
    assert found[name].status is S.FAIL
    assert "no kernel" in found[name].meaning


@pytest.mark.parametrize("part", ["value", "gradient_x", "gradient_weight"])
def test_a_compiled_function_may_be_off_by_its_rounding_errors_and_no_more(part):
    limit = 960 * F32
    for error, status in ((limit, S.PASS), (above(limit), S.FAIL), (None, S.UNKNOWN)):
        device = gpu()
        device["compiled"]["max_relative_error"][part] = error
        found = judge_torch(torch_evidence(devices=[device]), torch_target())
        assert found[f"cuda:0 compiled {part.replace('_', ' ')}"].status is status
        assert found.status is status


@pytest.mark.parametrize(
    ("compiled", "status"),
    [
        ({"compiled": True, "graphs": 1, "graph_breaks": 0}, S.PASS),
        ({"compiled": False, "graphs": 1, "graph_breaks": 0}, S.FAIL),
        ({"compiled": None, "graphs": 1, "graph_breaks": 0}, S.FAIL),
        ({"compiled": True, "graphs": 1, "graph_breaks": 1}, S.FAIL),
        ({"compiled": True, "graphs": 1, "graph_breaks": None}, S.UNKNOWN),
        ({"compiled": True, "graphs": None, "graph_breaks": 0}, S.UNKNOWN),
    ],
)
def test_the_function_was_compiled_whole(compiled, status):
    device = gpu()
    device["compiled"] |= compiled
    found = judge_torch(torch_evidence(devices=[device]), torch_target())
    assert found["cuda:0 compiled"].status is status
    assert found.status is status


def test_nothing_compiled_is_unknown():
    found = judge_torch(torch_evidence(devices=[gpu(compiled=None)]), torch_target())
    assert found["cuda:0 compiled"].status is S.UNKNOWN


@pytest.mark.parametrize("where", ["watchdog", "signal", "measure", "document", "devices[0]"])
def test_what_ended_it_early_leaves_the_rest_unknown(where):
    errors = [{"where": where, "type": "SIGTERM", "message": "ended after 3 s"}]
    found = judge_torch(torch_evidence(errors=errors), torch_target())
    assert found.status is (S.PASS if where == "devices[0]" else S.UNKNOWN)
    if found.status is S.UNKNOWN:
        assert "SIGTERM: ended after 3 s" in found["measured to the end"].meaning


@pytest.mark.parametrize(
    ("available", "count", "computed", "status"),
    [
        (True, 2, 2, S.PASS),
        (True, 2, 1, S.UNKNOWN),
        (True, 3, 1, S.UNKNOWN),
        (True, 1, 2, S.PASS),
        (False, 2, 1, S.PASS),  # without CUDA the one device is the CPU
    ],
)
def test_every_device_has_to_compute(available, count, computed, status):
    devices = [gpu(device=f"cuda:{i}") for i in range(computed)]
    whole = torch_evidence(available=available, device_count=count, devices=devices)
    found = judge_torch(whole, torch_target(available=available, device_count=count))
    assert found.status is status, found.deciding


@pytest.mark.parametrize(("listed", "status"), [(True, S.PASS), (None, S.PASS), (False, S.DRIFT)])
def test_only_an_architecture_that_is_known_to_be_missing_is_told(listed, status):
    found = judge_torch(torch_evidence(devices=[gpu(arch_listed=listed)]), torch_target())
    assert found.status is status


def test_a_torch_whose_import_is_not_known_is_unknown():
    found = judge_torch(torch_evidence(imported=None), torch_target())
    assert found["torch CUDA"].status is S.UNKNOWN
    assert "import torch" not in [check.name for check in found.checks]


@pytest.mark.parametrize(
    ("version", "status"),
    [("3.11.9 (main)", S.PASS), ("3.1.1", S.FAIL), ("3.12.0", S.FAIL), ("", S.UNKNOWN)],
)
def test_python_by_its_first_two_numbers(version, status):
    found = judge_torch(torch_evidence(python={"version": version}), torch_target())
    assert found["Python version"].status is status


# ---- stage 40


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


# ---- stage 60


def judged(**changed):
    return judge_benchmark(evidence(**changed), target())


def flat(ratio, bins=30):
    return [{"t_s": 0.5 * place, "tok_per_s": LEVEL * ratio} for place in range(bins)]


def beside_flat(ratio):
    """Two series without any noise: the interval is one point."""
    whole = evidence(series=flat(ratio))
    whole["measured"]["baseline"]["samples_tok_per_s"] = [LEVEL] * 30
    return judge_benchmark(whole, target())["throughput"]


@pytest.mark.parametrize(
    ("ratio", "status"),
    [(0.8, S.PASS), (0.799, S.DEGRADED), (0.4, S.DEGRADED), (0.399, S.FAIL), (1.2, S.PASS)],
)
def test_the_lines_of_the_rule(ratio, status):
    assert beside_flat(ratio).status is status


def test_an_interval_over_the_lower_line_is_degraded_by_its_upper_end():
    check = judged(ratio=0.4)["throughput"]
    assert check.measured["low_ratio"] < 0.4 < check.measured["high_ratio"]
    assert check.status is S.DEGRADED


def test_an_interval_over_the_upper_line_is_unknown_whichever_side_its_middle_is():
    for ratio in (0.795, 0.805):
        check = judged(ratio=ratio)["throughput"]
        assert check.measured["low_ratio"] < 0.8 < check.measured["high_ratio"]
        assert check.status is S.UNKNOWN
        assert "noise alone could decide" in check.meaning
    busy = {"own_cores": 1.4, "other_cores": 0.6}
    assert (
        "other work on the machine could decide"
        in judged(ratio=0.7, load=busy)["throughput"].meaning
    )


@pytest.mark.parametrize(("bins", "status"), [(12, S.PASS), (11, S.UNKNOWN), (0, S.UNKNOWN)])
def test_bins_of_the_measurement_and_of_the_baseline(bins, status):
    found = judged(bins=bins)
    assert found["samples"].status is status
    assert found["throughput"].status is status
    whole = evidence()
    whole["measured"]["baseline"]["samples_tok_per_s"] = wave(LEVEL, bins)
    assert judge_benchmark(whole, target())["throughput"].status is status


@pytest.mark.parametrize(
    ("steps", "status"), [((12, 0), S.PASS), ((6, 5), S.UNKNOWN), ((None, 11), S.UNKNOWN)]
)
def test_steps_of_the_counted_role_alone(steps, status):
    threads = copy.deepcopy(captured.measured("benchmark")["threads"])
    drafters = [thread for thread in threads if thread["role"] == "drafter"]
    for thread, count in zip(drafters, steps, strict=True):
        thread["steps_completed"] = count
    found = judged(threads=threads)
    assert found["samples"].status is status
    assert found["throughput"].status is status


@pytest.mark.parametrize("series", [[None] * 30, [*([LEVEL] * 29), None], [0.0] * 30])
def test_a_rate_that_is_not_known_makes_none_up(series):
    bins = [{"t_s": 0.5 * place, "tok_per_s": rate} for place, rate in enumerate(series)]
    assert judged(series=bins)["throughput"].status is S.UNKNOWN


@pytest.mark.parametrize(
    ("bin_s", "steps_s", "kept", "blocks"),
    [
        (0.5, (0.2, 1.3), {}, (6, 4)),  # twice the longest step: 5.2 bins; at most a fifth: 6
        (1.0, (0.2, 1.3), {}, (4, 4)),
        (0.5, (0.1, 0.2), {"step_s": 1.4}, (4, 6)),
        (0.5, (0.1, 0.2), {"step_s": 1.4, "bin_s": 1.0}, (4, 4)),
        (0.5, (0.1, 0.2), {"step_s": 1.4, "bin_s": None}, (4, 6)),
    ],
)
def test_blocks_are_as_long_as_two_steps(bin_s, steps_s, kept, blocks):
    rates = [LEVEL * (0.9 + 0.2 * ((7 * i) % 11) / 10) for i in range(30)]
    whole = evidence(series=[{"t_s": bin_s * i, "tok_per_s": r} for i, r in enumerate(rates)])
    drafters = [t for t in whole["measured"]["threads"] if t["role"] == "drafter"]
    for thread, step_s in zip(drafters, steps_s, strict=True):
        thread["step_s"]["median"] = step_s
    base = whole["measured"]["baseline"]
    base["samples_tok_per_s"] = rates[::-1]
    base["measured"] |= kept
    expected = throughput.median_ratio(
        rates, rates[::-1], now_block=blocks[0], baseline_block=blocks[1]
    )
    found = judge_benchmark(whole, target())["throughput"].measured
    assert (found["low_ratio"], found["high_ratio"]) == (
        round(expected.low, 3), round(expected.high, 3),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("load", "status"),
    [
        ({"own_cores": 1.9, "other_cores": 0.1}, S.PASS),  # 5 %
        ({"own_cores": 1.88, "other_cores": 0.12}, S.DRIFT),
        ({"stolen_cores": None}, S.UNKNOWN),
    ],
)
def test_a_quiet_machine_now_and_when_the_baseline_was_taken(load, status):
    found = judged(load=load)["machine quiet"]
    assert found.status is status
    then = judged(base_load=load)["baseline"]
    assert then.status is (S.PASS if status is S.UNKNOWN else status)


def test_a_corrected_baseline_of_a_busy_machine_proves_as_much():
    whole = evidence(base_load={"own_cores": 1.4, "other_cores": 0.6})
    whole["measured"]["baseline"]["measured"]["free_cores"] = True
    found = judge_benchmark(whole, target())
    assert found["baseline"].status is S.PASS
    assert found["throughput"].status is S.PASS


def test_what_a_hypervisor_may_have_taken_of_the_baseline_counts():
    whole = evidence(ratio=0.9, base_load={"own_cores": 1.4, "stolen_cores": 0.6})
    whole["measured"]["baseline"]["measured"]["free_cores"] = True
    assert judge_benchmark(whole, target())["throughput"].status is S.UNKNOWN


@pytest.mark.parametrize(("count", "status"), [(0, S.PASS), (1, S.UNKNOWN), (None, S.UNKNOWN)])
def test_compiled_in_the_window(count, status):
    compiling = {"window": {"compilations": count}, "reasons": {}}
    found = judged(compile=compiling)
    assert found["compiled in window"].status is status
    assert found["throughput"].status is S.PASS  # enough is enough
    slow = judged(ratio=0.3, compile=compiling)["throughput"]
    assert slow.status is (S.FAIL if status is S.PASS else S.UNKNOWN)


@pytest.mark.parametrize(
    ("paused", "load", "status"),
    [
        (5, {}, S.PASS),  # 17 % of the tokens
        (7, {}, S.DEGRADED),  # 23 %
        (7, {"own_cores": 1.8, "other_cores": 0.2}, S.UNKNOWN),  # others may have cost 10 %
        (12, {"own_cores": 1.8, "other_cores": 0.2}, S.DEGRADED),
    ],
)
def test_pauses(paused, load, status):
    series = flat(1.0)
    for place in range(paused):
        series[2 * place]["tok_per_s"] = 0.0
    assert judged(series=series, load=load)["stalls"].status is status


def test_pauses_are_unknown_where_nothing_was_counted():
    assert judged(series=None)["stalls"].status is S.UNKNOWN


MEMORY = {"peak_rss_bytes": 4_000_000_000, "devices": {}}
GPU = {"cuda:0": {"peak_allocated_bytes": 1_000_000_000, "peak_reserved_bytes": 3_000_000_000}}


def remembering(now, then):
    whole = evidence(memory=now)
    whole["measured"]["baseline"]["measured"]["memory"] = then
    return judge_benchmark(whole, target())


@pytest.mark.parametrize(
    ("ratio", "status"), [(1.0, S.PASS), (1.25, S.PASS), (1.26, S.DRIFT), (None, S.UNKNOWN)]
)
def test_memory(ratio, status):
    peak = None if ratio is None else ratio * MEMORY["peak_rss_bytes"]
    assert remembering(MEMORY | {"peak_rss_bytes": peak}, MEMORY)["memory process"].status is status
    peak = None if ratio is None else ratio * 1_000_000_000
    now = {"cuda:0": GPU["cuda:0"] | {"peak_allocated_bytes": peak}}
    found = remembering(MEMORY | {"devices": now}, MEMORY | {"devices": GPU})
    assert found["memory cuda:0"].status is status
    assert "memory process" not in [check.name for check in found.checks]


def test_the_baseline_is_the_measurements_own():
    facts = {"expected": {"tok_per_s": LEVEL, "path": "/baselines/b.json"}}
    whole = {**evidence(baseline=None), "facts": facts}
    assert judge_benchmark(whole, target())["baseline"].status is S.UNKNOWN
    assert judge_benchmark({"facts": facts}, target())["baseline"].status is S.PASS


def test_both_numbers_are_shown_only_where_one_is_corrected():
    seen = captured.measured("benchmark")["tok_per_s"]
    assert "as_measured_tok_per_s" not in judged()["throughput"].measured
    corrected = judged(free_cores=True)["throughput"].measured
    assert corrected["as_measured_tok_per_s"] == round(seen, 1)


def threads(**changed):
    """Each of the three threads with its own changes, by number."""
    found = copy.deepcopy(captured.measured("benchmark")["threads"])
    for number, fields in changed.items():
        found[int(number[1:])] |= fields
    return found


RAISED = {"error": "RuntimeError: no\nmore"}
HUNG = {"where": "watchdog", "type": "DeadlineExceeded", "message": "not finished after 600 s"}
STUCK = {"where": "threads[2]", "type": "DidNotStop", "message": "drafter1 did not stop"}


@pytest.mark.parametrize(
    ("changed", "status", "said"),
    [
        ({}, S.PASS, ""),
        ({"threads": threads(t1=RAISED)}, S.FAIL, "drafter0 on cpu: RuntimeError: no"),
        ({"threads": threads(t1=RAISED, t2=RAISED)}, S.FAIL, "2 of 3 threads failed; drafter0"),
        ({"threads": threads(t2={"tokens": 0})}, S.FAIL, "No step of drafter1"),
        ({"threads": threads(t2={"tokens": None})}, S.UNKNOWN, "3 threads were measured, 3"),
        ({"threads": threads()[:2]}, S.UNKNOWN, "2 threads were measured, 3"),
        ({"threads": []}, S.UNKNOWN, "were not measured"),
        ({"phase": "window"}, S.UNKNOWN, "were not measured"),
        ({"phase": None}, S.UNKNOWN, "were not measured"),
        ({"errors": [STUCK]}, S.FAIL, "drafter1 did not stop: it hangs"),
        ({"errors": [HUNG]}, S.FAIL, "the threads went on"),
        (
            {
                "errors": [HUNG],
                "threads": threads(t1={"first_steps_s": None}),
                "phase": "first_steps",
            },
            S.FAIL,
            "Hung in the phase first_steps (not finished after 600 s): drafter0 never finished",
        ),
        ({"errors": [HUNG], "threads": None}, S.UNKNOWN, "DeadlineExceeded"),
        ({"errors": [{"where": "measure", "type": "E", "message": "m"}]}, S.UNKNOWN, "E: m"),
        ({"errors": [HUNG], "threads": threads(t1=RAISED)}, S.FAIL, "RuntimeError: no"),
    ],
)
def test_threads(changed, status, said):
    check = judged(**changed)["threads"]
    assert check.status is status
    assert said in check.meaning
    assert "more" not in check.meaning


@pytest.mark.parametrize(
    ("changed", "stepping"),
    [({}, 3), ({"t1": RAISED}, 2), ({"t1": {"tokens": 0}}, 2), ({"t0": {"tokens": None}}, 2)],
)
def test_only_threads_that_stepped_are_counted(changed, stepping):
    check = judged(threads=threads(**changed))["threads"]
    assert check.measured == f"{stepping} of 3 threads trained"


def test_quiet_is_quiet():
    assert judged(load=QUIET)["machine quiet"].status is S.PASS
