"""The judge of stage 20, on evidence as it comes and on evidence that lacks anything at all."""

import json

import pytest

from helpers.judge.sources import judge
from helpers.verdict import Status
from tests.testbed.evidence import cut_everywhere
from tests.testbed.rooms import make_target

GOOD, OTHER = "a" * 64, "b" * 64
MD5 = "c" * 32
TARGET = make_target(
    "/c",
    sources={"files": [{"path": "model.py", "md5": MD5}, {"path": "start.sh", "mode": "0755"}]},
)


def deployed(path, mode="0644", sha256=GOOD, md5=MD5, tampering=()):
    hashes = {"sha256": sha256, "md5": md5}
    return {"path": path, "exists": True, **hashes, "mode": mode, "tampering": list(tampering)}


HACK = {"line": 4, "text": "trace.is_fx_symbolic_tracing = lambda: False"}
EVIDENCE = {
    "facts": {
        "commit": "d" * 40,
        "dirty_files": [],
        "files": [
            {
                "path": "model.py",
                "sha256_at_ref": GOOD,
                "deployed": deployed("model.py", sha256=OTHER, tampering=[HACK]),
            },
            {"path": "start.sh", "sha256_at_ref": GOOD, "deployed": deployed("start.sh", "0755")},
        ],
        "undeclared": [],
    },
    "measured": {
        "scripts": {
            "files": [deployed("model.py"), deployed("start.sh", "0755")],
            "undeclared": [],
        },
        "commit": "d" * 40,
    },
}


def judged(*path, value):
    evidence = json.loads(json.dumps(EVIDENCE))
    inside = evidence
    for key in path[:-1]:
        inside = inside[key]
    inside[path[-1]] = value
    return judge(evidence, TARGET)


def test_restored_scripts_pass():
    verdict = judge(EVIDENCE, TARGET)
    assert {c.status for c in verdict.checks} == {Status.PASS}
    assert all(c.expected and c.source for c in verdict.checks)


@pytest.mark.parametrize(
    ("path", "value", "check", "status"),
    [
        (
            ("measured", "scripts", "files", 0),
            deployed("model.py", sha256=OTHER),
            "model.py content",
            "fail",
        ),
        (
            ("measured", "scripts", "files", 0),
            deployed("model.py", mode="0600"),
            "model.py mode",
            "fail",
        ),
        (
            ("measured", "scripts", "files", 0),
            deployed("model.py", md5="0" * 32),
            "model.py declared md5",
            "fail",
        ),
        (
            ("measured", "scripts", "files", 0),
            deployed("model.py", tampering=[HACK]),
            "torch's guards left alone",
            "fail",
        ),
        (
            ("measured", "scripts", "files", 0),
            {"path": "model.py", "exists": False},
            "model.py content",
            "fail",
        ),
        (
            ("measured", "scripts", "files", 0),
            {"path": "model.py", "exists": False},
            "model.py mode",
            "fail",
        ),
        (("measured", "scripts", "files", 0, "sha256"), None, "model.py content", "unknown"),
        (
            ("measured", "scripts", "files", 0, "tampering"),
            None,
            "torch's guards left alone",
            "unknown",
        ),
        (("measured", "scripts"), None, "model.py content", "unknown"),
        (("measured", "scripts"), None, "torch's guards left alone", "unknown"),
        (
            ("measured", "scripts", "undeclared"),
            [deployed("fix.py", tampering=[HACK])],
            "no override in other files",
            "drift",
        ),
        (("facts", "dirty_files"), ["model.py"], "working tree clean", "drift"),
        (("facts", "dirty_files"), None, "working tree clean", "pass"),
        (("facts", "commit"), None, "commit found", "unknown"),
        (("facts", "files", 0, "sha256_at_ref"), None, "model.py content", "unknown"),
        (("measured",), None, "model.py content", "fail"),
        (("measured",), None, "start.sh content", "pass"),
        (("measured",), None, "torch's guards left alone", "fail"),
    ],
)
def test_what_is_wrong_is_found(path, value, check, status):
    found = judged(*path, value=value)[check]
    assert found.status == status
    assert (found.meaning == "") == (status == "pass")


def test_the_hack_is_named_with_its_line():
    verdict = judged("measured", value=None)
    assert verdict["torch's guards left alone"].measured == [f"model.py:4: {HACK['text']}"]


def test_evidence_that_lacks_anything_is_never_an_exception():
    for evidence in cut_everywhere(EVIDENCE):
        json.dumps(judge(evidence, TARGET).model_dump(mode="json"), allow_nan=False)


def test_no_evidence_at_all_is_unknown():
    assert {c.status for c in judge({}, TARGET).checks} == {Status.UNKNOWN}
