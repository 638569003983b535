"""A sealed run: whatever is changed afterwards is found and named."""

import json
import shutil
import subprocess

import pytest

from helpers.cli import app
from helpers.errors import ParameterError, RunbookError
from helpers.record.report import write_report
from helpers.record.run_folder import RunFolder
from helpers.record.seal import MANIFEST, SIGNATURE, manifest_sha256, seal, verify
from tests.testbed.run_folders import asked, complete_run


@pytest.fixture(autouse=True)
def home(tmp_path_factory, monkeypatch):
    """A home without any key: the tests must not sign with the key of whoever runs them."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.delenv("RECOVER_SIGNING_KEY", raising=False)
    return home


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = complete_run(tmp_path_factory.mktemp("runs"))
    write_report(folder)
    return folder.path


@pytest.fixture
def run(finished, tmp_path):
    return RunFolder(shutil.copytree(finished, tmp_path / finished.name))


def key(path, passphrase=""):
    path.parent.mkdir(exist_ok=True)
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", passphrase, "-C", "", "-f", str(path)]
    subprocess.run(command, check=True)
    return path


def test_a_run_is_as_it_was_sealed(run):
    sealed = seal(run)
    assert sealed.signed_by is None
    assert "no ssh key" in sealed.unsigned_because
    found = verify(run)
    assert (found.differences, found.since, found.signed, found.whole) == ((), (), None, True)
    assert "not signed" in found.signature


def test_every_single_file_is_covered(run):
    seal(run)
    files = [p for p in sorted(run.path.rglob("*")) if p.is_file() and p.name != MANIFEST]
    assert len(files) > 10
    for path in files:
        if path.name.startswith("."):
            continue
        content = path.read_bytes()
        path.write_bytes(bytes([content[0] ^ 1]) + content[1:])  # one bit of one byte
        found = verify(run)
        assert not found.whole
        assert found.differences[0].startswith(path.relative_to(run.path).as_posix())
        path.write_bytes(content)
    assert verify(run).whole


def test_the_journal_may_grow_but_not_be_cut_or_written_anew(run):
    journal = run.path / "journal.jsonl"
    seal(run)
    whole = journal.read_bytes()
    run.journal.append("note", text="somebody looked")
    found = verify(run)
    assert found.whole
    assert found.since == ("the journal has grown by 1 lines since",)
    lines = whole.splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:-1]))
    assert "was cut: it has" in verify(run).differences[0]
    # Cut, and grown again to its old length by a line that follows rightly from the one before.
    run.journal.append("run_ended", outcome="recovered", summary="as if")
    assert f"line {len(lines)} is not the one that was sealed" in verify(run).differences[0]


def test_a_file_that_is_gone_or_new_is_named(run):
    seal(run)
    report = run.path / "report.html"
    report.rename(run.path / "evidence" / "report.html")
    assert verify(run).differences == ("report.html is missing", "evidence/report.html was added")


def test_a_notebook_replaced_by_another_runs_is_named(run):
    seal(run)
    notebook = run.notebook("20_sources")
    notebook.write_bytes(run.notebook("30_verify_torch").read_bytes())
    assert [d.split()[0] for d in verify(run).differences] == ["notebooks/20_sources.ipynb"]


def test_a_link_is_sealed_as_what_it_says(run):
    link = run.path / "logs" / "latest"
    link.symlink_to("/etc/hostname")
    seal(run)
    link.unlink()
    link.symlink_to("/etc/hosts")
    assert verify(run).differences[0].startswith("logs/latest has changed")


def test_it_is_signed_with_a_key_that_asks_for_nothing(run, home):
    pair = key(home / ".ssh" / "id_ed25519")
    sealed = seal(run)
    assert sealed.signed_by.startswith("SHA256:")
    found = verify(run)
    assert found.signed is True
    assert sealed.signed_by in found.signature
    signers = home / "allowed"
    public = pair.with_suffix(".pub").read_text()
    signers.write_text(f"operator@example.org {public}")
    assert verify(run, signers).signature.startswith("signed by operator@example.org (")
    other = key(home / "other").with_suffix(".pub").read_text()
    signers.write_text(f"operator@example.org {other}")
    assert verify(run, signers).signed is False


def test_a_manifest_made_anew_does_not_fit_the_signature(run, home):
    key(home / ".ssh" / "id_ed25519")
    seal(run)
    manifest = json.loads((run.path / MANIFEST).read_text())
    changed = run.path / "evidence" / "20_sources.json"
    changed.write_text("{}")
    del manifest["files"]["evidence/20_sources.json"]
    (run.path / MANIFEST).write_text(json.dumps(manifest))
    found = verify(run)
    assert found.signed is False
    assert not found.whole


def test_a_key_with_a_passphrase_does_not_stop_a_run(run, home):
    key(home / ".ssh" / "id_ed25519", passphrase="only its owner knows")
    sealed = seal(run)
    assert sealed.signed_by is None
    assert "cannot sign unattended" in sealed.unsigned_because
    assert not (run.path / SIGNATURE).exists()
    assert verify(run).whole


def test_sealing_again_keeps_the_earlier_seal(run, home):
    key(home / ".ssh" / "id_ed25519")
    first = seal(run)
    run.journal.append("note", text="resumed")
    seal(run)
    manifest = json.loads((run.path / MANIFEST).read_text())
    assert manifest["earlier"] == first.manifest_sha256
    assert {p.name for p in (run.path / "manifests").iterdir()} == {
        "001-manifest.json",
        "001-manifest.json.sig",
    }
    assert verify(run).whole


def test_a_run_without_a_seal_says_so(tmp_path):
    folder = RunFolder.create(tmp_path, asked())
    with pytest.raises(ParameterError, match="has no seal"):
        verify(folder)
    (folder.path / MANIFEST).write_text("{")
    with pytest.raises(ParameterError, match="is not a manifest"):
        verify(folder)


def test_a_seal_that_cannot_be_written_leaves_the_earlier_one(run, home, monkeypatch):
    key(home / ".ssh" / "id_ed25519")
    first = seal(run)
    run.journal.append("note", text="resumed")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(
        "helpers.record.seal.write_atomic", full
    )  # a disk that is full here is full for all
    with pytest.raises(OSError, match="No space"):
        seal(run)
    assert manifest_sha256(run) == first.manifest_sha256
    kept = sorted(p.name for p in (run.path / "manifests").iterdir())
    assert kept == ["001-manifest.json", "001-manifest.json.sig"]


def test_the_command_line_says_what_is_not_as_it_was(run, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("RECOVER_RUNS", str(run.path.parent))
    monkeypatch.chdir(tmp_path)
    assert app_ends_with("verify", run.asked.run_id) == 2, "it has no seal"
    seal(run)
    assert app_ends_with("verify", run.asked.run_id) == 0
    (run.path / "report.html").write_text("another")
    capsys.readouterr()
    assert app_ends_with("verify", run.asked.run_id) == 1
    assert "✗ report.html has changed" in capsys.readouterr().out
    assert app_ends_with("archive", run.asked.run_id) == 0
    assert (tmp_path / f"{run.asked.run_id}.tar.zst").stat().st_size > 1000


def app_ends_with(*arguments):
    try:
        return app(arguments, standalone_mode=False) or 0  # it returns the exit code
    except RunbookError:
        return 2
