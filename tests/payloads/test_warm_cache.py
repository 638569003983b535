"""A cold cache is filled by one process and found full by the next: a real compiler at work."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from tests.payloads.conftest import captured, differences, sent
from tests.payloads.workloads import COMPILED, PACED, write
from tests.testbed.rooms import tree

pytestmark = pytest.mark.torch
ROLES = [
    {"name": "target", "devices": ["cpu"], "shapes": [{"batch": 2}]},
    {"name": "drafter", "devices": ["cpu", "cpu"], "shapes": [{"batch": 2}]},
]


def warm(python, workload, cache, mode="warm", roles=None, **params):
    params = {"workload": workload, "roles": roles or ROLES, "mode": mode, **params}
    env = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    return sent("warm_cache", params, python=python, env=env)


@pytest.fixture(scope="module")
def both(torch_python, tmp_path_factory):
    """The first process and the second one, on the same cache."""
    folder = tmp_path_factory.mktemp("warm")
    workload = write(folder / "training", COMPILED)
    (folder / "training" / "unused.py").write_text("# imported by nobody\n")
    first = warm(torch_python, workload, folder / "cache")
    kept = folder / "after-first"
    shutil.copytree(folder / "cache", kept)
    return first, warm(torch_python, workload, folder / "cache", mode="prove"), folder


def test_the_first_process_misses_and_saves(both):
    first, _, folder = both
    assert first.code == 0
    assert first.document["errors"] == []
    assert [(e["role"], e["device"], e["shape"]) for e in first.measured["entries"]] == [
        ("target", "cpu", {"batch": 2}), ("drafter", "cpu", {"batch": 2}),
    ]  # fmt: skip  # one entry for the two threads of the same device
    for entry in first.measured["entries"]:
        assert entry["error"] is None
        assert entry["tokens"] == 2
        assert entry["counters"]["fxgraph_cache_miss"] > 0
        assert entry["counters"]["fxgraph_cache_hit"] == 0
        assert entry["counters"]["aot_autograd_cache_saved"] == 1
        assert entry["cache_after"]["bytes"] > entry["cache_before"]["bytes"]
        assert entry["first_step_s"] > 10 * entry["later_step_s"]
    assert first.measured["totals"]["cache_before"] == {"files": 0, "bytes": 0}
    files = [p for p in (folder / "after-first").rglob("*") if p.is_file()]
    assert first.measured["totals"]["cache_after"] == {
        "files": len(files), "bytes": sum(p.stat().st_size for p in files),
    }  # fmt: skip


def test_the_second_process_only_hits(both):
    first, second, _ = both
    counters = second.measured["totals"]["counters"]
    assert counters["fxgraph_cache_miss"] == counters["aot_autograd_cache_miss"] == 0
    assert (
        counters["fxgraph_cache_hit"] == first.measured["totals"]["counters"]["fxgraph_cache_miss"]
    )
    assert counters["aot_autograd_cache_hit"] == 2
    assert second.measured["totals"]["cache_after"] == first.measured["totals"]["cache_after"]
    assert second.measured["totals"]["first_steps_s"] < first.measured["totals"]["first_steps_s"]


def test_what_it_ran_is_recorded(both):
    first, second, folder = both
    for got, mode in ((first, "warm"), (second, "prove")):
        for name in ("warm_cache", "warm_cache_prove", "warm_cache_h200", "warm_cache_prove_h200"):
            # The captured ones are older than these; judges must go on reading such documents.
            newer = {".entries[0].losses", ".entries[0].module_calls"}
            assert set(differences(got.measured, captured(name))) == newer
        assert got.measured["mode"] == mode
        assert got.measured["cache_dir"] == str(folder / "cache")
        assert got.measured["compile_threads"] == "1"
        assert got.measured["environment"]["TORCHINDUCTOR_CACHE_DIR"] == str(folder / "cache")
        workload = (folder / "training" / "workload.py").read_bytes()
        assert got.measured["files"] == {"workload.py": hashlib.sha256(workload).hexdigest()}
    assert not (folder / "training" / "__pycache__").exists()


def test_a_proof_in_a_copy_finds_the_same_and_leaves_the_cache_as_it_is(both, torch_python):
    _, second, folder = both
    before = tree(folder / "cache")
    got = warm(torch_python, str(folder / "training" / "workload.py"), folder / "cache",
               mode="prove", in_copy=True)  # fmt: skip
    assert got.measured["totals"]["counters"] == second.measured["totals"]["counters"]
    assert got.measured["totals"]["cache_after"] == second.measured["totals"]["cache_after"]
    copied = got.measured["cache_copy"]
    assert {k: copied[k] for k in ("files", "bytes")} == second.measured["totals"]["cache_after"]
    assert got.measured["cache_dir"] == str(folder / "cache")
    assert tree(folder / "cache") == before


def test_a_cold_cache_stays_cold_when_it_is_measured_in_a_copy(torch_python, tmp_path):
    workload = write(tmp_path / "training", COMPILED)
    cache = tmp_path / "cache"
    got = warm(torch_python, workload, cache, mode="prove", in_copy=True, roles=ROLES[:1])
    assert got.measured["totals"]["counters"]["fxgraph_cache_miss"] > 0
    assert got.measured["totals"]["cache_after"]["files"] > 0
    assert not cache.exists()


def test_progress_names_the_entries(both):
    phases = [(step["phase"], step.get("role")) for step in both[0].progress]
    assert phases == [("import", None), ("entry", "target"), ("entry", "drafter"), ("done", None)]


def test_a_half_warm_cache_shows_where_it_is_cold(both, torch_python, tmp_path):
    shutil.copytree(both[2] / "after-first", tmp_path / "cache")
    roles = [
        *ROLES,
        {"name": "drafter", "devices": ["cpu"], "shapes": [{"batch": 2}, {"batch": 5}]},
    ]
    got = warm(
        torch_python, str(both[2] / "training" / "workload.py"), tmp_path / "cache", "prove", roles
    )
    misses = [entry["counters"]["fxgraph_cache_miss"] for entry in got.measured["entries"]]
    assert misses[:3] == [0, 0, 0]
    assert misses[3] > 0
    assert got.measured["totals"]["counters"]["fxgraph_cache_miss"] == misses[3]


FAULTY = PACED + '''

inner = build


def build(device, role, shape):
    if role == "target":
        raise RuntimeError("the target does not load")
    return inner(device, role, shape) if shape.get("good") else lambda: None
'''  # fmt: skip


def test_one_entry_that_fails_leaves_the_others(torch_python, tmp_path):
    good = {"seconds": 0, "tokens": 3, "good": True}
    roles = [{"name": "target", "devices": ["cpu"], "shapes": [{}]},
             {"name": "drafter", "devices": ["cpu"], "shapes": [{}, good]}]  # fmt: skip
    got = warm(torch_python, write(tmp_path, FAULTY), tmp_path / "cache", roles=roles)
    assert got.code == 0
    target, no_tokens, fine = got.measured["entries"]
    assert target["error"] == "RuntimeError: the target does not load"
    assert (
        no_tokens["error"]
        == "ContractBroken: step() must return the number of tokens it processed, not None"
    )
    assert fine["error"] is None
    assert [e["where"] for e in got.document["errors"]] == [
        "entry target cpu {}",
        "entry drafter cpu {}",
    ]
    assert any(
        "the target does not load" in line for line in got.document["errors"][0]["traceback"]
    )


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("x = 1\n", "has no function build"),
        ("raise ImportError('no flash')\n", "no flash"),
        (None, "no workload file"),
    ],
)
def test_a_workload_that_breaks_its_contract(text, complaint, torch_python, tmp_path):
    workload = write(tmp_path, text) if text else str(tmp_path / "workload.py")
    got = warm(torch_python, workload, tmp_path / "cache")
    assert got.code == 1
    assert complaint in got.document["errors"][0]["message"]


def test_which_cache_must_be_said(tmp_path):
    got = sent("warm_cache", {"workload": write(tmp_path, PACED), "roles": ROLES, "mode": "warm"},
               env={"TORCHINDUCTOR_CACHE_DIR": ""})  # fmt: skip
    assert got.code == 2
    assert "TORCHINDUCTOR_CACHE_DIR" in got.document["errors"][0]["message"]


@pytest.mark.parametrize(
    "wrong",
    [{"mode": "burn"}, {"steps": 1}, {"roles": []}, {"roles": [{"name": "x"}]},
     {"roles": [{"name": "x", "devices": [], "shapes": [{}]}]},
     {"roles": [{"name": "x", "devices": ["cpu"], "shapes": ["s"]}]}],
)  # fmt: skip
def test_refuses_what_it_cannot_do(wrong, tmp_path):
    params = {"workload": str(Path("/none")), "roles": ROLES, "mode": "warm", **wrong}
    assert sent("warm_cache", params, env={"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}).code == 2
