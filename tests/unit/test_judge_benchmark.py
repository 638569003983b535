"""Judge of stage 60, over captured measurements, altered ones, and ones with parts missing."""

import copy

import pytest

from helpers.judge import throughput
from helpers.judge.benchmark import judge
from helpers.judge.signatures import recognise
from helpers.verdict import Status
from tests.unit import captured

S = Status
QUIET = {
    "cores": 2,
    "machine_cores": 2.0,
    "own_cores": 2.0,
    "other_cores": 0.0,
    "stolen_cores": 0.0,
}
LEVEL = 4000.0


def target(**benchmark):
    return captured.target(benchmark={"tolerance_ratio": 0.8, "failed_ratio": 0.4} | benchmark)


def wave(level, bins=30, depth=0.05):
    """A steady series: the same few levels again and again."""
    return [level * (1 + depth * (-1, 0, 1, 0.5, -0.5)[i % 5]) for i in range(bins)]


def ran(name, sha256="c554", committed="c554"):
    """A file of the workload's folder as it ran, and as the commit holds it."""
    path = f"{target().sources.deploy_to}/{name}"
    return {"path": path, "ran": sha256, "committed": committed}


def evidence(*, ratio=1.0, bins=30, load=None, base_load=None, **changed):
    """The captured measurement with a series of its own, beside a baseline of 4000 tok/s."""
    measured = captured.measured("benchmark")
    rates = wave(LEVEL * ratio, bins)
    series = [{"t_s": place * 0.5, "tok_per_s": rate} for place, rate in enumerate(rates)]
    return {
        "facts": {},
        "measured": measured
        | {
            "series": series,
            "free_cores": False,
            "load": QUIET | {"heaviest_others": []} | (load or {}),
            "compile": {"before": {}, "window": {"compilations": 0}, "reasons": {}},
            "baseline": baseline(base_load),
            "baseline_at": "/baselines/a.json",
            "code": [ran("workload.py"), ran("dflash_model.py"), ran("parts/loss.py")],
        }
        | changed,
    }


def baseline(load=None):
    return {
        "schema": 1,
        "device": "AMD EPYC, 2 cores",
        "torch_build": "2.13.0+cpu",
        "tok_per_s": LEVEL,
        "samples_tok_per_s": wave(LEVEL),
        "measured": {
            "bin_s": 0.5,
            "step_s": 0.05,
            "load": QUIET | (load or {}),
            "memory": {
                "peak_rss_bytes": captured.measured("benchmark")["memory"]["peak_rss_bytes"]
            },
        },
    }


def test_back_at_the_baseline_passes():
    found = judge(evidence(), target())
    assert found.status is S.PASS, found.deciding
    assert all(check.expected and check.source for check in found.checks)


@pytest.mark.parametrize(
    ("ratio", "status"),
    [
        (1.3, S.PASS),
        (0.9, S.PASS),
        (0.8, S.UNKNOWN),  # the interval holds the tolerance: noise alone would decide
        (0.6, S.DEGRADED),
        (0.42, S.DEGRADED),
        (0.3, S.FAIL),
        (0.2, S.FAIL),  # 21.5 to 4.3 Ktok/s, as in the true case
    ],
)
def test_the_rule(ratio, status):
    found = judge(evidence(ratio=ratio), target())
    assert found["throughput"].status is status
    assert found.status is status


@pytest.mark.parametrize(
    ("ratio", "taken", "status"),
    [
        (1.0, 1.0, S.PASS),  # others only take away: still enough is enough
        (0.6, 0.6, S.UNKNOWN),  # they may have taken what is missing
        (0.4, 0.6, S.DEGRADED),  # they cannot have taken that much
        (0.2, 0.6, S.FAIL),
    ],
)
def test_other_work_can_excuse_only_what_it_can_have_cost(ratio, taken, status):
    load = {"own_cores": 2.0 - taken, "other_cores": taken}
    found = judge(evidence(ratio=ratio, load=load), target())
    assert found["throughput"].status is status
    assert found["machine quiet"].status is S.DRIFT


