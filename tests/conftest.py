"""What tests share: a Python that has torch, and hashes of whole folders.

torch is not in the operator's environment. Tests get it the way a target does: from a small virtual
environment that the package's own installer fills, once a session, out of uv's cache when it is there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import uv
from filelock import FileLock

from helpers.reach.local import LocalContainer
from helpers.reach.payload import run_payload
from helpers.target import load_target


@pytest.fixture(scope="session", autouse=True)
def state_folder(tmp_path_factory) -> Iterator[Path]:
    """Locks of the tests' containers are kept apart from the operator's own."""
    folder = tmp_path_factory.mktemp("state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session")
def torch_python(tmp_path_factory) -> Path:
    """A Python with the sandbox's declared packages, the same for all workers."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    venv = shared / "torch-venv"
    with FileLock(shared / "torch-venv.lock"):
        if not (venv / "ready").exists():
            _install_torch(venv)
            (venv / "ready").touch()
    return venv / "bin" / "python"


def _install_torch(venv: Path) -> None:
    binary = uv.find_uv_bin()
    subprocess.run([binary, "venv", "--quiet", "--python", sys.executable, str(venv)], check=True)
    environment = load_target("sandbox").environment
    document = run_payload(
        LocalContainer("tests"),
        "install_packages",
        {
            "uv": binary,
            "venv": str(venv),
            "packages": list(environment.packages),
            "torch_index": environment.torch_index,
        },
        python=sys.executable,
        purpose="install torch for the tests",
        deadline_s=1800,
        changes=True,
    )
    assert not document.errors, document.errors
