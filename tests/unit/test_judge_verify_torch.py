"""Judge of stage 30, over a captured measurement, altered ones, and ones with parts missing."""

import copy

import pytest

from helpers.judge.verify_torch import judge
from helpers.verdict import Status
from tests.unit import captured

S = Status


def target(**torch):
    return captured.target(torch=torch)


def evidence(**changed):
    return {
        "facts": {"torch": "2.13.0+cpu"},
        "measured": captured.measured("verify_torch") | changed,
    }


def gpu(**changed):
    """One GPU as the payload describes it on an H200."""
    device = captured.measured("verify_torch")["devices"][0]
    told = {"device": "cuda:0", "name": "NVIDIA H200", "capability": [9, 0], "arch": "sm_90"}
    return copy.deepcopy(device) | told | {"arch_listed": True} | changed


def test_the_captured_environment_passes():
    found = judge(evidence(), target())
    assert found.status is S.PASS, found.deciding
    assert all(check.expected and check.source for check in found.checks)


@pytest.mark.parametrize(
    ("torch", "check", "status"),
    [
        ({"version": "2.11.0+cu128"}, "torch version", S.FAIL),
        ({"cuda": "12.8"}, "torch CUDA", S.FAIL),
        ({"available": True}, "CUDA available", S.FAIL),
        ({"device_count": 8}, "device count", S.FAIL),
        ({"git_version": "0" * 40}, "torch git version", S.FAIL),
        ({"git_version": "cf30153c4c131c8164ee7798e5022d810682e2cb"}, "torch git version", S.PASS),
    ],
)
def test_what_torch_says_is_held_against_the_target(torch, check, status):
    assert judge(evidence(), target(**torch))[check].status is status


def test_the_true_case_passes_with_its_own_numbers():
    """2.11.0+cu128 12.8 / True 8, as the check by hand printed it."""
    found = judge(
        evidence(
            version="2.11.0+cu128",
            cuda="12.8",
            available=True,
            device_count=8,
            devices=[gpu(device=f"cuda:{i}") for i in range(8)],
        ),
        target(version="2.11.0+cu128", cuda="12.8", available=True, device_count=8),
    )
    assert found.status is S.PASS, found.deciding


def test_an_h200_computes_right():
    measured = captured.handed_on(captured.h200("verify_torch"))
    declared = captured.target(
        environment={"python": "3.12"},
        torch={
            "version": "2.11.0+cu130",
            "cuda": "13.0",
            "available": True,
            "device_count": 1,
            "git_version": "70d99e998b4955e0049d13a98d77ae1b14db1f45",
        },
    )
    found = judge({"measured": measured}, declared)
    assert found.status is S.PASS, found.deciding
    assert found["cuda:0 product float32"].measured < 1e-6


def test_another_python_fails():
    assert (
        judge(evidence(python={"version": "3.12.1 (main)"}), target())["Python version"].status
        is S.FAIL
    )


def test_torch_that_cannot_be_imported_fails_with_its_error():
    error = "ImportError: libcudart.so.12: cannot open shared object file"
    found = judge(evidence(imported=False, import_error=error, devices=None), target())
    assert found.status is S.FAIL
    assert error in found.deciding.meaning


def test_nothing_measured_is_unknown_but_a_wrong_installed_version_is_not():
    facts = {"facts": {"torch": "2.13.0+cpu"}, "measured": None}
    assert judge(facts, target()).status is S.UNKNOWN
    assert judge(facts, target())["torch version"].status is S.PASS
    assert judge(facts, target(version="2.11.0"))["torch version"].status is S.FAIL
    assert judge({}, target()).status is S.UNKNOWN


@pytest.mark.parametrize(
    ("dtype", "error", "precision", "status"),
    [
        ("float32", 3.2e-7, "highest", S.PASS),
        ("float32", 5e-4, "highest", S.FAIL),  # what TF32 gives when it was not asked for
        ("float32", 5e-4, "high", S.PASS),
        ("float32", 4e-3, "medium", S.PASS),
        ("float64", 1.3e-15, "highest", S.PASS),
        ("float64", 3.2e-7, "highest", S.FAIL),
        ("bfloat16", 3.1e-3, "highest", S.PASS),
        ("bfloat16", 5e-2, "highest", S.FAIL),
        ("float32", None, "highest", S.UNKNOWN),
    ],
)
def test_products_are_judged_by_what_their_dtype_can_do(dtype, error, precision, status):
    device = gpu(matmul=[{"dtype": dtype, "max_relative_error": error, "error": None}])
    found = judge(evidence(devices=[device], float32_matmul_precision=precision), target())
    assert found[f"cuda:0 product {dtype}"].status is status


@pytest.mark.parametrize(
    ("compiled", "status"),
    [
        ({}, S.PASS),
        ({"error": "InvalidCxxCompiler: No working C++ compiler found"}, S.FAIL),
        ({"graphs": 0, "compiled": False}, S.FAIL),
        ({"graph_breaks": 2}, S.FAIL),
        ({"graphs": None}, S.UNKNOWN),
        (
            {"max_relative_error": {"value": 1e-7, "gradient_x": 0.03, "gradient_weight": 1e-6}},
            S.FAIL,
        ),
        ({"max_relative_error": None}, S.UNKNOWN),
    ],
)
def test_the_compiled_function(compiled, status):
    device = gpu()
    device["compiled"] |= compiled
    assert judge(evidence(devices=[device]), target()).status is status


def test_one_bad_device_of_eight_is_named():
    devices = [gpu(device=f"cuda:{i}") for i in range(8)]
    devices[5]["error"] = "RuntimeError: CUDA error: an illegal memory access was encountered"
    found = judge(evidence(devices=devices, device_count=8), target(device_count=8))
    assert found.status is S.FAIL
    assert found.deciding.name == "cuda:5"


def test_a_gpu_served_through_ptx_is_a_drift():
    found = judge(evidence(devices=[gpu(arch_listed=False)]), target())
    assert found.status is S.DRIFT


def test_losing_any_part_of_the_evidence_never_raises_and_never_passes_unseen():
    whole = evidence()
    judged = ("version", "available", "device_count", "python", "devices", "imported")
    for where, lost in captured.losses(whole):
        found = judge(lost, target())
        if where[0] == "measured" and len(where) == 2 and where[1] in judged:
            assert found.status is not S.PASS or where[1] == "version", where
