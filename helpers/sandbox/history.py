"""The sandbox's training repository: the scripts of ``repository/``, committed.

Author and dates are fixed, so that the same scripts give the same commits in every sandbox. This
room knows git and nothing of what the scripts do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from helpers.errors import PreconditionFailed

SCRIPTS_FOLDER = Path(__file__).resolve().parent / "repository"
START_SCRIPT = "start_training.sh"

# What runs training comes after what is trained: two commits, so that HEAD has a parent to be
# compared with.
_INITIAL = ("2026-01-12T09:30:00+00:00", "Drafter, target and training pipeline")
_LATER = ("2026-02-03T16:45:00+00:00", "Start script with the settings of the last good checkpoint")


def make_repository(folder: Path) -> str:
    """Make the repository and commit the scripts.

    **Runs on:** operator. **Changes:** makes ``folder``, which must not exist.

    Returns:
        The full name of the commit at HEAD.

    Raises:
        PreconditionFailed: git is missing or refused.
    """
    scripts = [p for p in sorted(SCRIPTS_FOLDER.iterdir()) if p.is_file()]
    folder.mkdir(parents=True)
    _git(folder, "init", "--quiet", "--initial-branch=main")
    for (date, message), names in (
        (_INITIAL, [p for p in scripts if p.name != START_SCRIPT]),
        (_LATER, [p for p in scripts if p.name == START_SCRIPT]),
    ):
        for script in names:
            copied = Path(shutil.copyfile(script, folder / script.name))
            # Set here and not copied: an installed package may have lost the bit.
            copied.chmod(0o755 if script.suffix == ".sh" else 0o644)
        _git(folder, "add", "--", *(p.name for p in names))
        _git(folder, "commit", "--quiet", "--no-verify", f"--message={message}", date=date)
    return _git(folder, "rev-parse", "HEAD")


def commit_files(folder: Path, files: Mapping[str, bytes], *, date: str, message: str) -> str:
    """Write files into the repository and commit them.

    **Runs on:** operator. **Changes:** the repository.

    Returns:
        The full name of the commit, which is HEAD now.

    Raises:
        PreconditionFailed: git is missing or refused.
    """
    for name, content in files.items():
        (folder / name).write_bytes(content)
    _git(folder, "add", "--", *files)
    _git(folder, "commit", "--quiet", "--no-verify", f"--message={message}", date=date)
    return _git(folder, "rev-parse", "HEAD")


def apply_patch(patch: Path, name: str, content: bytes) -> bytes:
    """The content of a file with a patch applied to it.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        PreconditionFailed: the patch does not fit the content.
    """
    with tempfile.TemporaryDirectory() as scratch:
        # Its real path: git compares it with the folder above which it must not look for a
        # repository.
        folder = Path(scratch).resolve()
        (folder / name).write_bytes(content)
        try:
            _git(folder, "apply", "--whitespace=nowarn", "--", str(patch))
        except PreconditionFailed as error:
            raise PreconditionFailed(
                f"{patch.name} does not fit {name}: {error.what}",
                hint="Is the file the one of the repository? Create the sandbox anew.",
            ) from error
        return (folder / name).read_bytes()


def _git(folder: Path, *arguments: str, date: str = "") -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    settings = {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
        "LC_ALL": "C",
    }
    for person in ("AUTHOR", "COMMITTER"):
        settings |= {f"GIT_{person}_NAME": "sandbox", f"GIT_{person}_EMAIL": "sandbox@localhost"}
        settings |= {f"GIT_{person}_DATE": date} if date else {}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env={**environment, **settings},
            check=False,
        )
    except FileNotFoundError as error:
        raise PreconditionFailed(
            "git is not installed on this machine.", hint="Install git."
        ) from error
    if done.returncode != 0:
        raise PreconditionFailed(
            f"git {arguments[0]} failed in {folder}: {done.stderr.strip()}",
            hint="Do what git's message says, then start again.",
            changed="yes",
        )
    return done.stdout.strip()
