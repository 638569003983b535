"""The real sandbox, made and broken once for all tests that recover it."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import pytest

from helpers.sandbox.create import create


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    """Where the tests' run folders go."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def broken_sandbox(tmp_path_factory) -> Path:
    """A sandbox with every default fault; returns its root. Its target file is `sandbox.yaml` in it."""
    root = tmp_path_factory.mktemp("broken") / "sandbox"
    create(root, ["all"], print)
    return root


# The command line as a program of its own.
RECOVER = (sys.executable, "-c", "from helpers.cli import main; main()")
JOBS = "var/lib/recover-runbooks/jobs"


def tree_hashes(root: Path) -> dict[str, str]:
    """Every file, link and folder below ``root``: mode and content, by relative path.

    The empty folder in which long work is done (jobs), and its lock, are made by the first measurement.
    """
    found = {}
    for path in sorted(root.rglob("*")):
        if f"container/{JOBS}/starting".startswith(f"{path.relative_to(root)}"):
            continue
        info = path.lstat()
        if path.is_symlink():
            content = str(path.readlink())
        elif path.is_file():
            content = hashlib.sha256(path.read_bytes()).hexdigest()
        else:
            content = ""
        found[str(path.relative_to(root))] = f"{info.st_mode:o} {content}"
    return found
