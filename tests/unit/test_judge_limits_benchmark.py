"""Where the judge of stage 60 draws its lines: just inside, just outside, not known."""

import copy
import math

import pytest

from helpers.judge import throughput
from helpers.judge.benchmark import judge as judge_benchmark
from helpers.verdict import Status
from tests.unit import captured
from tests.unit.test_judge_benchmark import LEVEL, QUIET, evidence, target, wave

S = Status
F32, F64, BF16, TF32 = 2.0**-23, 2.0**-52, 2.0**-7, 2.0**-10


def above(value):
    return math.nextafter(value, math.inf)


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
