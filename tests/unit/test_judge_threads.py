"""Judge of stage 50, over captured starts (H200, torch 2.11), altered ones, and ones with parts missing."""

import copy
import json

import pytest

from helpers.judge import starts
from helpers.judge.interval import failure_rate
from helpers.judge.starts import classify
from helpers.judge.threads import THREE_LINES, judge
from helpers.verdict import Status
from tests.unit import captured

S = Status
CAPTURED = captured.h200("threads")
SERIAL = CAPTURED["serial"]["measured"]


def start(name="prewarmed", **changed):
    """A captured start as stage 50 keeps it; each argument replaces a field."""
    whole = copy.deepcopy(CAPTURED[name])
    kept = {"errors": whole["errors"], "elapsed_s": whole["elapsed_s"], "died_of": None}
    return whole["measured"] | kept | changed


def fine(**changed):
    """A start at which nothing went wrong and nothing was traced."""
    return start("prewarmed", **changed)


def threads(**changed):
    """The threads of a good start, with the first one changed."""
    found = fine()["threads"]
    found[0] |= changed
    return found


def at_version(version, found):
    return [one | {"torch": one["torch"] | {"version": version}} for one in found]


def evidence(bare, prewarmed=(), serial=SERIAL):
    measured = {"serial": serial, "serial_from": "40_warm_cache", "bare": bare}
    return {"facts": {}, "measured": {**measured, "prewarmed": [*prewarmed]}}


def target(remedy="none"):
    return captured.target(threads={"remedy": remedy})


WATCHDOG = {"where": "watchdog", "type": "DeadlineExceeded", "message": "ended after 45 s"}
STUCK = {"where": "threads[1]", "type": "DidNotStop", "message": "drafter0 did not stop"}
NO_TORCH = {"where": "measure", "type": "ImportError", "message": "no module named torch"}
DIED = {"where": "process", "type": "NoDocument", "message": "no document"}
LOSS = SERIAL["entries"][1]["losses"][0]
PEAK = (
    2 * sum(e["memory"]["devices"]["cuda:0"]["peak_allocated_bytes"] for e in SERIAL["entries"][1:])
    + (SERIAL["entries"][0]["memory"]["devices"]["cuda:0"]["peak_allocated_bytes"])
)


def compiled(count, **changed):
    found = fine()["compile"]
    return {**found, "window": {**found["window"], "compilations": count}, **changed}


def with_graphs(count):
    found = fine()["compile"]
    return {**found, "before": {**found["before"], "unique_graphs": count}}


def drafter_losses(first):
    found = fine()["threads"]
    found[1]["losses"][0][0] = first
    return found


def memory(peak):
    return {"devices": {"cuda:0": {"peak_allocated_bytes": peak}}}


def working(ratio):
    """Threads that do so much of one thread's work: tokens for a window of 2 s."""
    found = fine()["threads"]
    for thread in found:
        thread["tokens"] = 0.0
    entry = SERIAL["entries"][0]
    found[0]["tokens"] = ratio * 2.0 * entry["tokens"] / entry["later_step_s"]
    return {"threads": found, "window_s": 2.0}


