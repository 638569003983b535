"""Why an environment must be rebuilt: what was found, held against what is declared.

Pure; it must not know how an environment is rebuilt.
"""

from __future__ import annotations

from typing import Any

from helpers.recover.work import Json
from helpers.target import Target


def venv_module(machine: Json | None, version: str) -> Json:
    """Whether ``python3 -m venv`` could work in the container: it needs ensurepip.

    **Changes:** nothing.

    Returns:
        ``works`` (None = there is no such Python), the ``python`` asked, and ``why``.
    """
    pythons: Any = (machine or {}).get("pythons")
    found = [p for p in pythons or () if _is_version(p["version"], version)]
    if not found:
        return {
            "works": None,
            "python": None,
            "why": f"no Python {version} was found in the container",
        }
    # The one that works, if any: it is the one that a person would use.
    python = next((p for p in found if p["ensurepip"]), found[0])
    why = "ensurepip is there" if python["ensurepip"] else f"{python['error']}"
    return {"works": python["ensurepip"], "python": python["path"], "why": why}


def _is_version(found: str | None, wanted: str) -> bool:
    return found is not None and found.split(".")[:2] == wanted.split(".")


def reasons(facts: Json, target: Target) -> list[str]:
    """Why the environment must be rebuilt; empty when it is as declared. **Changes:** nothing."""
    venv: Any = facts["venv"]
    if venv is None:
        return ["the environment could not be looked at"]
    if not venv["exists"]:
        return [f"there is no environment at {target.environment.venv}"]
    if venv["python"]["error"]:
        return [f"its Python does not run: {venv['python']['error']}"]
    found = []
    if not _is_version(venv["python"]["version"], target.environment.python):
        found.append(
            f"it is Python {venv['python']['version']}, declared is {target.environment.python}"
        )
    if (venv["pyvenv_cfg"] or {}).get("include-system-site-packages") == "true":
        found.append("it also sees the system's packages")
    comparison: Any = facts["comparison"]
    if comparison is None:
        found.append("its packages could not be read")
    else:
        found += [f"{kind}: {', '.join(names)}" for kind, names in comparison.items() if names]
    editable = [package["name"] for package in venv["packages"] if package["editable"]]
    if editable:
        found.append(f"installed from a folder that may change: {', '.join(map(str, editable))}")
    foreign = [script["script"].rpartition("/")[2] for script in venv["foreign_scripts"]]
    if foreign:
        found.append(f"scripts that start another Python: {', '.join(foreign)}")
    return found
