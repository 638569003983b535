"""A Python environment: what is installed, whether it runs, and who runs from it.

A part of ``inventory``; sent along with it.  Packages are read from their metadata and never
imported. Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import folders
import pip_settings
import relocation_record
from inventory_machine import ask

FIRST_LINE = re.compile(r"#!\s*(?P<python>/\S*python[\d.]*)\s")
# What installers write when a path is too long for a first line, or has a space in it.
LONG_FIRST_LINE = re.compile(
    r"""#!/bin/sh\s*\n'''exec' (["']?)(?P<python>/[^"'\n]*python[\d.]*)\1 """
)
ASK_PYTHON = "import json, sys; print(json.dumps([sys.version, sys.base_prefix, sys.executable]))"


def look(venv: str) -> dict[str, Any]:
    """Everything about one environment. **Changes:** nothing."""
    root = Path(venv)
    aside = sorted(root.parent.glob(root.name + ".set-aside-*"))
    measured: dict[str, Any] = {
        "path": venv,
        "exists": root.is_dir(),
        "is_symlink": root.is_symlink(),
        "real_path": os.path.realpath(venv),
        "set_aside": [str(path) for path in aside],
        "unfinished": list(_unfinished(aside)),
        "processes": _processes(venv),
    }
    if root.is_dir():
        measured.update(
            pyvenv_cfg=_pyvenv_cfg(root),
            python=_python(root),
            packages=_packages(root),
            pth_files=sorted(
                str(p.relative_to(root)) for s in _site_packages(root) for p in s.glob("*.pth")
            ),
            **folders.size(venv),
            foreign_scripts=list(_foreign_scripts(root)),
        )
    return measured


def _unfinished(aside: list[Path]) -> Iterator[dict[str, Any]]:
    """Environments whose setting aside was cut short: what starts from them runs elsewhere."""
    for path in aside:
        try:
            left, error = relocation_record.unfinished(path), None
        except (OSError, ValueError, KeyError) as problem:
            left, error = [], f"{relocation_record.RECORD}: {type(problem).__name__}: {problem}"
        if left or error:
            yield {"path": str(path), "left": left, "error": error}


def _pyvenv_cfg(root: Path) -> dict[str, str] | None:
    file = root / "pyvenv.cfg"
    if not file.is_file():
        return None
    pairs = (line.partition("=") for line in file.read_text(encoding="utf-8").splitlines())
    return {name.strip(): value.strip() for name, equals, value in pairs if equals}


def _python(root: Path) -> dict[str, Any]:
    """What the environment's Python says of itself when it is started."""
    python = root / "bin" / "python"
    text, error = ask([str(python), "-I", "-B", "-c", ASK_PYTHON])
    lines = (text or "").strip().splitlines()  # a .pth file may have printed something before
    if error or not lines:
        return {
            "path": str(python),
            "version": None,
            "base_prefix": None,
            "executable": None,
            "error": error,
        }
    version, base_prefix, executable = json.loads(lines[-1])
    return {
        "path": str(python),
        "version": version.split()[0],
        "base_prefix": base_prefix,
        "executable": executable,
        "error": None,
    }


def _site_packages(root: Path) -> list[Path]:
    return sorted(root.glob("lib/python3*/site-packages"))


def _packages(root: Path) -> list[dict[str, Any]]:
    found = []
    for distribution in importlib.metadata.distributions(
        path=[str(p) for p in _site_packages(root)]
    ):
        metadata: Any = distribution.metadata or {}  # None, or without a name: damaged
        name = metadata.get("Name")
        direct = json.loads(distribution.read_text("direct_url.json") or "null")
        found.append(
            {
                "name": re.sub(r"[-_.]+", "-", name).lower() if name else None,
                "version": metadata.get("Version"),
                "installer": (distribution.read_text("INSTALLER") or "").strip() or None,
                "editable": bool(((direct or {}).get("dir_info") or {}).get("editable")),
                "direct_url": pip_settings.mask(str((direct or {}).get("url") or "")) or None,
                "metadata": os.path.basename(str(getattr(distribution, "_path", ""))),
            }
        )
    return sorted(found, key=lambda package: (package["name"] or "", package["metadata"]))


