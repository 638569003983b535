"""What torch says of itself, and whether its numbers are right, on a real torch."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.payloads.conftest import captured, differences, sent

pytestmark = pytest.mark.torch


def ask(python, code: str):
    """What torch answers when it is asked directly."""
    done = subprocess.run([python, "-c", f"import json, torch; print(json.dumps({code}))"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def verified(torch_python, tmp_path_factory):
    """One whole run, with a training cache and a home that must stay as they are."""
    home = tmp_path_factory.mktemp("home")
    cache = home / "cache"
    cache.mkdir()
    (cache / "entry").write_text("of training")
    (home / "tmp").mkdir()
    got = sent("verify_torch", {}, python=torch_python, env={
        "HOME": str(home), "TMPDIR": str(home / "tmp"), "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "XDG_CACHE_HOME": str(home / "xdg"),
    })  # fmt: skip
    assert got.code == 0
    return got, {str(p.relative_to(home)) for p in home.rglob("*")}


def test_says_what_torch_says(verified, torch_python):
    measured = verified[0].measured
    asked = {
        "version": "torch.__version__",
        "cuda": "torch.version.cuda",
        "git_version": "torch.version.git_version",
        "available": "torch.cuda.is_available()",
        "device_count": "torch.cuda.device_count()",
        "file": "torch.__file__",
        "arch_list": "torch.cuda.get_arch_list()",
    }
    expected = ask(torch_python, f"[{', '.join(asked.values())}]")
    assert [measured[name] for name in asked] == expected
    assert measured["version_line"] == f"{measured['version']} {measured['cuda']}"
    assert measured["devices_line"] == f"{measured['available']} {measured['device_count']}"
    assert measured["imported"]
    assert measured["import_s"] > 0
    assert "PyTorch built with" in measured["build_config"]
    assert {"torch", "numpy"} <= {package["name"] for package in measured["packages"]}
    assert verified[0].document["errors"] == []
    for name in ("verify_torch", "verify_torch_h200"):
        assert differences(measured, captured(name)) == []


def test_it_leaves_nothing_behind(verified):
    assert verified[1] == {"cache", "cache/entry", "tmp"}


def test_numbers_are_right(verified):
    device = verified[0].measured["devices"][0]
    errors = {entry["dtype"]: entry["max_relative_error"] for entry in device["matmul"]}
    # Not zero: the reference is summed up in another order than any library's.
    assert 0 < errors["float64"] < 1e-13
    assert errors["float64"] < errors["float32"] < 1e-5
    assert errors["float32"] < errors["bfloat16"] < 2e-2


def test_a_function_in_a_sent_payload_is_really_compiled(verified):
    compiled = verified[0].measured["devices"][0]["compiled"]
    assert compiled["compiled"]
    assert (compiled["graphs"], compiled["graph_breaks"]) == (1, 0)
    assert compiled["second_call_s"] < compiled["compile_s"] / 10
    assert set(compiled["max_relative_error"]) == {"value", "gradient_x", "gradient_weight"}
    assert all(0 < error < 1e-4 for error in compiled["max_relative_error"].values())


def test_a_device_that_is_not_there_leaves_the_others(torch_python):
    if ask(torch_python, "torch.cuda.is_available()"):
        pytest.fail("this test wants a machine without a GPU")
    got = sent("verify_torch", {"devices": ["cuda:0", "cpu"], "compile": False, "matmul_size": 64},
               python=torch_python)  # fmt: skip
    assert got.code == 0
    gpu, cpu = got.measured["devices"]
    assert gpu["error"]
    assert gpu["matmul"] == []
    assert len(cpu["matmul"]) == 3
    assert [e["where"] for e in got.document["errors"]] == ["cuda:0"]


def test_wrong_numbers_are_seen(torch_python, tmp_path):
    # A library that multiplies a little wrong, put there the way a polluted environment does it.
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.abc, sys\n"
        "class Finder(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'torch.testing' and 'torch' in sys.modules:\n"
        "            import torch\n"
        "            right = torch.Tensor.__matmul__\n"
        "            torch.Tensor.__matmul__ = lambda a, b: right(a, b) * 1.001\n"
        "            sys.meta_path.remove(self)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    got = sent("verify_torch", {"compile": False, "matmul_size": 64}, python=torch_python,
               env={"PYTHONPATH": str(tmp_path)})  # fmt: skip
    errors = {e["dtype"]: e["max_relative_error"] for e in got.measured["devices"][0]["matmul"]}
    assert errors["float64"] == pytest.approx(1e-3, rel=0.01)


@pytest.mark.parametrize(
    "fault", ["raise ImportError('libcudart.so.12: cannot open shared object file')", None]
)
def test_torch_that_cannot_be_imported(fault, tmp_path):
    if fault:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text(f"{fault}\n")
    got = sent("verify_torch", {}, python=sys.executable, env={"PYTHONPATH": str(tmp_path)})
    assert got.code == 0
    assert got.measured["imported"] is False
    assert ("libcudart" if fault else "No module named 'torch'") in got.measured["import_error"]
    assert got.measured["version_line"] is None
    assert got.document["errors"][0]["where"] == "import torch"
