"""The judge of stage 00 and its symptoms, on whole evidence and on evidence with holes."""

import json

import pytest

from helpers.judge.preflight import judge, symptoms
from helpers.verdict import Status
from tests.testbed.evidence import cut_everywhere
from tests.testbed.rooms import make_target

TARGET = make_target("/c", environment={"python": "3.11"})
GIB = 1024**3
HACK = {"line": 4, "text": "trace.is_fx_symbolic_tracing = lambda: False"}
SCRIPT = {
    "path": "model.py",
    "exists": True,
    "sha256": "a",
    "mtime": "2026-11-01T00:00:00Z",
    "tampering": [],
}
CACHE = {
    "exists": True,
    "files": 40,
    "bytes": GIB,
    "newest": "2026-11-02T00:00:00Z",
    "kinds": {"fxgraph": {"files": 9}},
}
FACTS = {
    "reached": {"container": "test", "python3": True},
    "machine": {
        "marker": "it-is-me",
        "disk": [{"path": "/c/venv", "free_bytes": 9 * GIB, "writable": True}],
        "compilers": [{"path": "/usr/bin/g++", "version": "g++ 12"}],
        "pythons": [{"path": "/usr/bin/python3", "version": "3.11.2"}],
    },
    "venv": {
        "exists": True,
        "bytes": 2 * GIB,
        "processes": [],
        "python": {"version": "3.11.2", "error": None},
        "packages": [{"name": "tool-a", "version": "2.0"}, {"name": "tool-b", "version": "1"}],
    },
    "scripts": {"files": [SCRIPT], "undeclared": []},
    "cache": CACHE,
    "training_log": {
        "exists": True,
        "mtime": "2026-11-02T00:00:00Z",
        "tok_per_s": [980.0] * 20,
        "error_lines": [],
    },
    "packages": {"created_at": "2026-10-01T00:00:00Z", "comparison": {"extra": []}},
    "repository": {
        "commit": "d" * 40,
        "error": None,
        "files": [{"path": "model.py", "sha256": "a"}],
    },
    "baselines": [{"tok_per_s": 1000.0}],
}


def changed(path, value):
    facts = json.loads(json.dumps(FACTS))
    *parents, last = path.split("__")
    inside = facts
    for key in parents:
        inside = inside[key]
    inside[last] = value
    return facts


def test_the_recovery_of_a_healthy_environment_can_begin():
    verdict = judge({"facts": FACTS, "measured": {}}, TARGET)
    assert {c.status for c in verdict.checks} == {Status.PASS}
    assert all(c.expected and c.source for c in verdict.checks)


def test_a_healthy_environment_has_no_symptom():
    found = symptoms(FACTS, TARGET)
    assert {c.status for c in found} == {Status.PASS}
    assert all(c.expected and c.source for c in found)


PROCESS = {"pid": 7, "command": "python train.py", "evidence": ["argv0", "VIRTUAL_ENV"]}
SHELL = {"pid": 8, "command": "bash", "evidence": ["VIRTUAL_ENV"]}


@pytest.mark.parametrize(
    ("path", "value", "check", "status"),
    [
        ("machine__marker", "another", "identity", "fail"),
        ("machine__marker", None, "identity", "unknown"),
        (
            "machine__disk",
            [{"path": "/c", "free_bytes": 4 * GIB - 1, "writable": True}],
            "disk space",
            "fail",
        ),
        (
            "machine__disk",
            [{"path": "/c", "free_bytes": 4 * GIB, "writable": True}],
            "disk space",
            "pass",
        ),
        (
            "machine__disk",
            [{"path": "/c", "free_bytes": None, "writable": True}],
            "disk space",
            "unknown",
        ),
        (
            "machine__disk",
            [{"path": "/c", "free_bytes": 9 * GIB, "writable": False}],
            "folders writable",
            "fail",
        ),
        ("machine__disk", [], "disk space", "unknown"),
        ("venv", None, "disk space", "unknown"),
        ("venv", {"exists": False, "processes": []}, "disk space", "pass"),
        ("machine__compilers", [{"path": "/usr/bin/gcc", "version": "12"}], "C++ compiler", "fail"),
        ("machine__compilers", [{"path": "/usr/bin/g++", "version": None}], "C++ compiler", "fail"),
        ("machine__compilers", None, "C++ compiler", "unknown"),
        (
            "machine__pythons",
            [{"path": "/usr/bin/python3", "version": "3.1.11"}],
            "declared Python",
            "drift",
        ),
        (
            "machine__pythons",
            [{"path": "/usr/bin/python3", "version": None}],
            "declared Python",
            "drift",
        ),
        ("machine__pythons", None, "declared Python", "unknown"),
        (
            "repository",
            {"commit": None, "error": "There is no commit called x."},
            "repository and ref",
            "fail",
        ),
        ("repository", None, "repository and ref", "unknown"),
        ("venv__processes", [PROCESS], "nothing runs from the environment", "fail"),
        ("venv__processes", [SHELL], "nothing runs from the environment", "drift"),
        ("venv__processes", None, "nothing runs from the environment", "unknown"),
        ("reached", None, "container reached", "unknown"),
    ],
)
def test_what_hinders_the_recovery_is_found(path, value, check, status):
    found = judge({"facts": changed(path, value)}, TARGET)[check]
    assert found.status == status
    assert (found.meaning == "") == (status == "pass")


