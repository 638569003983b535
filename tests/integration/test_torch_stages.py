"""Stages 30, 40 and 60 on a real torch: a small workload, compiled, cached and measured."""

import dataclasses
import json
from pathlib import Path

import pytest

from helpers.errors import ParameterError, PreconditionFailed
from helpers.judge import benchmark as judge_benchmark
from helpers.judge import verify_torch as judge_verify_torch
from helpers.judge import warm_cache as judge_warm_cache
from helpers.recover import baseline, benchmark, verify_torch, warm_cache
from helpers.verdict import Status
from tests.integration.conftest import JOBS
from tests.integration.torch_stage import PLAIN, WORKLOAD, stand

pytestmark = pytest.mark.torch

FAILING = WORKLOAD.replace(
    "def step():",
    "def step():\n        raise RuntimeError('the step is broken')",
)
RACED = "Detected that you are using FX to symbolically trace a dynamo-optimized function."
RACING = PLAIN.replace("def step():", f"def step():\n        raise RuntimeError('{RACED}')")


def files(folder: Path):
    found = {p.relative_to(folder): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    # The lock under which long work is started; of the work itself nothing may be left.
    return {
        str(name): content for name, content in found.items() if not name.match(f"{JOBS}/starting")
    }


def run(room, judge, made, **kwargs):
    """Look, plan, apply, judge: what a notebook does."""
    work = made.work(**kwargs)
    facts = room.look(work)
    plan = room.plan(work, facts)
    measured = room.apply(work, facts, plan)
    json.dumps(measured, allow_nan=False)
    return facts, plan, measured, judge({"facts": facts, "measured": measured}, made.target)


def test_torch_is_verified_where_it_is(tmp_path, torch_python):
    made = stand(tmp_path, torch_python)
    before = files(tmp_path)
    facts, plan, measured, found = run(verify_torch, judge_verify_torch.judge, made)
    assert not plan.changes
    assert facts["torch"] == measured["version"]
    assert found.status is Status.PASS, found.deciding
    assert files(tmp_path) == before


def test_without_an_environment_nothing_is_measured(tmp_path, torch_python):
    made = stand(tmp_path, tmp_path / "none" / "bin" / "python")
    work = made.work()
    facts = verify_torch.look(work)
    with pytest.raises(PreconditionFailed, match="no environment"):
        verify_torch.apply(work, facts, verify_torch.plan(work, facts))
    assert judge_verify_torch.judge({"facts": facts}, made.target).status is Status.UNKNOWN


def test_a_cold_cache_is_replaced_warmed_proven_and_then_left_alone(tmp_path, torch_python):
    made = stand(tmp_path, torch_python)
    made.cache.mkdir()
    (made.cache / "stale").write_text("old")

    _, plan, measured, found = run(warm_cache, judge_warm_cache.judge, made)
    assert [change.what for change in plan.changes] == [
        "set the old compile cache aside",
        "fill a fresh compile cache and prove it",
    ]
    assert found.status is Status.PASS, found.deciding
    assert measured["proven"]
    assert measured["recorded"]
    assert measured["first_steps"][0]["cold_s"] > measured["first_steps"][0]["warm_s"]
    assert (Path(measured["set_aside"]) / "stale").read_text() == "old"
    assert [phase for phase, _, _ in made.changes] == ["begins", "done", "begins", "done"]

    warm = files(made.cache)
    facts, plan, measured, found = run(warm_cache, judge_warm_cache.judge, made, run_id="second")
    assert facts["misfits"] == []
    assert not plan.changes
    assert found.status is Status.PASS, found.deciding
    assert measured["first_steps"][0]["cold_s"] is not None, "the record remembers the cold start"
    assert files(made.cache) == warm, "a proof must not write"

    made.deploy(WORKLOAD + "\n# edited\n")
    assert warm_cache.look(made.work())["misfits"] == ["the training scripts are others"]
    made.deploy(WORKLOAD)
    next(made.cache.rglob("*.so")).unlink()
    assert "files" in warm_cache.look(made.work())["misfits"][0]


def test_when_warming_fails_the_old_cache_is_back(tmp_path, torch_python):
    made = stand(tmp_path, torch_python, source=FAILING)
    made.cache.mkdir()
    (made.cache / "old").write_text("old")
    before = files(made.cache)
    _, _, measured, found = run(warm_cache, judge_warm_cache.judge, made)
    assert files(made.cache) == before
    assert measured["put_back"]
    assert found.status is Status.FAIL
    assert "the step is broken" in found.deciding.meaning
    assert [phase for phase, _, _ in made.changes] == [
        "begins",
        "done",
        "begins",
        "failed",
        "undone",
    ]


def test_when_warming_is_interrupted_the_old_cache_is_back(tmp_path, torch_python):
    made = stand(tmp_path, torch_python)
    made.cache.mkdir()
    (made.cache / "old").write_text("old")
    work = made.work()
    facts = warm_cache.look(work)
    plan = warm_cache.plan(work, facts)

    def stop(text, _fraction):
        if "drafter" in text:
            raise KeyboardInterrupt

    work = dataclasses.replace(work, say=stop)
    with pytest.raises(KeyboardInterrupt):
        warm_cache.apply(work, facts, plan)
    assert files(made.cache) == {"old": b"old"}
    assert made.changes[-1][0] == "undone"


def test_looking_and_planning_change_nothing(tmp_path, torch_python):
    made = stand(tmp_path, torch_python)
    made.cache.mkdir()
    (made.cache / "old").write_text("old")
    before = files(tmp_path)
    for room in (verify_torch, warm_cache, benchmark):
        work = made.work()
        assert room.plan(work, room.look(work)) == room.plan(work, room.look(work))
    assert files(tmp_path) == before


def test_throughput_is_compared_with_a_baseline_that_was_measured_the_same_way(
    tmp_path, torch_python
):
    made = stand(tmp_path, torch_python, source=PLAIN)
    work = made.work()
    expected = benchmark.look(work)["expected"]
    assert expected["tok_per_s"] is None
    assert "that folder holds none" in expected["path"]
    recorded = baseline.measure_baseline(work.container, made.target, work.say, source="a test")
    path = baseline.store(recorded, Path(made.target.benchmark.baselines))
    assert json.loads(path.read_text())["schema"] == 1
    facts, plan, measured, found = run(benchmark, judge_benchmark.judge, made)
    assert not plan.changes
    assert facts["expected"]["tok_per_s"] == recorded.tok_per_s
    assert measured["baseline_at"] == str(path)
    assert found["threads"].status is Status.PASS, found["threads"]
    assert found["code measured"].status is Status.PASS
    assert found["throughput"].measured["baseline_ratio"] > 0
    _a_missing_baseline_is_unknown(measured, made)
    _a_hundredfold_baseline_is_missed(measured, made)
    _another_file_is_never_another_baseline(measured, made, path)


def _a_missing_baseline_is_unknown(measured, made):
    found = judge_benchmark.judge({"measured": measured | {"baseline": None}}, made.target)
    assert found["baseline"].status is Status.UNKNOWN
    assert found["throughput"].status is Status.UNKNOWN


def _a_hundredfold_baseline_is_missed(measured, made):
    higher = dict(measured["baseline"])
    higher["tok_per_s"] *= 100
    higher["samples_tok_per_s"] = [100 * sample for sample in higher["samples_tok_per_s"]]
    found = judge_benchmark.judge({"measured": measured | {"baseline": higher}}, made.target)
    assert found["throughput"].status is Status.FAIL


def _another_file_is_never_another_baseline(measured, made, path):
    made.deploy(PLAIN + "\n# changed in the container only\n")
    facts = benchmark.look(made.work())
    assert facts["expected"]["path"] == str(path), "the baseline belongs to the commit"
    (made.root / "training" / "beside.py").write_text("")
    ran = {"workload.py": "another hash", "beside.py": "a hash"}
    code = baseline.measured_code(measured | {"files": ran}, made.target)
    assert [one["ran"] == one["committed"] for one in code] == [False, False]
    found = judge_benchmark.judge({"measured": measured | {"code": code}}, made.target)
    assert found["code measured"].status is Status.FAIL
    assert found["code measured"].measured == ["workload.py", "beside.py, not in the commit"]


def test_what_nobody_has_approved_leaves_a_cold_cache_cold(tmp_path, torch_python):
    made = stand(tmp_path, torch_python, seconds=1.0)
    made.cache.mkdir()
    (made.cache / "old").write_text("old")
    before = files(tmp_path)
    work = made.work()
    assert warm_cache.plan(work, warm_cache.look(work)).changes, "it is cold"
    *_, measured, _ = run(benchmark, judge_benchmark.judge, made)
    assert measured["compile"]["before"]["fxgraph_cache_miss"] > 0, "and training compiled"
    assert files(tmp_path) == before


BREAKING = (
    WORKLOAD.replace('nn.Linear(shape["width"], shape["width"])', "Breaking(shape)")
    .replace(
        "def build",
        """class Breaking(nn.Linear):
    def __init__(self, shape):
        super().__init__(shape["width"], shape["width"])

    def forward(self, x):
        y = super().forward(x)
        torch._dynamo.graph_break()
        return y.relu()


def build""",
    )
    .replace(", fullgraph=True", "")
)


def test_a_damaged_cache_fails_its_proof_and_a_declared_graph_break_does_not(
    tmp_path, torch_python
):
    made = stand(tmp_path, torch_python, source=BREAKING)
    *_, found = run(warm_cache, judge_warm_cache.judge, made)
    assert found["graph breaks"].status is Status.FAIL
    assert found["graph breaks"].measured == 1
    declared = made.target.workload.model_copy(update={"expected_graph_breaks": 1})
    made.target = made.target.model_copy(update={"workload": declared})
    facts, plan, _, found = run(warm_cache, judge_warm_cache.judge, made, run_id="second")
    assert facts["misfits"] == []
    assert not plan.changes
    assert found.status is Status.PASS, found.deciding

    for entry in (made.cache / "fxgraph").rglob("*"):
        if entry.is_file():
            entry.write_bytes(b"0" * entry.stat().st_size)
    before = files(tmp_path)
    facts, plan, _, found = run(warm_cache, judge_warm_cache.judge, made, run_id="third")
    assert not plan.changes, "by its record it is warm"
    assert found.status is Status.FAIL
    assert files(tmp_path) == before, "what it lacks is not written into it"


def test_a_thread_that_fails_is_named(tmp_path, torch_python):
    made = stand(tmp_path, torch_python, source=RACING)
    _, _, measured, found = run(benchmark, judge_benchmark.judge, made)
    assert measured["tok_per_s"] is None
    assert found.status is Status.FAIL
    assert "FX tracing race" in found["threads"].meaning
    work = made.work()
    with pytest.raises(PreconditionFailed, match="No baseline was recorded"):
        baseline.measure_baseline(work.container, made.target, work.say)


def test_baseline_files_are_kept_and_checked(tmp_path, torch_python):
    made = stand(tmp_path, torch_python)
    folder = Path(made.target.benchmark.baselines)
    code = baseline.code_hash(baseline.committed_code(made.target))
    roles = baseline.workload.roles_hash(made.target)
    recorded = baseline.Baseline(
        device="GPU, 2 cores",
        torch_build="2.13.0+cpu",
        workload_sha256=code,
        roles_hash=roles,
        tok_per_s=10.0,
        samples_tok_per_s=(9.0, 11.0),
        measured={},
        recorded_at="2026-11-30T00:00:00+00:00",
        source="a test",
    )
    path = baseline.store(recorded, folder)
    assert baseline.find(made.target, "GPU, 2 cores", "2.13.0+cpu") == (recorded, str(path))
    assert baseline.find(made.target, "GPU, 4 cores", "2.13.0+cpu")[0] is None
    baseline.store(recorded.model_copy(update={"tok_per_s": 12.0}), folder)
    assert len(list(folder.iterdir())) == 2, "the old one is set aside"
    path.write_text("{}")
    with pytest.raises(ParameterError, match="is not a baseline"):
        baseline.find(made.target, "GPU, 2 cores", "2.13.0+cpu")
