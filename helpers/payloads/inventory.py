"""A read-only look at the container: how it is now.

Any Python 3.9 or newer runs it; torch is never imported and nothing is changed.

Parameters (JSON): ``sections``, a list of the names below; what a section needs is named with it.

- ``machine``: ``marker_file`` (a path or null), ``disk_paths`` (a list of paths)
- ``venv``: ``venv``, the environment's folder
- ``scripts``: ``deploy_to``, a folder, and ``files``, paths relative to it
- ``cache``: ``cache``, the compile cache's folder
- ``pip_settings``: ``venv`` (its own pip.conf counts; may be null)
- ``training_log``: ``log`` and ``throughput_pattern``, a regular expression with a group
  ``tok_per_s``

``measured`` has one key for each section asked for; a section that failed is null with an entry in
``errors`` whose ``where`` is its name, and the other sections are untouched by it.  Times are UTC,
sizes bytes. ::

    machine       {hostname, marker_file, marker, boot_id, kernel, architecture, os_release: {},
                   cpu_model, cores, memory_total_bytes, memory_available_bytes, loadavg: [3],
                   disk: [{path, measured_at, free_bytes, total_bytes, writable}],
                   compilers: [{path, version, error}],
                   pythons: [{path, version, base_prefix, ensurepip: bool|null, error}],
                   uv: [{path, version, error}],
                   nvidia: {nvidia_smi, gpus: [line], driver: [line], error}}
    venv          {path, exists, is_symlink, real_path, set_aside: [path],
                   unfinished: [{path, left: [path in it that still points here], error}],
                   processes: [{pid, started_at, command, evidence: [exe|argv0|VIRTUAL_ENV|maps]}]
                   and when it exists: pyvenv_cfg: {}|null,
                   python: {path, version, base_prefix, executable, error},
                   packages: [{name, version, installer, editable, direct_url, metadata}],
                   pth_files: [path], bytes, files, foreign_scripts: [{script, interpreter}]}
    scripts       {folder, exists, files: [file], undeclared: [file]}
                   file = {path, exists} and when it exists {sha256, md5, bytes, mode, mtime,
                   tampering: [{line, text}]}
    cache         {path, exists, files, bytes, oldest, newest,
                   kinds: {fxgraph|aotautograd|triton|compiled|other: {files, bytes}},
                   set_aside: [{path, files, bytes}]}
    pip_settings  {files: [{kind, path, exists, error}], index_url: value,
                   extra_index_urls, find_links, constraints, trusted_hosts: [value],
                   no_index, pre: bool, cert, client_cert, proxy, timeout_s, only_binary,
                   no_binary: value|null, not_carried_over: [{name, ...value}]}
                   value = {value, source, secret}; a password is never in it
    training_log  {path, exists} and when it exists {bytes, mtime, read_bytes, last_lines: [20],
                   tok_per_s: [the last 50], error_lines: [the last 5]}

Sent along with it: ``protocol``, ``pip_settings``, ``inventory_machine``, ``inventory_venv``,
``relocation``, ``relocation_record``, ``folders``, ``cpu_use``.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import folders
import inventory_machine
import inventory_venv
import pip_settings
from protocol import REQUIRED, Param, Reporter, run

SCHEMA = 1
LOG_READ_BYTES = 8 * 1024 * 1024
GUARD_NAMES = ("is_fx_symbolic_tracing", "_is_fx_tracing_flag", "error_on_nested_fx_trace")


def scripts(params: dict[str, Any]) -> dict[str, Any]:
    """The deployed training scripts, and other Python files beside them."""
    folder = Path(params["deploy_to"])
    declared = [_file(folder, name) for name in params["files"]]
    there = sorted(p.name for p in folder.glob("*.py")) if folder.is_dir() else []
    undeclared = [_file(folder, name) for name in there if name not in params["files"]]
    return {
        "folder": str(folder),
        "exists": folder.is_dir(),
        "files": declared,
        "undeclared": undeclared,
    }


def _file(folder: Path, name: str) -> dict[str, Any]:
    path = folder / name
    if not path.is_file():
        return {"path": name, "exists": False}
    content, facts = path.read_bytes(), path.stat()
    return {
        "path": name,
        "exists": True,
        "sha256": hashlib.sha256(content).hexdigest(),
        "md5": hashlib.md5(content, usedforsecurity=False).hexdigest(),
        "bytes": len(content),
        "mode": f"{facts.st_mode & 0o7777:04o}",
        "mtime": folders.utc(facts.st_mtime),
        "tampering": _tampering(content.decode("utf-8", "backslashreplace"))
        if name.endswith(".py")
        else [],
    }


def _tampering(text: str) -> list[dict[str, Any]]:
    """Lines that set what guards torch.compile against tracing threads.

    Comments and reads do not count.
    """
    try:
        numbers = {number for node in ast.walk(ast.parse(text)) for number in _overrides(node)}
    except SyntaxError:
        mention = re.compile("|".join(GUARD_NAMES))
        numbers = {n for n, line in enumerate(text.splitlines(), 1) if mention.search(line)}
    lines = text.splitlines()
    return [{"line": n, "text": lines[n - 1].strip()[:200]} for n in sorted(numbers)]


def _overrides(node: ast.AST) -> Iterator[int]:
    if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        parts = [part for target in targets for part in ast.walk(target)]
        names = [getattr(part, "attr", getattr(part, "id", None)) for part in parts]
        names += [_constant(part.slice) for part in parts if isinstance(part, ast.Subscript)]
    elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        names = [node.name]
    elif isinstance(
        node, ast.Call
    ):  # setattr(module, "name", …), patch.object(…), config.patch(name=…)
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        words = [_constant(argument) for argument in node.args]
        names = [keyword.arg for keyword in node.keywords]
        names += words if called in ("setattr", "patch", "object", "setitem") else []
        names = [name.rpartition(".")[2] for name in names if isinstance(name, str)]
    else:
        return
    if any(name in GUARD_NAMES for name in names):
        yield node.lineno


def _constant(node: ast.AST) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def cache(params: dict[str, Any]) -> dict[str, Any]:
    """The compile cache and those set aside beside it."""
    root = Path(params["cache"])
    kinds = {
        kind: {"files": 0, "bytes": 0}
        for kind in ("fxgraph", "aotautograd", "triton", "compiled", "other")
    }
    times = []
    for path, facts in folders.walk(root):
        kind = kinds[_kind(os.path.relpath(path, root))]
        kind["files"] += 1
        kind["bytes"] += facts.st_size
        times.append(facts.st_mtime)
    aside = sorted(root.parent.glob(root.name + ".set-aside-*"))
    return {
        "path": str(root),
        "exists": root.is_dir(),
        "files": sum(kind["files"] for kind in kinds.values()),
        "bytes": sum(kind["bytes"] for kind in kinds.values()),
        "oldest": folders.utc(min(times)) if times else None,
        "newest": folders.utc(max(times)) if times else None,
        "kinds": kinds,
        "set_aside": [{"path": str(path), **folders.size(path)} for path in aside],
    }


def _kind(path: str) -> str:
    first = path.split(os.sep)[0]
    if first in ("fxgraph", "aotautograd", "triton"):
        return first
    return (
        "compiled"
        if re.search(r"\.(so|o|cpp|h|hpp|py|gch|pch|cubin|main\.\w+)$", path)
        else "other"
    )


def training_log(params: dict[str, Any]) -> dict[str, Any]:
    """The end of the training log: its last lines, throughput and errors."""
    path, pattern = Path(params["log"]), re.compile(params["throughput_pattern"])
    if not path.is_file():
        return {"path": str(path), "exists": False}
    with path.open("rb") as file:
        total = file.seek(0, os.SEEK_END)
        file.seek(max(0, total - LOG_READ_BYTES))
        content = file.read(LOG_READ_BYTES)
    lines = re.split(r"[\r\n]+", content.decode("utf-8", "backslashreplace"))
    found = [match.group("tok_per_s") for match in map(pattern.search, lines) if match]
    return {
        "path": str(path),
        "exists": True,
        "bytes": total,
        "mtime": folders.utc(path.stat().st_mtime),
        "read_bytes": len(content),
        "last_lines": [line for line in lines if line][-20:],
        "tok_per_s": [float(value) for value in found[-50:]],
        "error_lines": [line for line in lines if "Error" in line or "Traceback" in line][-5:],
    }


SECTIONS: dict[str, tuple[tuple[str, ...], Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "machine": ((), lambda p: inventory_machine.look(p["marker_file"], p["disk_paths"])),
    "venv": (("venv",), lambda p: inventory_venv.look(p["venv"])),
    "scripts": (("deploy_to",), scripts),
    "cache": (("cache",), cache),
    "pip_settings": ((), lambda p: pip_settings.describe(pip_settings.read(p["venv"], os.environ))),
    "training_log": (("log", "throughput_pattern"), training_log),
}
PARAMS = {
    "sections": Param(list, REQUIRED, items=str, choices=tuple(SECTIONS)),
    "marker_file": Param(str, None),
    "disk_paths": Param(list, [], items=str),
    "venv": Param(str, None),
    "deploy_to": Param(str, None),
    "files": Param(list, [], items=str),
    "cache": Param(str, None),
    "log": Param(str, None),
    "throughput_pattern": Param(str, None),
}


def measure(params: dict[str, Any], reporter: Reporter) -> None:
    """Look at each section by itself."""
    for name in params["sections"]:
        reporter.progress(section=name)
        reporter.measured[name] = None
        with reporter.guard(name):
            needed, look = SECTIONS[name]
            missing = [need for need in needed if params[need] is None]
            if missing:
                raise ValueError(f"the section {name} needs the parameter {', '.join(missing)}")
            reporter.measured[name] = look(params)


if __name__ == "__main__":
    run("inventory", SCHEMA, PARAMS, measure, deadline_s=120.0)