def waiting():
    found = fine()["threads"]
    for thread in found[1:]:
        thread["first_steps_s"] = None
    return found


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (start("cold"), starts.CRASH),
        (start("bare"), starts.CRASH),
        (start("bare_one_thread"), starts.CRASH),
        (start("prewarmed_shared_forward"), starts.CRASH),
        (start("muted"), starts.EAGER),
        (fine(), starts.FINE),
        # a process that ended without a document
        ({"phase": None, "errors": [DIED], "died_of": "SIGSEGV"}, starts.CRASH),
        ({"phase": None, "errors": [DIED], "died_of": "SIGKILL"}, starts.UNKNOWN),
        ({"phase": None, "errors": [DIED], "died_of": "exit code 1"}, starts.UNKNOWN),
        ({"phase": "first_steps", "errors": [WATCHDOG], "died_of": "exit code 1"}, starts.DEADLOCK),
        # hangs
        (fine(phase="first_steps", errors=[WATCHDOG], threads=waiting()), starts.DEADLOCK),
        (fine(phase="window", errors=[WATCHDOG]), starts.DEADLOCK),
        (fine(errors=[STUCK]), starts.DEADLOCK),
        (fine(phase="import", errors=[WATCHDOG], threads=[]), starts.UNKNOWN),
        (fine(phase="import", errors=[NO_TORCH], threads=[]), starts.UNKNOWN),
        # wrong results, just outside and just inside
        (fine(threads=drafter_losses(LOSS * 1.021)), starts.WRONG),
        (fine(threads=drafter_losses(LOSS * 1.019)), starts.FINE),
        (fine(threads=drafter_losses(float("nan"))), starts.WRONG),
        (fine(threads=drafter_losses(None)), starts.FINE),
        # silent eager fallback, by each of its signs, just outside and just inside
        (fine(threads=threads(module_calls=[3])), starts.EAGER),
        (fine(threads=threads(module_calls=[2])), starts.FINE),
        (fine(threads=threads(module_calls=None)), starts.FINE),
        (fine(compile=with_graphs(2)), starts.EAGER),
        (fine(compile=with_graphs(3)), starts.FINE),
        (fine(memory=memory(1.51 * PEAK)), starts.EAGER),
        (fine(memory=memory(1.49 * PEAK)), starts.FINE),
        (fine(**working(0.49)), starts.EAGER),
        (fine(**working(0.51)), starts.FINE),
        # recompiles
        (fine(over_limit=1), starts.RECOMPILES),
        (fine(compile=compiled(3), window_s=2.0), starts.RECOMPILES),
        (fine(compile=compiled(2), window_s=2.0), starts.FINE),
        # residue
        (fine(residue=fine()["residue"] | {"fx_flag_stuck": True}), starts.RESIDUE),
        (fine(residue=fine()["residue"] | {"module__call__patched": True}), starts.RESIDUE),
        (fine(residue=None), starts.UNKNOWN),
        # no more than that is known
        (fine(phase="window", compile=compiled(0, window=None)), starts.UNKNOWN),
        (fine(threads=threads(tokens=None)), starts.UNKNOWN),
        ({}, starts.UNKNOWN),
        (None, starts.UNKNOWN),
    ],
)
def test_what_became_of_a_start(found, kind):
    assert classify(found, SERIAL).kind == kind, classify(found, SERIAL)


def test_a_crash_is_named_with_its_signature():
    why = classify(start("bare"), SERIAL).why
    assert "known as: FX tracing race" in why
    assert why.startswith("2 of 3 threads: target0 on cuda:0")


def test_a_thread_that_lost_its_graph_is_known():
    error = "RuntimeError: torch.compile with fullgraph=True found no compiled frames."
    found = classify(fine(phase="failed", threads=threads(error=error)), SERIAL)
    assert found.kind == starts.CRASH
    assert "known as: shared forward" in found.why


FINE, RACE = fine(), start("bare")
EAGER = fine(threads=threads(module_calls=[9]))
UNKNOWN = fine(phase="import", errors=[NO_TORCH], threads=[])
TRACED = fine(tracing={"looks": 100, "up": 7})


@pytest.mark.parametrize(
    ("bare", "prewarmed", "remedy", "word", "status"),
    [
        ([FINE] * 5, [], "none", "safe", S.PASS),
        ([RACE] * 5, [FINE] * 5, "none", "racy", S.DEGRADED),
        ([FINE] * 4 + [RACE], [FINE] * 5, "none", "racy", S.DEGRADED),
        ([RACE] * 5, [], "none", "racy", S.FAIL),
        ([RACE] * 5, [FINE, RACE], "none", "racy", S.FAIL),
        ([RACE] * 5, [UNKNOWN] * 5, "none", "racy", S.FAIL),
        ([EAGER] * 5, [FINE] * 5, "none", "silently degraded", S.DEGRADED),
        ([EAGER] * 5, [EAGER] * 5, "none", "silently degraded", S.FAIL),
        ([EAGER, RACE], [FINE] * 2, "none", "racy", S.DEGRADED),
        ([UNKNOWN] * 5, [], "none", "unknown", S.UNKNOWN),
        ([FINE, UNKNOWN], [], "none", "unknown", S.UNKNOWN),
        ([TRACED] * 5, [FINE] * 5, "none", "unknown", S.UNKNOWN),
        (at_version("2.13.0+cpu", [TRACED]), [], "none", "unknown", S.UNKNOWN),
        (at_version("2.14.0+cpu", [TRACED]), [], "none", "safe", S.PASS),
        (at_version("2.13.0+cpu", [FINE]), [], "none", "safe", S.PASS),
        ([fine(compile=compiled(1))] * 2, [], "none", "unknown", S.UNKNOWN),
        ([TRACED | {"threads": TRACED["threads"][:1], "memory": {}}], [], "none", "safe", S.PASS),
        ([RACE] * 5, [FINE] * 5, "prewarm", "safe", S.PASS),
        ([FINE] * 5, [FINE] * 5, "prewarm", "safe", S.PASS),
        ([RACE] * 5, [FINE] * 4 + [RACE], "prewarm", "racy", S.FAIL),
        ([FINE] * 5, [UNKNOWN], "prewarm", "unknown", S.UNKNOWN),
        ([FINE] * 5, [], "prewarm", None, S.UNKNOWN),
        ([], [], "none", None, S.UNKNOWN),
    ],
)
def test_the_verdict_in_one_word(bare, prewarmed, remedy, word, status):
    check = judge(evidence(bare, prewarmed), target(remedy))["thread start"]
    assert check.status is status, check
    assert (check.measured or {}).get("verdict") == word
    assert bool(check.meaning) == (status is not S.PASS)


