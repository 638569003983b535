"""The judge of stage 10, on evidence as it comes and on evidence that lacks anything at all."""

import json

import pytest

from helpers.judge.environment import findings, judge
from helpers.verdict import Status
from tests.testbed.evidence import cut_everywhere
from tests.testbed.rooms import make_target

TARGET = make_target("/c", environment={"python": "3.11"})
ANSWER = {"ok": True, "said": "/c/venv.set-aside-r"}
CHECKED = {
    "path": "/c/venv.set-aside-r",
    "python": ANSWER,
    "pip": ANSWER,
    "activate": ANSWER,
    "scripts": [{"script": "tool-a", **ANSWER}],
    "still_mention_old": [],
}
VENV = {
    "path": "/c/venv",
    "exists": True,
    "python": {"version": "3.11.7", "error": None},
    "packages": [{"name": "tool-a", "version": "2.0"}, {"name": "tool-b", "version": "1"}],
    "foreign_scripts": [],
}
COMPARISON = {"missing": [], "drifted": [], "forbidden": [], "extra": [], "conflicts": []}
EVIDENCE = {
    "facts": {"venv": VENV, "comparison": COMPARISON, "rebuild_because": ["forbidden: intruder 3"]},
    "measured": {
        "venv": VENV,
        "comparison": COMPARISON,
        "pip_check": {"by": "uv pip check", "ok": True, "lines": []},
        "lock": {"kept": "10_environment.lock.txt", "packages": 2},
        "old": {
            "path": "/c/venv.set-aside-r",
            "freeze": {"kept": "10_environment.old-freeze.txt"},
            "check_before": CHECKED,
            "check": CHECKED,
        },
    },
}


def judged(evidence=EVIDENCE, **changes):
    evidence = json.loads(json.dumps(evidence))  # nothing shared between its parts
    for path, value in changes.items():
        *parents, last = path.split("__")
        inside = evidence
        for key in parents:
            inside = inside[key]
        inside[last] = value
    return judge(evidence, TARGET)


def test_a_rebuilt_environment_passes():
    assert {c.status for c in judged().checks} == {Status.PASS}
    assert all(c.expected and c.source for c in judged().checks)


@pytest.mark.parametrize(
    ("path", "value", "check", "status"),
    [
        (
            "measured__venv__python",
            {"version": None, "error": "exit code 1"},
            "environment runs",
            "fail",
        ),
        ("measured__venv__exists", False, "environment runs", "fail"),
        ("measured__venv__python", {"version": "3.12.1", "error": None}, "python version", "fail"),
        ("measured__venv__python", {"version": "3.1.7", "error": None}, "python version", "fail"),
        ("measured__venv__packages", [], "package tool-a", "fail"),
        (
            "measured__venv__packages",
            [{"name": "tool-a", "version": "1.0"}],
            "package tool-a",
            "fail",
        ),
        (
            "measured__venv__packages",
            [{"name": "tool-a", "version": "2.0+cpu"}],
            "package tool-a",
            "pass",
        ),
        (
            "measured__venv__packages",
            [{"name": "intruder", "version": "3"}],
            "nothing forbidden",
            "fail",
        ),
        ("measured__venv__packages", None, "nothing forbidden", "unknown"),
        ("measured__comparison__extra", ["stowaway 1.0"], "nothing extra", "fail"),
        ("measured__comparison", None, "nothing extra", "unknown"),
        (
            "measured__venv__foreign_scripts",
            [{"script": "pip"}],
            "scripts start this environment",
            "fail",
        ),
        (
            "measured__pip_check",
            {"by": "uv pip check", "ok": False, "lines": ["a needs b"]},
            "packages fit together",
            "fail",
        ),
        (
            "measured__pip_check",
            {"by": "metadata", "ok": None, "lines": []},
            "packages fit together",
            "unknown",
        ),
        ("measured__lock", None, "lock kept", "unknown"),
        (
            "measured__old__check__pip",
            {"ok": False, "said": "from /c/venv/lib"},
            "old environment works",
            "fail",
        ),
        (
            "measured__old__check__scripts",
            [{"script": "x", "ok": False, "said": ""}],
            "old environment works",
            "fail",
        ),
        ("measured__old__check", None, "old environment works", "unknown"),
        ("measured__old__freeze", None, "old freeze kept", "unknown"),
    ],
)
def test_what_is_wrong_is_found(path, value, check, status):
    found = judged(**{path: value})[check]
    assert found.status == status
    assert (found.meaning == "") == (status == "pass")


