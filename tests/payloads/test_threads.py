"""Each way in which training's threads fail to start, made for real on a real torch, is told apart."""

from __future__ import annotations

import pytest

from helpers.judge import starts
from helpers.judge.starts import classify
from tests.payloads import workloads
from tests.payloads.conftest import sent

pytestmark = pytest.mark.torch
ROLES = [{"name": "drafter", "devices": ["cpu", "cpu"], "shapes": [{"batch": 8}, {"batch": 4}]}]


def asked(folder, text, **params):
    return {"workload": workloads.write(folder, text), "roles": ROLES, **params}


def start(python, folder, text, **params):
    """What stage 50 keeps of one start."""
    got = sent("threads", asked(folder, text, seconds=1.0, **params), python=python)
    return got.measured | {"errors": got.document["errors"], "died_of": None, "code": got.code}


def serial(python, folder, text):
    """The serial run: what stage 40's proof measures."""
    env = {"TORCHINDUCTOR_CACHE_DIR": str(folder / "cache"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    got = sent("warm_cache", asked(folder, text, mode="prove"), python=python, env=env)
    assert got.document["errors"] == []
    return got.measured


@pytest.fixture(scope="module")
def right(torch_python, tmp_path_factory):
    return serial(torch_python, tmp_path_factory.mktemp("serial"), workloads.FINE)


def test_the_serial_run_tells_losses_and_how_little_python_enters(right):
    for entry in right["entries"]:
        assert len(entry["losses"]) == 3
        assert entry["losses"][0] > entry["losses"][-1] > 0
        assert 1 <= entry["module_calls"] <= 2, "compiled: the layers are not entered one by one"


def test_a_good_start_is_fine(torch_python, tmp_path, right):
    found = start(torch_python, tmp_path, workloads.FINE)
    assert found["code"] == 0
    assert found["errors"] == []
    assert found["phase"] == "done"
    assert classify(found, right) == (starts.FINE, "")
    assert starts.compared_losses(found, right) == 2 * 2 * 3
    assert found["process_wide_flag"], "up to torch 2.13"
    assert found["tracing"]["looks"] > 0
    assert set(found["residue"].values()) == {False}
    for thread in found["threads"]:
        assert thread["tokens"] > 0
        assert thread["module_calls"] == [entry["module_calls"] for entry in right["entries"]]
        assert thread["guards"] == {"error_on_nested_fx_trace": True, "replaced": []}


def test_213_as_it_was_shipped_hides_the_flag_and_still_breaks_threads_that_trace_at_once(
    torch_python, tmp_path, right
):
    found = start(torch_python, tmp_path, workloads.TRACING)
    assert found["tracing"]["up"] > 0
    assert classify(found, right).kind == starts.CRASH
    assert found["threads"][0]["guards"]["replaced"] == []


def test_the_race_crashes_where_torch_is_as_211(torch_python, tmp_path, right):
    found = start(torch_python, tmp_path, workloads.RACING)
    assert found["code"] == 0
    kind, why = classify(found, right)
    assert kind == starts.CRASH
    assert "FX tracing race" in why
    assert found["phase"] == "failed"
    replaced = found["threads"][0]["guards"]["replaced"]
    assert replaced[0]["name"] == "torch.compiler._compile_session_context"
    assert replaced[0]["by"].endswith("workload.py")


def test_the_remedy_ends_the_race(torch_python, tmp_path):
    text = workloads.RACING
    found = start(torch_python, tmp_path, text, prewarm=True)
    assert classify(found, serial(torch_python, tmp_path, text)) == (starts.FINE, "")
    assert found["prewarm"]["settled"]
    assert found["prewarm"]["rounds"][0]["compiled"] > 0
    assert found["prewarm"]["rounds"][-1]["compiled"] == 0
    assert found["tracing"]["up"] == 0, "nothing is left to trace"


def test_a_muted_check_is_a_silent_eager_fallback(torch_python, tmp_path, right):
    found = start(torch_python, tmp_path, workloads.MUTED)
    assert not any(thread["error"] for thread in found["threads"]), "that is the trap"
    kind, why = classify(found, right)
    assert kind == starts.EAGER
    assert "one by one" in why
    assert found["residue"]["fx_flag_stuck"]
    assert found["threads"][0]["guards"]["error_on_nested_fx_trace"] is False


def test_a_deadlock_ends_itself_and_shows_its_stacks(torch_python, tmp_path, right):
    found = start(torch_python, tmp_path, workloads.DEADLOCKED, deadline_s=45.0)
    assert found["code"] == 1
    kind, why = classify(found, right)
    assert kind == starts.DEADLOCK
    assert "drafter0, drafter1 never finished a first step" in why
    (error,) = [error for error in found["errors"] if error["where"] == "watchdog"]
    assert "\n".join(error["traceback"]).count("in before_call") == 2


def test_wrong_results_are_seen_in_the_losses(torch_python, tmp_path):
    right = serial(torch_python, tmp_path / "serial", workloads.SHARED)
    kind, why = classify(start(torch_python, tmp_path / "threads", workloads.SHARED), right)
    assert kind == starts.WRONG
    assert "in the serial run" in why


def test_a_start_leaves_the_compile_cache_as_it_is(torch_python, tmp_path):
    cache = tmp_path / "cache"
    cache.mkdir()
    env = {"TORCHINDUCTOR_CACHE_DIR": str(cache)}
    params = asked(tmp_path / "w", workloads.COMPILED, seconds=0.5)
    params["roles"] = [{"name": "drafter", "devices": ["cpu"], "shapes": [{"batch": 2}]}]
    got = sent("threads", params, python=torch_python, env=env)
    assert got.measured["compile"]["before"]["fxgraph_cache_miss"] > 0, "it compiled"
    assert list(cache.iterdir()) == []
