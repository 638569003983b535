"""Stage 20 on real git repositories and a real folder of deployed scripts."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from helpers.errors import PreconditionFailed, RunbookError
from helpers.judge import sources as judge_sources
from helpers.recover import sources
from helpers.verdict import Status
from tests.testbed.rooms import RUN_ID, Surroundings, make_target, small_disk, tree

MODEL = b"import torch\n\n\ndef forward(x):\n    return x * 2\n"
HACKED = (
    b"import torch\nimport torch.fx._symbolic_trace as trace\n\n"
    b"trace.is_fx_symbolic_tracing = lambda: False\n\n\ndef forward(x):\n    return x * 2\n"
)
TRAIN = b"print('training')\r\n\tprint('no line feed at the end')"
START = b"#!/bin/sh\nexec python train.py\n"
FILES = [{"path": "model.py"}, {"path": "train.py"}, {"path": "bin/start.sh", "mode": "0755"}]


def git(repository: Path, *arguments: str) -> str:
    identity = {
        "GIT_AUTHOR_NAME": "T",
        "GIT_AUTHOR_EMAIL": "t@example.org",
        "GIT_AUTHOR_DATE": "2026-03-01T10:00:00Z",
    }
    committer = {name.replace("AUTHOR", "COMMITTER"): value for name, value in identity.items()}
    done = subprocess.run(
        ["git", "-C", repository, *arguments],
        env={**os.environ, **identity, **committer},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path) -> Path:
    repository, training = tmp_path / "repository", tmp_path / "training"
    (repository / "bin").mkdir(parents=True)
    git(repository, "init", "--quiet", "--initial-branch=main")
    git(repository, "config", "core.autocrlf", "false")
    for name, content in (("model.py", MODEL), ("train.py", TRAIN), ("bin/start.sh", START)):
        (repository / name).write_bytes(content)
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "Train\n\nWith reasons.")
    git(repository, "tag", "v1.0")
    (training / "bin").mkdir(parents=True)
    (training / "model.py").write_bytes(HACKED)
    (training / "train.py").write_bytes(TRAIN)
    (training / "train.py").chmod(0o644)
    (training / "bin" / "start.sh").write_bytes(START)
    (training / "bin" / "start.sh").chmod(0o600)
    (training / "model.py").chmod(0o640)
    return tmp_path


def target_of(root: Path, **fields):
    return make_target(root, sources={"files": FILES, **fields})


def restore(surroundings: Surroundings):
    facts = sources.look(surroundings.work)
    plan = sources.plan(surroundings.work, facts)
    measured = sources.apply(surroundings.work, facts, plan)
    verdict = judge_sources.judge({"facts": facts, "measured": measured}, surroundings.target)
    return facts, plan, measured, verdict


def test_it_restores_what_the_commit_holds_and_a_second_run_changes_nothing(root):
    surroundings, training = Surroundings(target_of(root)), root / "training"
    facts, plan, measured, verdict = restore(surroundings)

    assert (training / "model.py").read_bytes() == MODEL
    assert (training / "model.py").stat().st_mode & 0o777 == 0o644
    assert (training / "bin" / "start.sh").stat().st_mode & 0o777 == 0o755
    assert (training / f"model.py.set-aside-{RUN_ID}").read_bytes() == HACKED
    assert [f["state"] for f in facts["files"]] == ["differs", "same", "mode"]
    assert facts["commit"] == git(root / "repository", "rev-parse", "HEAD")
    assert facts["author_date"] == "2026-03-01T10:00:00+00:00"
    assert facts["dirty_files"] == []
    assert measured["replaced"] == [f"{training}/model.py.set-aside-{RUN_ID}"]
    assert verdict.status is Status.PASS, verdict.deciding
    assert [c.what for c in plan.changes] == ["replace the script", "set the mode"]
    # Modes first, then all files together: begun and done as one.
    assert sorted(surroundings.phases()) == sorted(
        (p, c.what) for c in plan.changes for p in ("begins", "done")
    )
    assert sorted(p.name for p in training.rglob(".*")) == []

    before = tree(root)
    _, plan, _, verdict = restore(Surroundings(target_of(root), run_id="another-run"))
    assert plan.changes == ()
    assert verdict.status is Status.PASS
    assert tree(root) == before


def test_the_diff_shows_what_the_deployed_file_loses(root):
    surroundings = Surroundings(target_of(root))
    facts = sources.look(surroundings.work)
    diff = surroundings.kept["20_sources.model.py.diff"]
    assert facts["files"][0]["diff"] == diff
    assert (
        f"--- deployed {root}/training/model.py\n+++ HEAD ({facts['commit'][:12]}) model.py\n"
        in diff
    )
    assert "\n-trace.is_fx_symbolic_tracing = lambda: False\n" in diff
    assert list(surroundings.kept) == ["20_sources.model.py.diff"]
    facts = judge_sources.judge({"facts": facts, "measured": None}, surroundings.target)
    assert facts["torch's guards left alone"].status is Status.FAIL
    assert "model.py:4" in str(facts["torch's guards left alone"].measured)


def test_a_diff_of_files_without_a_last_line_feed(root):
    (root / "training" / "train.py").write_bytes(TRAIN + b"\n")
    surroundings = Surroundings(target_of(root))
    sources.look(surroundings.work)
    line = "\tprint('no line feed at the end')\n"
    expected = f"-{line}+{line}\\ No newline at end of file\n"
    assert surroundings.kept["20_sources.train.py.diff"].endswith(expected)


def test_a_look_and_a_plan_write_nothing_neither_here_nor_there(root):
    os.utime(root / "repository" / "model.py")  # git would like to refresh its index
    before = tree(root)
    surroundings = Surroundings(target_of(root))
    plan = sources.plan(surroundings.work, sources.look(surroundings.work))
    assert len(plan.changes) == 2
    assert tree(root) == before


def test_a_dirty_working_tree_is_named_and_not_used(root):
    repository = root / "repository"
    (repository / "model.py").write_bytes(b"work in progress\n")
    git(repository, "add", "model.py")  # staged is not committed either
    (repository / "train.py").unlink()
    facts, _, _, verdict = restore(Surroundings(target_of(root)))
    assert (root / "training" / "model.py").read_bytes() == MODEL
    assert sorted(facts["dirty_files"]) == ["model.py", "train.py"]
    assert verdict.status is verdict["working tree clean"].status is Status.DRIFT


def test_an_older_ref_is_taken_from_its_own_commit(root):
    repository = root / "repository"
    (repository / "model.py").write_bytes(b"newer\n")
    git(repository, "commit", "--quiet", "--all", "-m", "Newer")
    facts, _, _, verdict = restore(Surroundings(target_of(root, ref="v1.0")))
    assert (root / "training" / "model.py").read_bytes() == MODEL
    assert facts["subject"] == "Train"
    assert verdict.status is Status.PASS


def test_a_bare_repository_and_the_variables_of_a_surrounding_git_do_not_matter(root, monkeypatch):
    git(root, "clone", "--quiet", "--bare", "repository", "bare.git")
    monkeypatch.setenv("GIT_DIR", str(root / "nowhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(root / "nowhere" / "index"))
    facts, _, _, verdict = restore(Surroundings(target_of(root, repository=str(root / "bare.git"))))
    assert facts["dirty_files"] is None
    assert verdict.status is Status.PASS


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_declared_hashes_are_checked_where_they_are_declared(root):
    declared = [{"path": "model.py", "md5": md5(MODEL), "sha256": sha256(MODEL)}, *FILES[1:]]
    _, _, _, verdict = restore(Surroundings(target_of(root, files=declared)))
    assert verdict["model.py declared md5"].status is Status.PASS
    assert verdict["model.py declared sha256"].status is Status.PASS
    assert "train.py declared md5" not in [c.name for c in verdict.checks]


@pytest.mark.parametrize(
    ("fields", "what", "hint"),
    [
        ({"ref": "v1.O"}, "no commit called 'v1.O'", "Did you mean v1.0?"),
        ({"ref": "0123456789012345678901234567890123456789"}, "no commit called", "v1.0"),
        ({"ref": "--upload-pack=x"}, "no commit called", "Fetch the ref"),
        ({"ref": "HEAD:model.py"}, "no commit called", "Fetch the ref"),
        ({"files": [*FILES, {"path": "gone.py"}]}, "gone.py: is not there", "sources"),
        ({"files": [*FILES, {"path": "bin"}]}, "bin: is a folder", "sources"),
        (
            {"files": [{"path": "model.py", "md5": md5(HACKED)}]},
            f"its MD5 is {md5(MODEL)}",
            "sources",
        ),
        ({"files": [{"path": "model.py", "sha256": sha256(HACKED)}]}, "declared is", "sources"),
        ({"repository": "/nowhere"}, "no repository at /nowhere", "clone"),
    ],
)
def test_what_the_commit_does_not_hold_is_refused_before_anything_is_touched(
    root, fields, what, hint
):
    surroundings, before = Surroundings(target_of(root, **fields)), tree(root)
    asked = []
    surroundings.container._observer = asked.append
    with pytest.raises(PreconditionFailed) as caught:
        restore(surroundings)
    assert what in caught.value.what
    assert hint in caught.value.hint
    assert caught.value.changed == "no"
    assert tree(root) == before
    assert asked == [], "the container was not even asked"


def test_all_that_is_wrong_is_named_at_once(root):
    files = [{"path": "model.py", "md5": md5(HACKED)}, {"path": "gone.py"}, {"path": "lost.py"}]
    with pytest.raises(PreconditionFailed) as caught:
        restore(Surroundings(target_of(root, files=files)))
    assert all(word in caught.value.what for word in ("model.py", "gone.py", "lost.py"))


def test_links_and_lfs_pointers_are_no_files(root):
    repository = root / "repository"
    (repository / "link.py").symlink_to("model.py")
    (repository / "big.py").write_bytes(
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"
    )
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "More")
    with pytest.raises(PreconditionFailed) as caught:
        restore(Surroundings(target_of(root, files=[{"path": "link.py"}, {"path": "big.py"}])))
    assert "link.py: is a symbolic link" in caught.value.what
    assert "big.py: is kept in git LFS" in caught.value.what


def test_a_ref_that_moves_after_the_plan_was_made_is_refused(root):
    surroundings = Surroundings(target_of(root))
    facts = sources.look(surroundings.work)
    plan = sources.plan(surroundings.work, facts)
    (root / "repository" / "model.py").write_bytes(b"moved\n")
    git(root / "repository", "commit", "--quiet", "--all", "-m", "Moved")
    before = tree(root)
    with pytest.raises(PreconditionFailed, match="another commit now"):
        sources.apply(surroundings.work, facts, plan)
    assert tree(root) == before


def test_a_full_disk_leaves_every_file_as_it_was(root, tmp_path):
    (root / "repository" / "train.py").write_bytes(os.urandom(2 * 2**20))
    git(root / "repository", "commit", "--quiet", "--all", "-m", "Big")
    small = tmp_path / "small"
    with small_disk(small, size_mib=1) as container:
        (small / "model.py").write_bytes(HACKED)
        (small / "train.py").write_bytes(TRAIN)
        before = tree(small)
        target = target_of(root, deploy_to=str(small), files=FILES[:2])
        with pytest.raises(RunbookError) as caught:
            restore(Surroundings(target, container))
        assert caught.value.changed == "no"
        assert tree(small) == before


def test_a_failure_in_the_middle_puts_the_earlier_files_back(root):
    (root / "training" / "train.py").unlink()
    (root / "training" / "train.py").mkdir()  # a folder in the file's place: the rename cannot work
    (root / "training" / "train.py" / "notes").write_text("keep me")
    before = tree(root)
    surroundings = Surroundings(target_of(root))
    with pytest.raises(RunbookError, match="Every file that had been replaced is back") as caught:
        restore(surroundings)
    assert caught.value.changed == "no"
    assert tree(root) == before
    assert ("undone", "replace the script") in surroundings.phases()


def test_missing_files_and_folders_are_made_and_taken_back_together(root):
    target = target_of(root, deploy_to=str(root / "new" / "training"))
    surroundings = Surroundings(target)
    _, plan, _, verdict = restore(surroundings)
    assert verdict.status is Status.PASS
    assert [c.where for c in plan.changes][:3] == [
        str(root / "new"),
        str(root / "new" / "training"),
        str(root / "new" / "training" / "bin"),
    ]
    blocked = root / "blocked"
    blocked.write_text("a file where a folder should be")
    before = tree(root)
    with pytest.raises(RunbookError):
        restore(Surroundings(target_of(root, deploy_to=str(blocked / "training"))))
    assert tree(root) == before


def test_the_undo_in_the_plan_is_the_way_back(root):
    before = tree(root / "training")
    _, plan, _, _ = restore(Surroundings(target_of(root)))
    for change in reversed(plan.changes):
        subprocess.run(["bash", "-c", change.undo], check=True)
    assert tree(root / "training") == before


def test_the_same_run_may_replace_a_file_again(root):
    restore(Surroundings(target_of(root)))
    (root / "training" / "model.py").write_bytes(b"hacked again\n")
    _, _, measured, verdict = restore(Surroundings(target_of(root)))
    assert verdict.status is Status.PASS
    assert measured["replaced"] == [f"{root}/training/model.py.set-aside-{RUN_ID}-2"]
    assert (root / "training" / f"model.py.set-aside-{RUN_ID}").read_bytes() == HACKED


def test_a_deployed_link_is_kept_as_a_link(root):
    elsewhere = root / "elsewhere.py"
    elsewhere.write_bytes(HACKED)
    (root / "training" / "model.py").unlink()
    (root / "training" / "model.py").symlink_to(elsewhere)
    restore(Surroundings(target_of(root)))
    assert not (root / "training" / "model.py").is_symlink()
    assert (root / "training" / f"model.py.set-aside-{RUN_ID}").readlink() == elsewhere
    assert elsewhere.read_bytes() == HACKED