def test_what_did_not_work_before_is_no_fault_of_the_rename():
    broken = {**CHECKED, "pip": {"ok": False, "said": "No module named pip"}}
    verdict = judged(measured__old={"path": "/c/a", "check_before": broken, "check": broken})
    assert verdict["old environment works"].status is Status.DRIFT
    assert verdict["old environment works"].measured["never_worked"] == ["pip"]


def test_nothing_to_change_needs_no_old_environment():
    verdict = judged(measured__old=None)
    assert verdict.status is Status.PASS
    assert "old environment works" not in [c.name for c in verdict.checks]


def test_without_measurement_the_facts_are_judged_and_the_rest_is_unknown():
    verdict = judged(measured=None)
    unknown = {c.name for c in verdict.checks if c.status is Status.UNKNOWN}
    assert unknown == {
        "packages fit together",
        "lock kept",
        "old environment works",
        "old freeze kept",
    }
    assert verdict["package tool-a"].status is Status.PASS


def test_evidence_that_lacks_anything_is_never_an_exception():
    for evidence in cut_everywhere(EVIDENCE):
        json.dumps(judge(evidence, TARGET).model_dump(mode="json"), allow_nan=False)


def test_no_evidence_at_all_is_unknown():
    assert {c.status for c in judge({}, TARGET).checks} == {Status.UNKNOWN}


CUT_SHORT = {"path": "/c/venv.set-aside-k", "left": ["bin/tool-a", "bin/tool-b"], "error": None}
FINISHED = {"path": "/c/venv.set-aside-k", "rewritten": ["bin/tool-a"], "check": CHECKED}


@pytest.mark.parametrize(
    ("changes", "check", "status"),
    [
        ({"unfinished": [CUT_SHORT]}, "set aside to the end", Status.FAIL),
        (
            {"unfinished": [CUT_SHORT | {"left": [], "error": "?"}]},
            "set aside to the end",
            "unknown",
        ),
        ({"finished": [FINISHED]}, "works aside: venv.set-aside-k", Status.PASS),
        (
            {"finished": [FINISHED | {"check": CHECKED | {"pip": {"ok": False, "said": "?"}}}]},
            "works aside: venv.set-aside-k",
            Status.DRIFT,
        ),
        ({"finished": [FINISHED | {"check": None}]}, "works aside: venv.set-aside-k", "unknown"),
    ],
)
def test_what_was_not_set_aside_to_the_end(changes, check, status):
    measured = {**EVIDENCE["measured"], **changes}
    measured["venv"] = {**VENV, "unfinished": changes.get("unfinished", [])}
    evidence = {**EVIDENCE, "measured": measured}
    assert judge(evidence, TARGET)[check].status == status
    assert judge(evidence, TARGET).status == status
    for damaged in cut_everywhere({"measured": {**changes, "venv": measured["venv"]}}):
        judge(damaged, TARGET)


def test_what_the_facts_say_was_not_set_aside_to_the_end():
    (found,) = findings({"venv": {**VENV, "unfinished": [CUT_SHORT]}}, TARGET)
    assert found.status is Status.FAIL
    assert found.measured == ["/c/venv.set-aside-k: 2 files"]
    assert findings({"venv": {**VENV, "unfinished": []}}, TARGET) == []
    assert findings({}, TARGET)[0].status is Status.UNKNOWN
