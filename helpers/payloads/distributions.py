"""What an environment's packages say that they need, read from their metadata.

Nothing is imported and nothing is changed.  The environment's Python is started once, without
``site`` (so that no ``.pth`` file of a polluted environment runs), to learn what markers like
``python_version < "3.12"`` mean there; deciding them is left to whoever reads the document.

Parameters (JSON): ``venv``, the environment's folder.

``measured``; requirements are verbatim ``Requires-Dist`` lines. ::

    {venv, exists, created_at: when pyvenv.cfg was written, UTC|null, marker_environment: {}|null,
     distributions: [{name: normalised|null, version: str|null, requires: [str], metadata: folder's
     name}]}

``name`` or ``version`` is null where the metadata is damaged.  Sent along with it: ``protocol``,
``folders``, ``inventory_machine``.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
from pathlib import Path
from typing import Any

import folders
from inventory_machine import ask
from protocol import REQUIRED, Param, Reporter, run

SCHEMA = 1
PARAMS = {"venv": Param(str, REQUIRED)}
# The variables of the standard for dependency specifiers (PEP 508), as the ``packaging`` library
# computes them.
ASK_MARKERS = """
import json, os, platform, sys
v = sys.implementation.version
level = {"alpha": "a", "beta": "b", "candidate": "rc"}.get(v.releaselevel)
print(json.dumps({
    "implementation_name": sys.implementation.name,
    "implementation_version": "%d.%d.%d" % v[:3] + (level + str(v.serial) if level else ""),
    "os_name": os.name,
    "platform_machine": platform.machine(),
    "platform_python_implementation": platform.python_implementation(),
    "platform_release": platform.release(),
    "platform_system": platform.system(),
    "platform_version": platform.version(),
    "python_full_version": platform.python_version(),
    "python_version": ".".join(platform.python_version_tuple()[:2]),
    "sys_platform": sys.platform,
}))
"""


def measure(params: dict[str, Any], reporter: Reporter) -> None:
    """Read the metadata of every package and ask the environment's Python for its markers."""
    root = Path(params["venv"])
    settings = root / "pyvenv.cfg"
    measured = reporter.measured
    measured.update(venv=str(root), exists=root.is_dir(), marker_environment=None, distributions=[])
    measured["created_at"] = folders.utc(settings.stat().st_mtime) if settings.is_file() else None
    if not root.is_dir():
        return
    text, error = ask([str(root / "bin" / "python"), "-I", "-S", "-B", "-c", ASK_MARKERS])
    if text and not error:
        measured["marker_environment"] = json.loads(text)
    else:
        reporter.error(
            "marker_environment", error or "its Python said nothing", kind="PythonSilent"
        )
    paths = [str(path) for path in sorted(root.glob("lib/python3*/site-packages"))]
    found = [_distribution(d) for d in importlib.metadata.distributions(path=paths)]
    measured["distributions"] = sorted(found, key=lambda d: (d["name"] or "", d["metadata"]))


def _distribution(distribution: importlib.metadata.Distribution) -> dict[str, Any]:
    metadata: Any = distribution.metadata or {}  # None in some Pythons when the file is not there
    name = metadata.get("Name")
    return {
        "name": re.sub(r"[-_.]+", "-", name).lower() if name else None,
        "version": metadata.get("Version"),
        # Not ``distribution.requires``, which in old Pythons reads other files than METADATA too.
        "requires": [
            str(line) for line in (metadata.get_all("Requires-Dist") if metadata else None) or []
        ],
        "metadata": os.path.basename(str(getattr(distribution, "_path", ""))),
    }


if __name__ == "__main__":
    run("distributions", SCHEMA, PARAMS, measure, deadline_s=60.0)
