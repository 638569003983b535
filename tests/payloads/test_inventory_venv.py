"""The look at an environment: real environments, renamed and damaged ones, and real processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from tests.payloads.conftest import look, make_venv, sent

VERSION = "{}.{}.{}".format(*sys.version_info)


def test_venv(venv):
    found = look("venv", venv=str(venv))
    assert found["exists"]
    assert not found["is_symlink"]
    assert found["python"]["version"] == VERSION
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
    assert look("venv", venv=str(copy))["python"]["version"] == VERSION


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
MAP = (
    "import mmap, sys, time; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, access=1); "
)


def test_processes_that_use_the_environment(venv, tmp_path, running):
    copy = tmp_path / "venv"
    shutil.copytree(venv, copy, symlinks=True)
    (library,) = copy.glob("lib/*/site-packages/other_package.py")
    plain = {k: v for k, v in os.environ.items() if k != "VIRTUAL_ENV"}
    by_path = running([f"{copy}/bin/python", "-c", SLEEP], env=plain)
    relative = running(["./bin/python", "-c", SLEEP], cwd=copy, env=plain)
    active = running(
        ["/bin/sh", "-c", "echo 1; exec sleep 60"], env={**plain, "VIRTUAL_ENV": str(copy)}
    )
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
    params = {"sections": ["venv"], "venv": str(venv)}
    python, env = venv / "bin" / "python", {"VIRTUAL_ENV": str(venv)}
    got = sent("inventory", params, python=python, env=env)
    assert got.measured["venv"]["processes"] == []
