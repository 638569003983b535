"""The user's training step behind its small contract, as the payloads use it.

The contract is one Python file with ``build(device: str, role: str, shape: dict) -> step``;
``step()`` runs one training step and returns the number of tokens it processed.  A step may have an
attribute ``loss``, a function that gives the last loss as a number, when a step built anew gives
the same losses again: then what threads compute can be compared.  A file that breaks it is an error
of the file, told in its terms.  Sent along with the payloads that need it.  Standard library only,
Python 3.9 and newer.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol import ParamsRefused

Step = Callable[[], int]
Build = Callable[[str, str, "dict[str, Any]"], Step]
MODULE_NAME = "workload"
SEED = 0  # set before every build, so that models begin alike wherever they are built
CACHE_VARIABLES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")


class ContractBroken(Exception):
    """The workload file does not keep its contract."""


def load(workload: str) -> Build:
    """Import the workload file, its own folder first on the path, and return its ``build``."""
    path = Path(workload)
    if not path.is_file():
        raise ContractBroken(f"there is no workload file {workload}")
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path)
    if spec is None or spec.loader is None:
        raise ContractBroken(f"{workload} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[MODULE_NAME] = module
    spec.loader.exec_module(module)
    build: Build | None = getattr(module, "build", None)
    if not callable(build):
        raise ContractBroken(f"{workload} has no function build(device, role, shape)")
    return build


def take(step: Step) -> int:
    """Run one step and return its tokens."""
    tokens = step()
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise ContractBroken(
            f"step() must return the number of tokens it processed, not {tokens!r}"
        )
    return tokens


def loss(step: Step) -> float | None:
    """The loss of the last step taken; None where the step does not say."""
    read = getattr(step, "loss", None)
    return None if read is None else float(read())


def loaded_files(workload: str) -> dict[str, str | None]:
    """SHA-256 of every file below the workload's folder that a module was loaded from, until now.

    Call it after the steps ran: they may import too.  Left out is what a Python environment or a
    compile cache that lies in that folder holds.  None: the file is gone.

    Returns:
        By path relative to the workload's folder.
    """
    folder = os.path.dirname(os.path.abspath(workload))
    homes = {folder, os.path.realpath(folder)}
    caches = (os.environ.get(name) for name in CACHE_VARIABLES)
    apart = [sys.prefix, sys.base_prefix, *filter(None, caches)]
    apart += [os.path.realpath(path) for path in apart]
    found = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str):
            continue
        path = os.path.abspath(file)
        for home in homes:
            skipped = (part for part in apart if _inside(part, home))
            if _inside(path, home) and not any(_inside(path, part) for part in skipped):
                found[os.path.relpath(path, home)] = _sha256(path)
    return dict(sorted(found.items()))


def _inside(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip("/") + "/")


def _sha256(path: str) -> str | None:
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return None


def check_roles(roles: list[dict[str, Any]]) -> None:
    """Refuse roles of another shape than ``{"name": str, "devices": [str], "shapes": [{}]}``."""
    for role in roles:
        fits = (
            set(role) == {"name", "devices", "shapes"}
            and isinstance(role["name"], str)
            and _holds(role["devices"], str)
            and _holds(role["shapes"], dict)
        )
        if not fits:
            raise ParamsRefused(
                f'a role must be {{"name", "devices": [..], "shapes": [{{}}]}}, not {role!r}'
            )
    if not roles:
        raise ParamsRefused("there must be at least one role")


def _holds(value: object, kind: type) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(item, kind) for item in value)