def test_corrected_samples_need_no_excuse_and_get_none():
    load = {"own_cores": 0.4, "other_cores": 1.6}
    assert judge(evidence(load=load, free_cores=True), target())["throughput"].status is S.PASS
    found = judge(evidence(ratio=0.6, load=load, free_cores=True), target())
    assert found["throughput"].status is S.DEGRADED
    assert "corrected" in found["machine quiet"].meaning


def test_what_a_hypervisor_took_is_reckoned_with_all_the_same():
    load = {"own_cores": 1.4, "machine_cores": 1.4, "stolen_cores": 0.6}
    found = judge(evidence(ratio=0.7, load=load, free_cores=True), target())
    assert found["throughput"].status is S.UNKNOWN


def test_others_on_idle_cores_cost_nothing():
    load = {"cores": 16, "machine_cores": 6.0, "own_cores": 2.0, "other_cores": 4.0}
    found = judge(evidence(ratio=0.6, load=load), target())
    assert found["machine quiet"].status is S.PASS
    assert found["throughput"].status is S.DEGRADED


def test_a_baseline_of_a_busy_machine_proves_less():
    busy = {"own_cores": 1.4, "other_cores": 0.6}
    found = judge(evidence(base_load=busy), target())
    assert found["baseline"].status is S.DRIFT
    assert found["throughput"].status is S.UNKNOWN
    assert judge(evidence(ratio=1.4, base_load=busy), target())["throughput"].status is S.PASS


@pytest.mark.parametrize(
    ("changed", "check"),
    [
        ({"baseline": None, "baseline_at": "no x.json in /b"}, "baseline"),
        ({"baseline": None, "baseline_at": "no x.json in /b"}, "throughput"),
        ({"bins": 8}, "samples"),
        ({"compile": {"window": {"compilations": 2}, "reasons": {}}}, "compiled in window"),
        ({"compile": {"window": None}}, "compiled in window"),
        ({"load": {"own_cores": None}}, "machine quiet"),
        ({"load": {"own_cores": None}}, "throughput"),
        ({"code": None}, "code measured"),
        ({"code": []}, "code measured"),
        ({"code": [ran("workload.py", None)]}, "code measured"),
        ({"code": [ran("dflash_model.py")]}, "code measured"),  # and the workload itself?
        ({"series": None}, "throughput"),
    ],
)
def test_what_could_not_be_compared_is_unknown(changed, check):
    found = judge(evidence(**changed), target())
    assert found[check].status is S.UNKNOWN
    assert found.status is S.UNKNOWN
    assert found[check].meaning


def test_a_loss_while_compiling_is_unknown():
    compiling = {"window": {"compilations": 2}, "reasons": {"recompilations": ["shape"]}}
    found = judge(evidence(ratio=0.3, compile=compiling), target())
    assert found.status is S.UNKNOWN
    assert "shape" in found["compiled in window"].meaning


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (ran("dflash_model.py", "beef"), ["dflash_model.py"]),
        (ran("parts/loss.py", "beef"), ["parts/loss.py"]),
        (ran("helper.py", committed=None), ["helper.py, not in the commit"]),
        (
            {"path": "/elsewhere/x.py", "ran": "1", "committed": None},
            ["/elsewhere/x.py, not in the commit"],
        ),
    ],
)
def test_other_code_than_the_committed_fails(other, named):
    for unknown in ([], [ran("a.py", None)]):
        found = judge(evidence(code=[ran("workload.py"), other, *unknown]), target())
        assert found.status is S.FAIL
        assert found["code measured"].measured == named
        assert "stage 20" in found.deciding.meaning
        assert named[0] in found.deciding.meaning


def test_pauses_are_found_though_the_median_does_not_move():
    whole = evidence()
    for place in range(0, 30, 3):
        whole["measured"]["series"][place]["tok_per_s"] = 0.0
    found = judge(whole, target())
    assert found["throughput"].status is S.PASS
    assert found["stalls"].status is S.DEGRADED


