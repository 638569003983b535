"""The read-only look, at real environments, real processes and real files."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import sys
from pathlib import Path

import pytest

from tests.payloads.conftest import (
    PAYLOADS,
    by_hand,
    captured,
    differences,
    look,
    pythons,
    sent,
    tree_hash,
)

SECTIONS = ["machine", "venv", "scripts", "cache", "pip_settings", "training_log"]


@pytest.fixture
def everything(venv, tmp_path):
    """Parameters for all sections, over files that exist."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "model.py").write_text("x = 1\n")
    (tmp_path / "cache").mkdir()
    (tmp_path / "training.log").write_text("tok_per_s=1\n")
    (tmp_path / "marker").write_text("the-one\n")
    return {
        "sections": SECTIONS,
        "marker_file": str(tmp_path / "marker"),
        "disk_paths": [str(tmp_path)],
        "venv": str(venv),
        "deploy_to": str(tmp_path / "scripts"),
        "files": ["model.py"],
        "cache": str(tmp_path / "cache"),
        "log": str(tmp_path / "training.log"),
        "throughput_pattern": r"tok_per_s=(?P<tok_per_s>[0-9.]+)",
    }


@pytest.mark.parametrize("python", pythons(), ids=lambda python: Path(python).parts[-3])
def test_every_section_on_every_python(everything, python):
    got = sent("inventory", everything, python=python)
    assert got.code == 0
    assert got.document["errors"] == []
    assert list(got.measured) == SECTIONS
    assert [step["section"] for step in got.progress] == SECTIONS
    assert len(got.measured["venv"]["packages"]) == 2
    assert differences(got.measured, captured("inventory")) == []


def test_by_hand_says_the_same(everything):
    everything["sections"] = ["venv", "scripts"]
    by = by_hand(PAYLOADS / "inventory.py", everything)
    assert by.measured == sent("inventory", everything).measured