def test_a_running_process_is_named():
    verdict = judge({"facts": changed("venv__processes", [SHELL, PROCESS])}, TARGET)
    assert verdict["nothing runs from the environment"].measured == ["pid 7: python train.py"]


def test_damage_does_not_count_against_the_verdict():
    facts = changed("scripts__files", [{**SCRIPT, "sha256": "hacked", "tampering": [HACK]}])
    assert judge({"facts": facts}, TARGET).status is Status.PASS


@pytest.mark.parametrize(
    ("path", "value", "check", "status"),
    [
        ("venv", {"exists": False}, "environment there and running", "fail"),
        (
            "venv__python",
            {"version": None, "error": "exit code 1"},
            "environment there and running",
            "fail",
        ),
        ("venv__packages", [{"name": "intruder", "version": "1"}], "nothing forbidden", "fail"),
        ("venv__packages", [{"name": "tool-a", "version": "1.0"}], "declared versions", "fail"),
        ("venv__packages", None, "declared versions", "unknown"),
        ("packages__comparison", {"extra": ["x 1"]}, "nothing beyond the declared", "degraded"),
        ("packages__comparison", None, "nothing beyond the declared", "unknown"),
        ("scripts__files", [{**SCRIPT, "sha256": "b"}], "scripts as committed", "fail"),
        ("scripts__files", [{"path": "model.py", "exists": False}], "scripts as committed", "fail"),
        ("scripts", None, "scripts as committed", "unknown"),
        ("repository__files", [], "scripts as committed", "unknown"),
        ("scripts__files", [{**SCRIPT, "tampering": [HACK]}], "torch's guards left alone", "fail"),
        (
            "scripts__undeclared",
            [{**SCRIPT, "tampering": [HACK]}],
            "torch's guards left alone",
            "fail",
        ),
        ("cache", {"exists": False, "files": 0, "bytes": 0}, "compile cache warm", "fail"),
        ("cache", {**CACHE, "kinds": {"fxgraph": {"files": 0}}}, "compile cache warm", "degraded"),
        ("cache", {**CACHE, "newest": "2026-10-01T00:00:00Z"}, "compile cache warm", "degraded"),
        ("cache", None, "compile cache warm", "unknown"),
        ("training_log__tok_per_s", [1000.0, 390.0, 390.0, 390.0], "training throughput", "fail"),
        ("training_log__tok_per_s", [500.0], "training throughput", "degraded"),
        ("training_log__tok_per_s", [800.0, 1.0, 800.0], "training throughput", "pass"),
        ("training_log__tok_per_s", [], "training throughput", "unknown"),
        ("training_log", {"exists": False}, "training throughput", "unknown"),
        ("training_log", {"exists": False}, "no errors in the training log", "pass"),
        ("training_log__error_lines", ["RuntimeError: x"], "no errors in the training log", "fail"),
        ("packages__created_at", "2026-12-01T00:00:00Z", "training throughput", "unknown"),
    ],
)
def test_each_symptom_is_named(path, value, check, status):
    found = next(c for c in symptoms(changed(path, value), TARGET) if c.name == check)
    assert found.status == status
    assert (found.meaning == "") == (status == "pass")


def test_the_throughput_is_a_ratio_of_the_baseline_or_of_the_logs_own_best():
    by_name = {c.name: c for c in symptoms(changed("training_log__tok_per_s", [200.0]), TARGET)}
    assert by_name["training throughput"].measured == "200 tok/s: 20% of 1000"
    facts = {**changed("training_log__tok_per_s", [2000.0] * 10 + [200.0] * 10), "baselines": []}
    by_name = {c.name: c for c in symptoms(facts, TARGET)}
    assert by_name["training throughput"].measured == "200 tok/s: 10% of 2000"
    assert "no baseline" in by_name["training throughput"].source


def test_facts_that_lack_anything_are_never_an_exception():
    for facts in cut_everywhere(FACTS):
        found = [*judge({"facts": facts}, TARGET).checks, *symptoms(facts, TARGET)]
        json.dumps([check.model_dump(mode="json") for check in found], allow_nan=False)


def test_no_evidence_at_all_is_unknown():
    assert {c.status for c in judge({}, TARGET).checks} == {Status.UNKNOWN}
    assert {c.status for c in symptoms({}, TARGET)} == {Status.UNKNOWN}