def test_a_proven_remedy_makes_it_degraded_and_says_the_three_lines():
    found = judge(evidence([RACE] * 5, [FINE] * 5), target())
    assert found.status is S.DEGRADED
    assert all(line in found["thread start"].meaning for line in THREE_LINES)
    assert found["remedy: prewarm"].status is S.PASS
    assert found["remedy: prewarm"].measured["tok_per_s"] > 0
    assert found["thread start"].measured["failed"] == "5 of 5"
    assert found["thread start"].measured["failure_low_ratio"] == 0.478


def test_a_declared_remedy_passes_and_tells_of_the_start_without_it():
    found = judge(evidence([RACE] * 5, [FINE] * 5), target("prewarm"))
    assert found.status.good
    assert found["start without the remedy"].status is S.DRIFT
    assert found["start without the remedy"].measured["verdict"] == "racy"


@pytest.mark.parametrize(
    ("version", "replaced", "status", "word"),
    [
        ("2.11.0+cu130", [], S.DRIFT, "nothing hides it"),
        ("2.12.1", [], S.DRIFT, "nothing hides it"),
        ("2.13.0+cpu", [], S.PASS, "hidden while one compiles"),
        (
            "2.13.0+cpu",
            [{"name": "torch.compiler._compile_session_context", "by": "/root/a.py"}],
            S.DRIFT,
            "has been replaced",
        ),
        ("2.14.0", [], S.PASS, "since 2.14"),
        ("3.0", [], S.PASS, "since 2.14"),
        ("", [], S.UNKNOWN, ""),
    ],
)
def test_the_rule_of_the_version_is_named(version, replaced, status, word):
    guards = {"error_on_nested_fx_trace": True, "replaced": replaced}
    one = fine(threads=[t | {"guards": guards} for t in fine()["threads"]])
    check = judge(evidence(at_version(version, [one])), target())["torch's own rule"]
    assert check.status is status
    assert word in str(check.measured)


@pytest.mark.parametrize(
    ("guards", "status"),
    [
        ({"error_on_nested_fx_trace": True, "replaced": []}, S.PASS),
        ({"error_on_nested_fx_trace": None, "replaced": []}, S.PASS),
        ({"error_on_nested_fx_trace": False, "replaced": []}, S.FAIL),
        (
            {
                "error_on_nested_fx_trace": True,
                "replaced": [
                    {"name": "torch.fx._symbolic_trace.is_fx_symbolic_tracing", "by": "/root/m.py"}
                ],
            },
            S.FAIL,
        ),
        (None, S.UNKNOWN),
    ],
)
def test_a_muted_check_is_named_and_never_recommended(guards, status):
    one = fine(threads=[t | {"guards": guards} for t in fine()["threads"]])
    check = judge(evidence([one]), target())["torch's guards as shipped"]
    assert check.status is status
    if status is S.FAIL:
        assert "Take that out" in check.meaning


def test_a_workload_that_tells_no_loss_is_told_so():
    silent = fine(threads=[t | {"losses": []} for t in fine()["threads"]])
    assert judge(evidence([silent]), target())["losses compared"].status is S.DRIFT
    assert judge(evidence([FINE]), target())["losses compared"].status is S.PASS


def test_without_a_serial_run_the_stage_does_not_pass():
    found = judge(evidence([FINE], serial=None), target())
    assert found["serial run"].status is S.UNKNOWN
    assert found.status is S.UNKNOWN


def test_nothing_measured_is_unknown():
    assert judge({}, target()).status is S.UNKNOWN
    assert judge({"facts": {}, "measured": None}, target()).status is S.UNKNOWN


def test_a_lost_part_never_makes_it_better_and_never_raises():
    kept = evidence([start("bare")], [fine()])
    for _, lost in captured.losses({"measured": kept["measured"]}):
        json.dumps(judge(lost, target()).model_dump(mode="json"))
        assert judge(lost, target()).status is not S.PASS


@pytest.mark.parametrize(
    ("failed", "trials", "low", "high"),
    [
        (0, 5, 0.0, 0.5218),
        (5, 5, 0.4782, 1.0),
        (3, 7, 0.0990, 0.8159),
        (2, 20, 0.0123, 0.3170),
        (0, 1, 0.0, 0.975),
        (0, 0, 0.0, 1.0),
    ],
)
def test_the_interval_is_clopper_and_pearsons(failed, trials, low, high):
    assert failure_rate(failed, trials) == pytest.approx((low, high), abs=1e-4)