def _foreign_scripts(root: Path) -> Iterator[dict[str, str]]:
    """Console scripts that would start another Python than this environment's."""
    inside = (str(root) + "/", os.path.realpath(root) + "/")
    for script in sorted((root / "bin").glob("*")):
        if script.is_symlink() or not script.is_file():
            continue
        with script.open("rb") as file:
            start = file.read(8192).decode("utf-8", "backslashreplace")
        found = FIRST_LINE.match(start) or LONG_FIRST_LINE.match(start)
        if found and not found.group("python").startswith(inside):
            yield {"script": str(script), "interpreter": found.group("python")}


def _processes(venv: str) -> list[dict[str, Any]]:
    """Other processes that use the environment, with how that shows.

    A venv's ``bin/python`` is a link, so ``/proc/PID/exe`` names the base interpreter: what the
    process was called as, its VIRTUAL_ENV and the libraries it has mapped tell more.  ``maps``
    follows a renamed folder, ``argv0`` and ``VIRTUAL_ENV`` are only what was true at the start.
    """
    own = set(_ancestors(os.getpid()))
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) in own:
            continue
        try:
            evidence = _uses(folder, (venv.rstrip("/") + "/", os.path.realpath(venv) + "/"))
            if evidence:
                found.append(_process(folder, evidence))
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it ended meanwhile, or is another user's
    return sorted(found, key=lambda process: process["pid"])


def _uses(process: Path, inside: tuple[str, str]) -> list[str]:
    words = (process / "cmdline").read_bytes().decode("utf-8", "surrogateescape").split("\0")
    if words == [""]:
        return []  # a kernel thread
    environment = (process / "environ").read_bytes().decode("utf-8", "surrogateescape").split("\0")
    active = next(
        (e[12:].rstrip("/") + "/" for e in environment if e.startswith("VIRTUAL_ENV=")), ""
    )
    called_as = os.path.normpath(os.path.join(os.readlink(process / "cwd"), words[0]))
    maps = (process / "maps").read_text(encoding="utf-8", errors="surrogateescape")
    mapped = {line.split(None, 5)[-1] for line in maps.splitlines() if line.count("/") > 1}
    signs = {
        "exe": os.readlink(process / "exe").startswith(inside),
        "argv0": "/" in words[0] and called_as.startswith(inside),
        "VIRTUAL_ENV": active.startswith(inside),
        "maps": any(path.startswith(inside) for path in mapped),
    }
    return [sign for sign, shown in signs.items() if shown]


def _process(process: Path, evidence: list[str]) -> dict[str, Any]:
    command = (process / "cmdline").read_bytes().decode("utf-8", "backslashreplace")
    return {
        "pid": int(process.name),
        "started_at": started_at(int(process.name)),
        "command": command.replace("\0", " ").strip()[:500],
        "evidence": evidence,
    }


def _stat(pid: int) -> list[str]:
    """Fields of ``/proc/PID/stat`` from the state on: the name before them may hold spaces."""
    return (
        Path(f"/proc/{pid}/stat")
        .read_text(encoding="utf-8", errors="replace")
        .rpartition(")")[2]
        .split()
    )


def _ancestors(pid: int) -> Iterator[int]:
    while pid > 0:
        yield pid
        try:
            pid = int(_stat(pid)[1])
        except FileNotFoundError:  # the parent is hidden from us
            return


def started_at(pid: int) -> str:
    """When a process started, UTC. **Changes:** nothing."""
    booted = re.search(r"^btime (\d+)$", Path("/proc/stat").read_text(encoding="utf-8"), re.M)
    seconds = int(booted.group(1) if booted else 0) + int(_stat(pid)[19]) / os.sysconf("SC_CLK_TCK")
    return folders.utc(seconds)
