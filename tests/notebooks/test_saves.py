from __future__ import annotations

import json
import os
import resource
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.book.saves import AtomicFiles, local_path, save_atomically
from helpers.record.atomic import remove_leftovers, write_atomic
from tests.notebooks.notebook_kit import with_path, write_notebook

KILLS = 40
ROOM_BYTES = 64 * 1024


@pytest.fixture
def small_disk(tmp_path):
    """A folder in which 64 KiB can be written and no more: a real small disk where one may be
    mounted, else the kernel's own limit on the size of a file."""
    folder = tmp_path / "disk"
    folder.mkdir()
    size = f"size={ROOM_BYTES}"
    mounted = shutil.which("mount") is not None and (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], capture_output=True, check=False
        ).returncode
        == 0
    )
    if mounted:
        yield folder
        subprocess.run(["umount", folder], check=True)
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES, hard))
    yield folder
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_content_is_replaced_as_a_whole_by_a_new_file(tmp_path):
    path = tmp_path / "evidence.json"
    write_atomic(path, "old")
    before = path.stat().st_ino
    write_atomic(path, b"new \xff")
    assert path.read_bytes() == b"new \xff"
    assert path.stat().st_ino != before
    assert names(tmp_path) == ["evidence.json"]


def test_mode_is_the_umasks_then_the_files_own_then_what_is_asked(tmp_path):
    path = tmp_path / "a"
    old = os.umask(0o027)
    try:
        write_atomic(path, "1")
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o600)
    write_atomic(path, "2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    write_atomic(path, "3", mode=0o444)
    assert stat.S_IMODE(path.stat().st_mode) == 0o444


def test_an_existing_file_can_be_refused(tmp_path):
    path = tmp_path / "a"
    write_atomic(path, "first", overwrite=False)
    with pytest.raises(FileExistsError):
        write_atomic(path, "second", overwrite=False)
    assert path.read_text() == "first"
    assert names(tmp_path) == ["a"]


def test_a_full_disk_leaves_the_old_content_and_nothing_else(small_disk):
    path = small_disk / "a"
    write_atomic(path, "good")
    with pytest.raises(OSError, match=r"No space left|File too large"):
        write_atomic(path, "y" * (4 * ROOM_BYTES))
    assert path.read_text() == "good"
    assert names(small_disk) == ["a"]


def test_text_that_cannot_be_encoded_touches_nothing(tmp_path):
    path = tmp_path / "a"
    write_atomic(path, "good")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\udc80")
    assert path.read_text() == "good"
    assert names(tmp_path) == ["a"]


def test_leftovers_of_the_dead_are_removed_and_nothing_else(tmp_path):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    dead = tmp_path / f".a.ipynb.{ended.pid}-0123abcd.part"
    others = [
        tmp_path / f".a.ipynb.{os.getpid()}-0123abcd.part",
        tmp_path / ".notes.part",
        tmp_path / "a.ipynb",
    ]
    for path in (dead, *others):
        path.write_text("x")
    assert remove_leftovers(tmp_path) == (dead,)
    assert names(tmp_path) == sorted(p.name for p in others)


SAVER = """
import json, os, random, signal, sys, time, warnings
from pathlib import Path
warnings.simplefilter("ignore")
from helpers.book.saves import AtomicFiles
from helpers.record.redact import Redactor
from papermill.iorw import LocalHandler
# Masking three million characters takes far longer than writing them: the kills would all meet it.
Redactor.clean = lambda self, data: data
path, kills = Path(sys.argv[1]), int(sys.argv[2])
handler = {"ours": AtomicFiles, "papermill": LocalHandler}[sys.argv[3]]()
def notebook(number):
    return json.dumps({"number": number, "text": "x" * 3_000_000, "again": number})
versions = [notebook(0), notebook(1)]
broken = 0
random.seed(1)
for kill in range(kills):
    saving, says = os.pipe()
    child = os.fork()
    if child == 0:
        handler.write(versions[0], str(path))
        os.write(says, b".")
        while True:
            for version in versions:
                handler.write(version, str(path))
    os.read(saving, 1)
    time.sleep(random.random() * 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    try:
        found = json.loads(path.read_text())
        assert found["number"] == found["again"] and len(found["text"]) == 3_000_000
    except ValueError:
        broken += 1
print(broken)
"""


def broken_after_kills(folder: Path, whose: str) -> int:
    arguments = [sys.executable, "-c", SAVER, str(folder / "a.ipynb"), str(KILLS), whose]
    done = subprocess.run(arguments, env=with_path(), capture_output=True, text=True, check=True)
    return int(done.stdout)


def test_a_kill_at_any_byte_of_a_save_leaves_a_whole_notebook(tmp_path):
    assert broken_after_kills(tmp_path, "ours") == 0
    left = [p for p in tmp_path.iterdir() if p.name != "a.ipynb"]
    assert len(left) >= KILLS / 8  # so many kills came in the middle of a write
    assert set(remove_leftovers(tmp_path)) == set(left)
    assert names(tmp_path) == ["a.ipynb"]


def test_the_kills_above_do_hit_saves(tmp_path):
    """The same kills ruin notebooks that papermill itself saves, so they prove something."""
    assert broken_after_kills(tmp_path, "papermill") >= KILLS / 4


@pytest.mark.parametrize("constant", ["NaN", "Infinity", "-Infinity"])
def test_what_no_reader_could_open_is_refused(tmp_path, constant):
    path = tmp_path / "a.ipynb"
    AtomicFiles().write('{"a": 1}', str(path))
    with pytest.raises(ValueError, match=f"{constant} is not JSON"):
        AtomicFiles().write(f'{{"a": {constant}}}', str(path))
    assert json.loads(path.read_text()) == {"a": 1}


def test_half_a_surrogate_pair_is_saved_as_json_can_hold_it(tmp_path):
    path = tmp_path / "a.ipynb"
    AtomicFiles().write('{"a": "é \udc80"}', str(path))
    assert path.read_bytes() == '{"a": "é \\udc80"}'.encode()
    assert json.loads(path.read_text()) == {"a": "é \udc80"}


def test_papermill_saves_relative_paths_through_it_too(tmp_path, monkeypatch):
    from papermill.iorw import local_file_io_cwd, papermill_io

    save_atomically()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for path in ("a.ipynb", "./a.ipynb", "runs/b.ipynb", str(tmp_path / "c.ipynb")):
        with local_file_io_cwd():
            papermill_io.write("{}", path)
            before = Path(path).stat().st_ino
            papermill_io.write('{"a": 1}', path)
        assert Path(path).stat().st_ino != before
        assert Path(path).read_text() == '{"a": 1}'
    assert names(tmp_path / "runs") == ["b.ipynb"]


def test_a_link_stays_a_link_and_a_device_a_device(tmp_path):
    real = tmp_path / "real.ipynb"
    real.write_text("{}")
    link = tmp_path / "link.ipynb"
    link.symlink_to(real)
    AtomicFiles().write('{"a": 1}', str(link))
    assert link.is_symlink()
    assert real.read_text() == '{"a": 1}'
    assert local_path(str(link)) == real
    AtomicFiles().write("{}", "/dev/null")
    assert Path("/dev/null").is_char_device()


def test_a_full_disk_does_not_stop_the_run_and_is_told(tmp_path, small_disk):
    from helpers.book.execution import execute

    notes = []
    notebook = write_notebook(
        tmp_path / "a.ipynb",
        "print('small')",
        "print('y' * 100_000)",
        f"open({str(tmp_path / 'went_on')!r}, 'w').close()\nimport time; time.sleep(1.2)",
    )
    out = small_disk / "a.ipynb"
    told = execute(notebook, out, {}, on_progress=lambda p: notes.append(p.note))
    assert told.outcome == "completed"
    assert (tmp_path / "went_on").exists()
    assert not told.saved
    assert "No space left" in told.save_errors[0] or "File too large" in told.save_errors[0]
    assert any("not saved" in note for note in notes)
    whole = json.loads(out.read_text())  # an earlier save, not a part of a later one
    assert len(whole["cells"]) == 4
    assert names(small_disk) == ["a.ipynb"]
