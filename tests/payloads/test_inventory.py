"""The read-only look, at real environments, real processes and real files."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import uv

from tests.payloads.conftest import PAYLOADS, by_hand, pythons, sent, tree_hash, wheel

UV = uv.find_uv_bin()
SECTIONS = ["machine", "venv", "scripts", "cache", "pip_settings", "training_log"]


def look(section: str, **params):
    """One section, which must have worked."""
    got = sent("inventory", {"sections": [section], **params})
    assert got.code == 0
    assert got.document["errors"] == []
    return got.measured[section]


def make_venv(path: Path, *wheels: Path, editable: Path | None = None) -> Path:
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, str(path)], check=True)
    what = [str(w) for w in wheels] + (["-e", str(editable)] if editable else [])
    if what:
        command = [UV, "pip", "install", "-q", "--offline", "--no-build-isolation", "--no-deps"]
        subprocess.run([*command, "--python", f"{path}/bin/python", *what], check=True)
    return path


@pytest.fixture(scope="module")
def venv(tmp_path_factory):
    """An environment with two packages and a console script."""
    folder = tmp_path_factory.mktemp("venv")
    first = wheel(folder / "wheels", "Some.Package", "1.5", scripts={"greet": "Some.Package:main"})
    second = wheel(folder / "wheels", "other-package", "2.0+cpu")
    return make_venv(folder / "venv", first, second)


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


def test_by_hand_says_the_same(everything):
    everything["sections"] = ["venv", "scripts"]
    by = by_hand(PAYLOADS / "inventory.py", everything)
    assert by.measured == sent("inventory", everything).measured


def test_it_changes_nothing(everything, tmp_path, venv):
    before = tree_hash(tmp_path), tree_hash(venv.parent)
    assert sent("inventory", everything, env={"HOME": str(tmp_path), "TMPDIR": str(tmp_path)}).code == 0
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
        "machine", marker_file=str(tmp_path / "marker"), disk_paths=[str(tmp_path / "not" / "there")]
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
    assert [c for c in machine["compilers"] if c["path"].endswith("g++")][0]["version"].startswith("g++")


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
    assert {"path": f"{folder}/uv", "version": "uv 0.1.2", "error": None} in got.measured["machine"]["uv"]


def test_venv(venv):
    found = look("venv", venv=str(venv))
    assert found["exists"]
    assert not found["is_symlink"]
    assert found["python"]["version"] == "{}.{}.{}".format(*sys.version_info)
    assert found["python"]["executable"] == f"{venv}/bin/python"
    assert found["python"]["error"] is None
    assert found["pyvenv_cfg"]["include-system-site-packages"] == "false"
    assert [(p["name"], p["version"], p["installer"]) for p in found["packages"]] == [
        ("other-package", "2.0+cpu", "uv"), ("some-package", "1.5", "uv"),
    ]  # fmt: skip
    assert found["foreign_scripts"] == []
    assert found["set_aside"] == []
    files = [p for p in venv.rglob("*") if p.is_symlink() or p.is_file()]
    assert found["files"] == len(files)
    assert found["bytes"] == sum(p.lstat().st_size for p in files)


def test_venv_that_is_not_there(tmp_path):
    found = look("venv", venv=str(tmp_path / "venv"))
    assert not found["exists"]
    assert "packages" not in found


def test_renamed_venv_has_foreign_scripts(venv, tmp_path):
    old = tmp_path / "venv.set-aside-20260101T000000Z"
    make_venv(tmp_path / "venv", venv.parent / "wheels" / "Some.Package-1.5-py3-none-any.whl")
    (tmp_path / "venv").rename(old)
    make_venv(tmp_path / "venv")
    assert look("venv", venv=str(tmp_path / "venv"))["set_aside"] == [str(old)]
    (script,) = look("venv", venv=str(old))["foreign_scripts"]
    assert script["script"] == f"{old}/bin/greet"
    assert script["interpreter"].startswith(f"{tmp_path}/venv/bin/python")


def test_long_paths_make_another_first_line(venv, tmp_path):
    long = tmp_path / ("x" * 100) / ("y" * 100)
    long.mkdir(parents=True)
    make_venv(long / "venv", venv.parent / "wheels" / "Some.Package-1.5-py3-none-any.whl")
    assert (long / "venv/bin/greet").read_text().startswith("#!/bin/sh")
    assert look("venv", venv=str(long / "venv"))["foreign_scripts"] == []
    (long / "venv").rename(long / "old")
    assert len(look("venv", venv=str(long / "old"))["foreign_scripts"]) == 1


def test_venv_in_bad_shape(venv, tmp_path):
    copy = tmp_path / "venv"
    shutil.copytree(venv, copy, symlinks=True)
    (copy / "bin" / "python").unlink()
    (copy / "bin" / "python").symlink_to("/nowhere/python3")
    (info,) = copy.glob("lib/*/site-packages/Some.Package-1.5.dist-info")
    (info / "METADATA").unlink()
    (info.parent / "noisy.pth").write_text("import sys; print('hello from a .pth file')\n")
    found = look("venv", venv=str(copy))
    assert found["python"]["version"] is None
    assert "FileNotFoundError" in found["python"]["error"]
    assert {p["name"] for p in found["packages"]} == {None, "other-package"}
    assert any(path.endswith("noisy.pth") for path in found["pth_files"])
    link = tmp_path / "link"
    link.symlink_to(venv)
    found = look("venv", venv=str(link))
    assert found["is_symlink"]
    assert found["real_path"] == str(venv)
    (info.parent / "noisy.pth").unlink()


def test_noise_of_a_pth_file_does_not_hide_the_version(venv, tmp_path):
    copy = tmp_path / "venv"
    shutil.copytree(venv, copy, symlinks=True)
    (site,) = copy.glob("lib/*/site-packages")
    (site / "noisy.pth").write_text("import sys; print('hello from a .pth file')\n")
    assert look("venv", venv=str(copy))["python"]["version"] == "{}.{}.{}".format(*sys.version_info)


def test_editable_package(tmp_path):
    site = make_venv(tmp_path / "venv")
    (packages,) = site.glob("lib/*/site-packages")
    info = packages / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "direct_url.json").write_text(
        json.dumps({"url": "file:///src/mine", "dir_info": {"editable": True}})
    )
    (package,) = look("venv", venv=str(site))["packages"]
    assert package["editable"]
    assert package["direct_url"] == "file:///src/mine"
    assert package["installer"] is None


@pytest.fixture
def running():
    """Starts processes that print a line when they are ready, and ends them."""
    started = []

    def start(argv: list[str], **options) -> int:
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, **options)
        started.append(process)
        assert process.stdout.readline()
        return process.pid

    yield start
    for process in started:
        process.kill()
        process.communicate()


SLEEP = "import time; print(1, flush=True); time.sleep(60)"
# A library of the environment that is mapped: any file will do.
MAP = "import mmap, sys, time; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, access=1); "


def test_processes_that_use_the_environment(venv, tmp_path, running):
    copy = tmp_path / "venv"
    shutil.copytree(venv, copy, symlinks=True)
    (library,) = copy.glob("lib/*/site-packages/other_package.py")
    plain = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
    by_path = running([f"{copy}/bin/python", "-c", SLEEP], env=plain)
    relative = running(["./bin/python", "-c", SLEEP], cwd=copy, env=plain)
    active = running(["/bin/sh", "-c", "echo 1; exec sleep 60"], env={**plain, "VIRTUAL_ENV": str(copy)})
    mapped = running([sys.executable, "-c", MAP + SLEEP[13:], str(library)], env=plain)
    running([sys.executable, "-c", SLEEP, str(copy)], env=plain)  # only mentions it
    running([f"{venv}/bin/python", "-c", SLEEP], env=plain)  # another environment
    found = {p["pid"]: p for p in look("venv", venv=str(copy))["processes"]}
    evidence = {pid: p["evidence"] for pid, p in found.items()}
    assert evidence == {
        by_path: ["argv0"], relative: ["argv0"], active: ["VIRTUAL_ENV"], mapped: ["maps"],
    }  # fmt: skip
    started = time.strptime(found[by_path]["started_at"], "%Y-%m-%dT%H:%M:%SZ")
    assert abs(time.mktime(started) - time.mktime(time.gmtime())) < 60
    assert found[by_path]["command"].startswith(f"{copy}/bin/python -c")


def test_a_process_follows_the_renamed_environment(venv, tmp_path, running):
    copy = tmp_path / "venv"
    shutil.copytree(venv, copy, symlinks=True)
    (library,) = copy.glob("lib/*/site-packages/other_package.py")
    pid = running([f"{copy}/bin/python", "-c", MAP + SLEEP[13:], str(library)])
    copy.rename(tmp_path / "old")
    shutil.copytree(venv, copy, symlinks=True)
    new, old = (look("venv", venv=str(tmp_path / name))["processes"] for name in ("venv", "old"))
    assert [(p["pid"], p["evidence"]) for p in new] == [(pid, ["argv0"])]
    assert [(p["pid"], p["evidence"]) for p in old] == [(pid, ["maps"])]


def test_the_payload_does_not_find_itself(venv):
    got = sent("inventory", {"sections": ["venv"], "venv": str(venv)}, python=venv / "bin" / "python",
               env={"VIRTUAL_ENV": str(venv)})  # fmt: skip
    assert got.measured["venv"]["processes"] == []


TAMPERED = '''
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
'''


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
    for name, size in (("fxgraph/ab/key/entry", 10), ("aotautograd/key/entry", 20), ("triton/0/k.cubin", 5),
                       ("ab/kernel.so", 7), ("ab/kernel.main.cpp", 3), ("locks/x.lock", 1)):  # fmt: skip
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_bytes(b"x" * size)
    os.utime(cache / "ab/kernel.so", (1_000_000_000, 1_000_000_000))
    shutil.copytree(cache, tmp_path / "torchinductor.set-aside-20260101T000000Z")
    found = look("cache", cache=str(cache))
    assert (found["files"], found["bytes"]) == (6, 46)
    assert {kind: (k["files"], k["bytes"]) for kind, k in found["kinds"].items()} == {
        "fxgraph": (1, 10), "aotautograd": (1, 20), "triton": (1, 5), "compiled": (2, 10), "other": (1, 1),
    }  # fmt: skip
    assert found["oldest"] == "2001-09-09T01:46:40Z"
    assert [aside["bytes"] for aside in found["set_aside"]] == [46]
    assert not look("cache", cache=str(tmp_path / "none"))["exists"]


def test_training_log(tmp_path):
    log = tmp_path / "training.log"
    lines = [f"step={i} tok_per_s={i}.5" for i in range(120)]
    lines[60] = "RuntimeError: out of memory"
    log.write_text("\n".join(lines[:100]) + "\n" + "\r".join(lines[100:]) + "\n\n")
    found = look("training_log", log=str(log), throughput_pattern=r"tok_per_s=(?P<tok_per_s>[0-9.]+)")
    assert found["tok_per_s"] == [i + 0.5 for i in range(70, 120)]
    assert found["last_lines"] == lines[100:]
    assert found["error_lines"] == [lines[60]]
    assert found["bytes"] == found["read_bytes"] == log.stat().st_size


def test_of_a_huge_log_only_the_end_is_read(tmp_path):
    log = tmp_path / "training.log"
    log.write_bytes(b"tok_per_s=1\n" * 1_000_000 + b"tok_per_s=2\n\xff\n")
    found = look("training_log", log=str(log), throughput_pattern=r"tok_per_s=(?P<tok_per_s>[0-9.]+)")
    assert found["read_bytes"] == 8 * 1024 * 1024 < found["bytes"]
    assert found["tok_per_s"][-1] == 2
    assert found["last_lines"][-1] == "\\xff"