def test_it_changes_nothing(everything, tmp_path, venv):
    before = tree_hash(tmp_path), tree_hash(venv.parent)
    assert (
        sent("inventory", everything, env={"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}).code
        == 0
    )
    assert (tree_hash(tmp_path), tree_hash(venv.parent)) == before


def test_a_section_that_fails_leaves_the_others(everything):
    everything["throughput_pattern"] = "(broken"
    del everything["cache"]
    got = sent("inventory", everything)
    assert got.code == 0
    assert got.measured["training_log"] is None
    assert got.measured["cache"] is None
    assert got.measured["scripts"]["files"][0]["exists"]
    problems = {e["where"]: e["message"] for e in got.document["errors"]}
    assert set(problems) == {"training_log", "cache"}
    assert "needs the parameter cache" in problems["cache"]


def test_an_unknown_section_is_refused():
    assert sent("inventory", {"sections": ["weather"]}).code == 2


def test_machine(tmp_path):
    (tmp_path / "marker").write_text("  the-one\n")
    machine = look(
        "machine",
        marker_file=str(tmp_path / "marker"),
        disk_paths=[str(tmp_path / "not" / "there")],
    )
    assert machine["hostname"] == socket.gethostname()
    assert machine["marker"] == "the-one"
    assert machine["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert machine["cores"] == len(os.sched_getaffinity(0))
    assert machine["os_release"]["ID"]
    assert 0 < machine["memory_available_bytes"] < machine["memory_total_bytes"]
    (disk,) = machine["disk"]
    assert disk["measured_at"] == str(tmp_path)
    assert 0 < disk["free_bytes"] <= disk["total_bytes"] == shutil.disk_usage(tmp_path).total
    (compiler,) = [c for c in machine["compilers"] if c["path"].endswith("/g++")]
    assert compiler["version"].startswith("g++")


def test_machine_without_its_marker(tmp_path):
    machine = look("machine", marker_file=str(tmp_path / "marker"))
    assert machine["marker"] is None


def program(folder: Path, name: str, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    (folder / name).chmod(0o755)


def test_pythons_that_lack_ensurepip_or_do_not_start(tmp_path):
    folder = tmp_path / "bin"
    program(folder, "python3.9", "#!/bin/sh\nexit 7\n")
    # Debian without python3-venv: the interpreter is there and ensurepip is not.
    hide = "import sys; sys.modules['ensurepip'] = None; exec(sys.argv[1])"
    program(folder, "python3", f'#!/bin/sh\nexec {sys.executable} -c "{hide}" "$4"\n')
    program(folder, "uv", '#!/bin/sh\necho "uv 0.1.2"\n')
    got = sent("inventory", {"sections": ["machine"]}, env={"PATH": str(folder)})
    found = {python["path"]: python for python in got.measured["machine"]["pythons"]}
    broken, lacking = found[f"{folder}/python3.9"], found[f"{folder}/python3"]
    assert broken["version"] is None
    assert broken["error"].startswith("exit code 7")
    assert lacking["version"] == "{}.{}.{}".format(*sys.version_info)
    assert lacking["ensurepip"] is False
    assert "ModuleNotFoundError" in lacking["error"]
    assert {"path": f"{folder}/uv", "version": "uv 0.1.2", "error": None} in got.measured[
        "machine"
    ]["uv"]


TAMPERED = """
import torch
from unittest import mock
# torch.fx._symbolic_trace.is_fx_symbolic_tracing = lambda: False
if torch.fx._symbolic_trace.is_fx_symbolic_tracing():
    print("is_fx_symbolic_tracing = False")
same = torch._dynamo.config.error_on_nested_fx_trace == False
torch.fx._symbolic_trace.is_fx_symbolic_tracing = lambda: False
torch._dynamo.config.error_on_nested_fx_trace = False
setattr(torch.fx._symbolic_trace, "is_fx_symbolic_tracing", bool)
mock.patch("torch.fx._symbolic_trace.is_fx_symbolic_tracing", bool).start()
torch._dynamo.config.patch(error_on_nested_fx_trace=False)
a, torch.fx._symbolic_trace._is_fx_tracing_flag = 1, False
vars(torch._dynamo.config)["error_on_nested_fx_trace"] = False
def is_fx_symbolic_tracing():
    return False
"""


def test_scripts(tmp_path):
    (tmp_path / "model.py").write_text(TAMPERED)
    (tmp_path / "start.sh").write_text("#!/bin/sh\n")
    (tmp_path / "start.sh").chmod(0o755)
    (tmp_path / "extra.py").write_text("error_on_nested_fx_trace = (\n")  # cannot be parsed
    found = look("scripts", deploy_to=str(tmp_path), files=["model.py", "start.sh", "missing.py"])
    model, start, missing = found["files"]
    assert model["sha256"] == hashlib.sha256(TAMPERED.encode()).hexdigest()
    assert model["md5"] == hashlib.md5(TAMPERED.encode()).hexdigest()
    assert model["bytes"] == len(TAMPERED)
    assert [mark["line"] for mark in model["tampering"]] == [8, 9, 10, 11, 12, 13, 14, 15]
    assert model["tampering"][0]["text"] == TAMPERED.splitlines()[7]
    assert start["mode"] == "0755"
    assert start["tampering"] == []
    assert missing == {"path": "missing.py", "exists": False}
    (extra,) = found["undeclared"]
    assert (extra["path"], extra["tampering"][0]["line"]) == ("extra.py", 1)


def test_scripts_folder_that_is_not_there(tmp_path):
    found = look("scripts", deploy_to=str(tmp_path / "none"), files=["model.py"])
    assert not found["exists"]
    assert found["files"] == [{"path": "model.py", "exists": False}]


def test_cache(tmp_path):
    cache = tmp_path / "torchinductor"
    sizes = {"fxgraph/ab/key/entry": 10, "aotautograd/key/entry": 20, "triton/0/k.cubin": 5,
             "ab/kernel.so": 7, "ab/kernel.main.cpp": 3, "locks/x.lock": 1}  # fmt: skip
    for name, size in sizes.items():
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_bytes(b"x" * size)
    os.utime(cache / "ab/kernel.so", (1_000_000_000, 1_000_000_000))
    shutil.copytree(cache, tmp_path / "torchinductor.set-aside-20260101T000000Z")
    found = look("cache", cache=str(cache))
    assert (found["files"], found["bytes"]) == (6, 46)
    assert {kind: (k["files"], k["bytes"]) for kind, k in found["kinds"].items()} == {
        "fxgraph": (1, 10), "aotautograd": (1, 20), "triton": (1, 5), "compiled": (2, 10),
        "other": (1, 1),
    }  # fmt: skip
    assert found["oldest"] == "2001-09-09T01:46:40Z"
    assert [aside["bytes"] for aside in found["set_aside"]] == [46]
    assert not look("cache", cache=str(tmp_path / "none"))["exists"]


def test_training_log(tmp_path):
    log = tmp_path / "training.log"
    lines = [f"step={i} tok_per_s={i}.5" for i in range(120)]
    lines[60] = "RuntimeError: out of memory"
    log.write_text("\n".join(lines[:100]) + "\n" + "\r".join(lines[100:]) + "\n\n")
    found = look(
        "training_log", log=str(log), throughput_pattern=r"tok_per_s=(?P<tok_per_s>[0-9.]+)"
    )
    assert found["tok_per_s"] == [i + 0.5 for i in range(70, 120)]
    assert found["last_lines"] == lines[100:]
    assert found["error_lines"] == [lines[60]]
    assert found["bytes"] == found["read_bytes"] == log.stat().st_size


def test_of_a_huge_log_only_the_end_is_read(tmp_path):
    log = tmp_path / "training.log"
    log.write_bytes(b"tok_per_s=1\n" * 1_000_000 + b"tok_per_s=2\n\xff\n")
    found = look(
        "training_log", log=str(log), throughput_pattern=r"tok_per_s=(?P<tok_per_s>[0-9.]+)"
    )
    assert found["read_bytes"] == 8 * 1024 * 1024 < found["bytes"]
    assert found["tok_per_s"][-1] == 2
    assert found["last_lines"][-1] == "\\xff"
