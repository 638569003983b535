"""Stage 50 on a real torch: a start that is safe, one that races, one whose process dies."""

import dataclasses

import pytest

from helpers.judge import threads as judge_threads
from helpers.judge import warm_cache as judge_warm_cache
from helpers.recover import threads, warm_cache
from helpers.verdict import Status
from tests.integration.test_torch_stages import files, run
from tests.integration.torch_stage import WORKLOAD, stand
from tests.payloads import workloads

pytestmark = pytest.mark.torch
ROLES = [{"name": "drafter", "devices": ["cpu", "cpu"], "shapes": [{"batch": 8}, {"batch": 4}]}]


def test_a_start_with_nothing_to_trace_is_safe_and_changes_nothing(tmp_path, torch_python):
    made = stand(tmp_path, torch_python, source=WORKLOAD)
    _, _, proof, _ = run(warm_cache, judge_warm_cache.judge, made)
    before = files(tmp_path)
    work = dataclasses.replace(made.work(), evidence_of={"40_warm_cache": {"measured": proof}}.get)
    facts = threads.look(work)
    assert facts["serial_from"] == "40_warm_cache"
    assert facts["misfits"] == []
    plan = threads.plan(work, facts)
    assert not plan.changes
    measured = threads.apply(work, facts, plan)
    assert files(tmp_path) == before, "torch worked in a copy"
    assert measured["bare"][0]["tracing"]["up"] == 0
    assert measured["prewarmed"] == [], "the remedy is of no interest"
    found = judge_threads.judge({"facts": facts, "measured": measured}, made.target)
    assert found["thread start"].status is Status.PASS, found["thread start"]
    assert found["thread start"].measured["verdict"] == "safe"
    assert found["torch's own rule"].status is Status.PASS
    assert found.status.good, found.deciding


def test_a_race_is_named_and_the_remedy_proven(tmp_path, torch_python):
    made = stand(tmp_path, torch_python, source=workloads.RACING, roles=ROLES)
    _, _, measured, found = run(threads, judge_threads.judge, made)
    assert found.status is Status.DEGRADED
    assert found["thread start"].measured["verdict"] == "racy"
    assert "FX tracing race" in found["thread start"].meaning
    assert "prewarm.prewarm(calls" in found["thread start"].meaning
    assert found["remedy: prewarm"].status is Status.PASS
    assert measured["prewarmed"][0]["prewarm"]["apart"] == 4
    assert "_compile_session_context" in str(found["torch's guards as shipped"].measured)


def test_a_declared_remedy_decides(tmp_path, torch_python):
    made = stand(tmp_path, torch_python, source=workloads.RACING, roles=ROLES, remedy="prewarm")
    _, _, _, found = run(threads, judge_threads.judge, made)
    assert found.status.good
    assert found["thread start"].measured["verdict"] == "safe"
    assert found["start without the remedy"].measured["verdict"] == "racy"


def test_a_process_that_dies_is_a_crash_and_no_error_of_ours(tmp_path, torch_python):
    made = stand(tmp_path, torch_python, source=workloads.DYING, roles=ROLES)
    _, _, measured, found = run(threads, judge_threads.judge, made)
    assert measured["bare"][0]["died_of"] == "SIGSEGV"
    assert found["thread start"].status is Status.FAIL
    assert "the process died of SIGSEGV" in found["thread start"].meaning
    assert "Segmentation fault" in str(measured["bare"][0]["errors"]), "its last words are kept"
