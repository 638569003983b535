"""Where the judge of stage 30 draws its lines: just inside, just outside, not known."""

import copy
import math

import pytest

from helpers.judge.verify_torch import judge as judge_torch
from helpers.verdict import Status
from tests.unit.test_judge_verify_torch import evidence as torch_evidence
from tests.unit.test_judge_verify_torch import gpu
from tests.unit.test_judge_verify_torch import target as torch_target

S = Status
F32, F64, BF16, TF32 = 2.0**-23, 2.0**-52, 2.0**-7, 2.0**-10


def above(value):
    return math.nextafter(value, math.inf)


@pytest.mark.parametrize(
    ("dtype", "precision", "size", "limit"),
    [
        ("float32", "highest", 256, 34 * F32),
        ("float32", "highest", 1024, 66 * F32),
        ("float32", None, 256, 34 * F32),
        ("float32", "a new word", 256, 34 * F32),
        ("float32", "high", 256, 34 * TF32),
        ("float32", "medium", 256, 32 * F32 + 2 * BF16),
        ("float64", "medium", 256, 34 * F64),
        ("bfloat16", "high", 256, 32 * F32 + 2 * BF16),
        ("float32", "highest", None, 34 * F32),
    ],
)
def test_a_product_may_be_off_by_its_rounding_errors_and_no_more(dtype, precision, size, limit):
    for error, status in (
        (limit, S.PASS),
        (above(limit), S.FAIL),
        (None, S.UNKNOWN),
        (0.0, S.PASS),
    ):
        products = copy.deepcopy(gpu()["matmul"])
        next(p for p in products if p["dtype"] == dtype)["max_relative_error"] = error
        whole = torch_evidence(
            devices=[gpu(matmul=products)],
            float32_matmul_precision=precision,
            params={"matmul_size": size},
        )
        assert judge_torch(whole, torch_target())[f"cuda:0 product {dtype}"].status is status


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_a_product_that_was_not_made_is_unknown_and_one_that_failed_fails(dtype):
    rest = [p for p in gpu()["matmul"] if p["dtype"] != dtype]
    name = f"cuda:0 product {dtype}"
    found = judge_torch(torch_evidence(devices=[gpu(matmul=rest)]), torch_target())
    assert found[name].status is S.UNKNOWN
    failed = {"dtype": dtype, "max_relative_error": 0.0, "error": "RuntimeError: no kernel"}
    found = judge_torch(torch_evidence(devices=[gpu(matmul=[*rest, failed])]), torch_target())
    assert found[name].status is S.FAIL
    assert "no kernel" in found[name].meaning


@pytest.mark.parametrize("part", ["value", "gradient_x", "gradient_weight"])
def test_a_compiled_function_may_be_off_by_its_rounding_errors_and_no_more(part):
    limit = 960 * F32
    for error, status in ((limit, S.PASS), (above(limit), S.FAIL), (None, S.UNKNOWN)):
        device = gpu()
        device["compiled"]["max_relative_error"][part] = error
        found = judge_torch(torch_evidence(devices=[device]), torch_target())
        assert found[f"cuda:0 compiled {part.replace('_', ' ')}"].status is status
        assert found.status is status


@pytest.mark.parametrize(
    ("compiled", "status"),
    [
        ({"compiled": True, "graphs": 1, "graph_breaks": 0}, S.PASS),
        ({"compiled": False, "graphs": 1, "graph_breaks": 0}, S.FAIL),
        ({"compiled": None, "graphs": 1, "graph_breaks": 0}, S.FAIL),
        ({"compiled": True, "graphs": 1, "graph_breaks": 1}, S.FAIL),
        ({"compiled": True, "graphs": 1, "graph_breaks": None}, S.UNKNOWN),
        ({"compiled": True, "graphs": None, "graph_breaks": 0}, S.UNKNOWN),
    ],
)
def test_the_function_was_compiled_whole(compiled, status):
    device = gpu()
    device["compiled"] |= compiled
    found = judge_torch(torch_evidence(devices=[device]), torch_target())
    assert found["cuda:0 compiled"].status is status
    assert found.status is status


def test_nothing_compiled_is_unknown():
    found = judge_torch(torch_evidence(devices=[gpu(compiled=None)]), torch_target())
    assert found["cuda:0 compiled"].status is S.UNKNOWN


@pytest.mark.parametrize("where", ["watchdog", "signal", "measure", "document", "devices[0]"])
def test_what_ended_it_early_leaves_the_rest_unknown(where):
    errors = [{"where": where, "type": "SIGTERM", "message": "ended after 3 s"}]
    found = judge_torch(torch_evidence(errors=errors), torch_target())
    assert found.status is (S.PASS if where == "devices[0]" else S.UNKNOWN)
    if found.status is S.UNKNOWN:
        assert "SIGTERM: ended after 3 s" in found["measured to the end"].meaning


@pytest.mark.parametrize(
    ("available", "count", "computed", "status"),
    [
        (True, 2, 2, S.PASS),
        (True, 2, 1, S.UNKNOWN),
        (True, 3, 1, S.UNKNOWN),
        (True, 1, 2, S.PASS),
        (False, 2, 1, S.PASS),  # without CUDA the one device is the CPU
    ],
)
def test_every_device_has_to_compute(available, count, computed, status):
    devices = [gpu(device=f"cuda:{i}") for i in range(computed)]
    whole = torch_evidence(available=available, device_count=count, devices=devices)
    found = judge_torch(whole, torch_target(available=available, device_count=count))
    assert found.status is status, found.deciding


@pytest.mark.parametrize(("listed", "status"), [(True, S.PASS), (None, S.PASS), (False, S.DRIFT)])
def test_only_an_architecture_that_is_known_to_be_missing_is_told(listed, status):
    found = judge_torch(torch_evidence(devices=[gpu(arch_listed=listed)]), torch_target())
    assert found.status is status


def test_a_torch_whose_import_is_not_known_is_unknown():
    found = judge_torch(torch_evidence(imported=None), torch_target())
    assert found["torch CUDA"].status is S.UNKNOWN
    assert "import torch" not in [check.name for check in found.checks]


@pytest.mark.parametrize(
    ("version", "status"),
    [("3.11.9 (main)", S.PASS), ("3.1.1", S.FAIL), ("3.12.0", S.FAIL), ("", S.UNKNOWN)],
)
def test_python_by_its_first_two_numbers(version, status):
    found = judge_torch(torch_evidence(python={"version": version}), torch_target())
    assert found["Python version"].status is status