def test_more_memory_than_the_baseline_is_told():
    peak = captured.measured("benchmark")["memory"]["peak_rss_bytes"]
    found = judge(evidence(memory={"peak_rss_bytes": 3.7 * peak, "devices": {}}), target())
    assert found["memory process"].status is S.DRIFT
    assert "3.7" in found["memory process"].meaning
    assert found.status.good


def test_a_crash_is_named_with_its_signature():
    whole = captured.measured("benchmark_crash")
    found = judge({"facts": {}, "measured": whole | {"baseline": None}}, target())
    assert found.status is S.FAIL
    said = found["threads"].meaning
    assert said.startswith("2 of 3 threads failed; drafter0 on cpu: RuntimeError: Detected that")
    assert "FX tracing race" in said


def test_the_race_on_a_gpu_with_a_warm_cache_is_named():
    whole = captured.h200("benchmark_race")
    declared = captured.target(workload={"roles": whole["params"]["roles"]})
    found = judge({"measured": captured.handed_on(whole)}, declared)
    assert found.status is S.FAIL
    assert found["threads"].meaning.startswith("target0 on cuda:0: RuntimeError: Detected that you")
    assert "FX tracing race" in found["threads"].meaning


def test_a_hang_is_named_with_the_threads_that_hang():
    whole = captured.measured("benchmark_crash")
    for thread in whole["threads"]:
        thread["error"] = None
    whole["errors"] = [
        {"where": "watchdog", "type": "DeadlineExceeded", "message": "not finished after 600 s"}
    ]
    check = judge({"measured": whole}, target())["threads"]
    assert check.status is S.FAIL
    assert "drafter0, drafter1 never finished a first step" in check.meaning


def test_a_thread_without_a_step_fails():
    whole = evidence()
    whole["measured"]["threads"][0]["tokens"] = 0
    assert "target0" in judge(whole, target())["threads"].meaning


@pytest.mark.parametrize(
    "errors",
    [
        [{"where": "measure", "type": "ContractBroken", "message": "there is no workload file"}],
        [{"where": "signal", "type": "SIGTERM", "message": "ended by SIGTERM"}],
    ],
)
def test_what_ended_the_measurement_early_is_unknown_and_named(errors):
    whole = {"phase": "import", "threads": None, "errors": errors}
    check = judge({"measured": whole}, target())["threads"]
    assert check.status is S.UNKNOWN
    assert errors[0]["type"] in check.meaning


def test_nothing_measured_is_unknown():
    for nothing in ({}, {"measured": None}, {"facts": {"expected": {"tok_per_s": 1.0}}}):
        assert judge(nothing, target()).status is S.UNKNOWN


def test_losing_any_part_of_the_evidence_never_raises_and_never_passes_unseen(monkeypatch):
    monkeypatch.setattr(throughput, "RESAMPLES", 40)
    whole = evidence()
    for thread in whole["measured"]["threads"]:
        thread["steps"] = thread["steps"][:1]
    needed = {"series", "load", "compile", "threads", "baseline", "code", "phase"}
    for where, lost in captured.losses(whole):
        found = judge(lost, target())
        if len(where) == 2 and where[1] in needed:
            assert found.status is not S.PASS, where


def test_the_same_evidence_gives_the_same_verdict():
    whole = evidence(ratio=0.85)
    assert judge(copy.deepcopy(whole), target()) == judge(whole, target())


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: Detected that you are using FX to symbolically trace a dynamo-optimized "
        "function. This is not supported at the moment.",
        "RuntimeError: CURRENT_PATCHER is None in finally block",
        "NameError: module is not installed as a submodule",  # the check muted, torch 2.13
    ],
)
def test_the_race_is_known_by_each_of_its_texts(text):
    known = recognise(text)
    assert known is not None
    assert known.name == "FX tracing race"


def test_a_new_error_is_not_taken_for_a_known_one():
    assert recognise("ZeroDivisionError: division by zero") is None
