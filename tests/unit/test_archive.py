"""A run put away in one file."""

import hashlib
import io
import os
import tarfile

import pytest
import zstandard

from helpers.errors import ParameterError
from helpers.record.archive import archive
from helpers.record.report import write_report
from tests.testbed.run_folders import complete_run


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = complete_run(tmp_path_factory.mktemp("runs"))
    write_report(folder)
    return folder


def members(path):
    with path.open("rb") as file:
        content = zstandard.ZstdDecompressor().stream_reader(file).read()
    return tarfile.open(fileobj=io.BytesIO(content))


def test_the_report_comes_first_and_nothing_is_left_out(folder, tmp_path):
    path = archive(folder, tmp_path)
    run_id = folder.asked.run_id
    assert path == tmp_path / f"{run_id}.tar.zst"
    tar = members(path)
    names = tar.getnames()
    assert names[0] == f"{run_id}/report.html"
    there = {p for p in folder.path.rglob("*") if not p.name.startswith(".")}
    assert set(names) == {f"{run_id}/{p.relative_to(folder.path)}" for p in there}
    for entry in tar.getmembers():
        if entry.isfile():
            packed = tar.extractfile(entry).read()
            assert packed == (folder.path.parent / entry.name).read_bytes()


def test_the_same_folder_gives_the_same_bytes_whatever_its_dates_and_modes(folder, tmp_path):
    first = archive(folder, tmp_path / "first.tar.zst").read_bytes()
    for path in folder.path.rglob("*"):
        os.utime(path, (1, 1))
        if path.is_file():
            path.chmod(0o600)
    second = archive(folder, tmp_path / "second.tar.zst").read_bytes()
    assert hashlib.sha256(first).hexdigest() == hashlib.sha256(second).hexdigest()


def test_it_overwrites_nothing(folder, tmp_path):
    (tmp_path / "mine").write_text("x")
    with pytest.raises(ParameterError, match="there already"):
        archive(folder, tmp_path / "mine")
    with pytest.raises(ParameterError, match="no folder"):
        archive(folder, tmp_path / "not there" / "a.tar.zst")
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]
