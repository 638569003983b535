"""A private copy of the compile cache: made of bytes, used by one process, never left for long."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.payloads.conftest import PAYLOADS, sent
from tests.payloads.workloads import COMPILED, PACED, write
from tests.testbed.rooms import small_disk, tree

USES = f"""
import os, sys, time
sys.path.insert(0, {str(PAYLOADS)!r})
import cache_copy
from protocol import Reporter
said = cache_copy.use_copy(Reporter())
print(os.environ["TORCHINDUCTOR_CACHE_DIR"], said["files"], said["bytes"], flush=True)
time.sleep(60)
"""


@pytest.fixture
def cache(tmp_path):
    folder = tmp_path / "cache"
    (folder / "fxgraph" / "ab").mkdir(parents=True)
    (folder / "fxgraph" / "ab" / "entry").write_text("graph")
    (folder / "ab.so").write_bytes(b"code")
    (folder / "ab.so").chmod(0o755)
    (folder / "link").symlink_to("ab.so")
    return folder


@pytest.fixture
def use(cache, tmp_path):
    """Starts a process that uses a copy; ends all of them."""
    running = []
    (tmp_path / "tmp").mkdir()

    def start(**env):
        where = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TMPDIR": str(tmp_path / "tmp"), **env}
        running.append(
            subprocess.Popen(
                [sys.executable, "-c", USES],
                env={**os.environ, **where},
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        return running[-1], running[-1].stdout.readline().split()

    yield start
    for process in running:
        process.kill()
        process.communicate()


def test_what_is_written_into_a_copy_never_reaches_the_cache(cache, use):
    before = tree(cache)
    _, (copy, files, size) = use()
    kept = [path for path in cache.rglob("*") if path.is_symlink() or path.is_file()]
    assert (files, size) == (str(len(kept)), str(sum(path.lstat().st_size for path in kept)))
    assert tree(Path(copy)) == before
    with Path(copy, "ab.so").open("r+b") as file:
        file.write(b"XXXX")  # in place, as a link would hand through
    os.utime(Path(copy, "fxgraph", "ab", "entry"), (1, 1))
    assert tree(cache) == before


def test_a_copy_that_was_left_behind_goes_and_one_in_use_stays(cache, use, tmp_path):
    left, (of_the_dead, *_) = use()
    _, (in_use, *_) = use()
    left.kill()
    left.wait()
    _, (newest, *_) = use()
    there = {path.name for path in (tmp_path / "tmp").iterdir()}
    assert Path(of_the_dead).parent.name not in there
    assert {Path(path).parent.name for path in (in_use, newest)} == there


def test_it_lies_where_there_is_room_for_what_is_compiled_meanwhile(cache, use, tmp_path):
    with small_disk(tmp_path / "small", size_mib=6):
        process, (copy, *_) = use(TMPDIR=str(tmp_path / "small"))
        assert shutil.disk_usage(copy).free >= 256 * 2**20
        process.kill()
        process.wait()


@pytest.mark.torch
def test_a_benchmark_leaves_a_cold_cache_cold_and_removes_its_copy(torch_python, tmp_path):
    roles = [{"name": "drafter", "devices": ["cpu"], "shapes": [{"batch": 2}]}]
    cache, temporary = tmp_path / "cache", tmp_path / "tmp"
    temporary.mkdir()
    cache.mkdir()
    (cache / "other").write_text("entry")
    params = {"workload": write(tmp_path / "training", COMPILED), "roles": roles, "seconds": 1}
    before = tree(cache)
    env = {"TORCHINDUCTOR_CACHE_DIR": str(cache), "TMPDIR": str(temporary)}
    got = sent("benchmark", params, python=torch_python, env=env)
    assert got.measured["phase"] == "done", got.document["errors"]
    assert got.measured["compile"]["before"]["fxgraph_cache_miss"] > 0
    assert got.measured["cache_copy"]["files"] == 1
    assert tree(cache) == before
    assert [p.name for p in temporary.iterdir() if p.name.startswith("recover-")] == []


LAZY = PACED.replace("import time", "import time, beside, parts.loss, installed").replace(
    "    def step():\n", "    def step():\n        import late\n"
)


@pytest.mark.torch
def test_every_file_that_was_loaded_from_the_workloads_folder_is_hashed(torch_python, tmp_path):
    training = tmp_path / "training"
    subprocess.run([torch_python, "-m", "venv", "--without-pip", training / "venv"], check=True)
    (installed,) = training.glob("venv/lib/python3*/site-packages")
    (torch_packages,) = torch_python.parents[1].glob("lib/python3*/site-packages")
    (installed / "torch.pth").write_text(f"{torch_packages}\n")
    for name in ("beside", "parts/__init__", "parts/loss", "late", "unused"):
        (training / "parts").mkdir(parents=True, exist_ok=True)
        (training / f"{name}.py").write_text(f"# {name}\n")
    (installed / "installed.py").write_text("")
    roles = [{"name": "drafter", "devices": ["cpu"], "shapes": [{"seconds": 0.02, "tokens": 1}]}]
    for workload in (write(training, LAZY), str(tmp_path / "link" / "workload.py")):
        params = {"workload": workload, "roles": roles, "seconds": 0.5, "warmup_seconds": 0.1}
        got = sent("benchmark", params, python=training / "venv" / "bin" / "python")
        assert set(got.measured["files"]) == {
            "workload.py", "beside.py", "parts/__init__.py", "parts/loss.py", "late.py",
        }, got.document["errors"]  # fmt: skip
        assert None not in got.measured["files"].values()
        if not (tmp_path / "link").exists():
            (tmp_path / "link").symlink_to(training)
