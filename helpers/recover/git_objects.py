"""Files of the training repository as the declared commit holds them.

Everything comes from git's object store by its plumbing commands; the working tree is only asked
whether it is dirty, and never read. It must not know where the files go.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import JsonValue

from helpers.errors import PreconditionFailed
from helpers.recover.work import Json
from helpers.target import SourceFile, Sources

_TIMEOUT_S = 60
_REGULAR_FILES = (b"100644", b"100755")
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_UNTOUCHED = "Nothing was deployed."


@dataclass(frozen=True)
class CommittedFile:
    """One declared file as the commit holds it."""

    declared: SourceFile
    content: bytes

    @property
    def sha256(self) -> str:
        """SHA-256 of the content."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def md5(self) -> str:
        """MD5 of the content: for comparison with old notes, not for safety."""
        return hashlib.md5(self.content, usedforsecurity=False).hexdigest()


@dataclass(frozen=True)
class Commit:
    """The commit that a ref names now.

    Attributes:
        id: its full name.
        author_date: UTC, ISO 8601.
        subject: first line of its message.
        dirty: files of the working tree that differ from HEAD; None in a repository without one.
    """

    id: str
    author_date: str
    subject: str
    dirty: tuple[str, ...] | None

    def as_json(self) -> Json:
        """For the evidence."""
        dirty: JsonValue = None if self.dirty is None else list(self.dirty)
        return {
            "commit": self.id,
            "author_date": self.author_date,
            "subject": self.subject,
            "dirty_files": dirty,
        }


def _git(repository: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    """Run git on the repository itself: no replacements, locks or variables of a git around."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    try:
        return subprocess.run(
            ["git", "--no-replace-objects", "--no-optional-locks", "-C", repository, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={**environment, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"},
            timeout=_TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        raise PreconditionFailed(
            "git is not installed on this machine.",
            hint="Install git here and run the stage again.",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise PreconditionFailed(
            f"git did not answer within {_TIMEOUT_S} s: git {' '.join(arguments)}.",
            hint=f"Try that command in {repository}. {_UNTOUCHED}",
        ) from error


def _said(result: subprocess.CompletedProcess[bytes]) -> str:
    return result.stderr.decode("utf-8", "backslashreplace").strip() or f"exit {result.returncode}"


def find_commit(sources: Sources) -> Commit:
    """The commit that the declared ref names.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        PreconditionFailed: there is no such repository or ref; the nearest refs are in the hint.
    """
    repository = sources.repository
    if not Path(repository).is_dir():
        raise PreconditionFailed(
            f"There is no repository at {repository}.",
            hint="Correct sources.repository in the target, or clone the repository there.",
        )
    known = _git(repository, "rev-parse", "--git-dir")
    if known.returncode != 0:
        raise PreconditionFailed(
            f"git does not take {repository} for a repository: {_said(known)}",
            hint="Correct sources.repository in the target, or do what git's message says.",
        )
    # quiet: what git says of a ref that does not exist is no help; the near ones are.
    found = _git(
        repository,
        "rev-parse",
        "--quiet",
        "--verify",
        "--end-of-options",
        f"{sources.ref}^{{commit}}",
    )
    if found.returncode != 0:
        raise PreconditionFailed(
            f"There is no commit called {sources.ref!r} in {repository}.",
            hint=_near_refs(repository, sources.ref),
        )
    commit = found.stdout.decode().strip()
    shown = _git(
        repository, "show", "--no-patch", "--no-show-signature", "--format=%at%n%s", commit
    )
    written, _, subject = shown.stdout.decode("utf-8", "replace").strip().partition("\n")
    author_date = datetime.fromtimestamp(int(written), UTC).isoformat()
    return Commit(commit, author_date, subject, _dirty(repository))


def _near_refs(repository: str, ref: str) -> str:
    listed = _git(repository, "for-each-ref", "--format=%(refname:short)")
    refs = listed.stdout.decode("utf-8", "replace").split()
    near = difflib.get_close_matches(ref, refs, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(near)}? Correct sources.ref in the target. {_UNTOUCHED}"
    few = f"Its refs: {', '.join(refs[:10])}{' …' if len(refs) > 10 else ''}. " if refs else ""
    return f"{few}Fetch the ref, or correct sources.ref in the target. {_UNTOUCHED}"


def _dirty(repository: str) -> tuple[str, ...] | None:
    status = _git(repository, "status", "--porcelain", "-z", "--untracked-files=no", "--no-renames")
    if status.returncode != 0:  # a bare repository has no working tree
        return None
    entries = status.stdout.decode("utf-8", "backslashreplace").split("\0")
    return tuple(entry[3:] for entry in entries if entry)


def read_files(sources: Sources, commit: Commit) -> list[CommittedFile]:
    """The declared files' bytes as the commit holds them, proved against the declared hashes.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        PreconditionFailed: a file is missing at that commit, is no regular file, or has another
        hash than
            declared; every such file is named.
    """
    files, problems = [], []
    for declared in sources.files:
        content, problem = _read(sources.repository, commit.id, declared.path)
        file = CommittedFile(declared, content)
        problems += [problem] if problem else _wrong_hashes(file)
        files.append(file)
    if problems:
        listed = "\n".join(f"  {problem}" for problem in problems)
        raise PreconditionFailed(
            f"Commit {commit.id[:12]} ({sources.ref}) is not what the target declares:\n{listed}",
            hint=f"Correct sources in the target (ref, files, hashes). {_UNTOUCHED}",
        )
    return files


def sha256_at(sources: Sources, commit: Commit, path: str) -> str | None:
    """SHA-256 of any file of the commit, declared or not; None when the commit has no such file.

    **Runs on:** operator. **Changes:** nothing.
    """
    content, problem = _read(sources.repository, commit.id, path)
    return None if problem else hashlib.sha256(content).hexdigest()


def _read(repository: str, commit: str, path: str) -> tuple[bytes, str | None]:
    """A file's content, or what is wrong with it."""
    listed = _git(repository, "ls-tree", "-z", "--full-tree", commit, "--", path)
    mode, _, rest = listed.stdout.partition(b" ")
    if listed.returncode != 0 or not listed.stdout:
        return b"", f"{path}: is not there"
    if mode not in _REGULAR_FILES:
        kind = {b"120000": "a symbolic link", b"160000": "a submodule"}.get(mode, "a folder")
        return b"", f"{path}: is {kind}, not a file"
    blob = rest.split(b"\t")[0].split()[-1].decode()
    read = _git(repository, "cat-file", "blob", blob)
    if read.returncode != 0:
        return b"", f"{path}: git cannot read it: {_said(read)}"
    if read.stdout.startswith(_LFS_POINTER):
        return b"", f"{path}: is kept in git LFS; git holds only a pointer to it"
    return read.stdout, None


def _wrong_hashes(file: CommittedFile) -> list[str]:
    pairs = (("SHA-256", file.declared.sha256, file.sha256), ("MD5", file.declared.md5, file.md5))
    return [
        f"{file.declared.path}: its {kind} is {found}, declared is {wanted}"
        for kind, wanted, found in pairs
        if wanted is not None and wanted != found
    ]
