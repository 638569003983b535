"""The machine itself: identity, kernel, CPU, memory, disk, compilers, Pythons, uv, GPUs' driver.

A part of ``inventory``; sent along with it.  Everything comes from files and from programs that
only answer; nothing is changed.  Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from cpu_use import cpu_model

ANSWER_TIMEOUT_S = 20.0
MORE_PROGRAM_FOLDERS = ("~/.local/bin", "~/.cargo/bin", "/usr/local/bin", "/usr/bin", "/bin")
PYTHON_NAME = re.compile(r"^python(3(\.\d+)?)?$")
# One start of each Python tells its version and whether `python -m venv` can give pip to what it
# makes.
ASK_PYTHON = """
import json, sys
try:
    import ensurepip, venv
    works, why = True, ensurepip.version()
except Exception as error:
    works, why = False, f"{type(error).__name__}: {error}"
version = ".".join(map(str, sys.version_info[:3]))
print(json.dumps([version, sys.base_prefix, works, why]))
"""


def look(marker_file: str | None, disk_paths: list[str]) -> dict[str, Any]:
    """Everything about the machine. **Changes:** nothing."""
    memory = _memory()
    return {
        "hostname": os.uname().nodename,
        "marker_file": marker_file,
        "marker": _text(marker_file) if marker_file else None,
        "boot_id": _text("/proc/sys/kernel/random/boot_id"),
        "kernel": os.uname().release,
        "architecture": os.uname().machine,
        "os_release": _os_release(),
        "cpu_model": cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_total_bytes": memory.get("MemTotal"),
        "memory_available_bytes": memory.get("MemAvailable"),
        "loadavg": list(os.getloadavg()),
        "disk": [_disk(path) for path in disk_paths],
        "compilers": [found for found in map(_program, ("cc", "gcc", "g++", "c++")) if found],
        "pythons": _pythons(),
        "uv": [found for found in map(_answer, _everywhere("uv")) if found],
        "nvidia": _nvidia(),
    }


def _text(path: str) -> str | None:
    """A small file's text, white space at the ends aside; None when there is no such file."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="backslashreplace").strip()
    except FileNotFoundError:
        return None


def _os_release() -> dict[str, str]:
    pairs = (line.partition("=") for line in (_text("/etc/os-release") or "").splitlines())
    return {name: value.strip('"') for name, equals, value in pairs if equals}


def _memory() -> dict[str, int]:
    found = re.findall(r"^(\w+):\s+(\d+) kB$", _text("/proc/meminfo") or "", re.M)
    return {name: int(kilobytes) * 1024 for name, kilobytes in found}


def _disk(path: str) -> dict[str, Any]:
    """Space where ``path`` lies or would lie."""
    existing = Path(path)
    while not existing.exists():
        existing = existing.parent
    usage = shutil.disk_usage(existing)
    return {
        "path": path,
        "measured_at": str(existing),
        "free_bytes": usage.free,
        "total_bytes": usage.total,
        "writable": os.access(existing, os.W_OK),
    }


def _everywhere(name: str) -> list[str]:
    """Every program of that name, also in folders that a container's short PATH leaves out."""
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    folders += [os.path.expanduser(folder) for folder in MORE_PROGRAM_FOLDERS]
    found: dict[str, str] = {}
    for folder in filter(None, folders):
        path = shutil.which(name, path=folder)
        if path:
            found.setdefault(os.path.realpath(path), path)
    return list(found.values())


def _program(name: str) -> dict[str, Any] | None:
    path = shutil.which(name)
    return _answer(path) if path else None


def _answer(path: str) -> dict[str, Any]:
    """What a program says to ``--version``."""
    text, error = ask([path, "--version"])
    lines = (text or "").splitlines()
    return {"path": path, "version": lines[0] if lines else None, "error": error}


def _pythons() -> list[dict[str, Any]]:
    names: dict[str, None] = {}
    for folder in filter(None, os.environ.get("PATH", os.defpath).split(os.pathsep)):
        if os.path.isdir(folder):
            names.update(
                dict.fromkeys(n for n in sorted(os.listdir(folder)) if PYTHON_NAME.match(n))
            )
    paths: dict[str, None] = {}
    for name in names:
        paths.update(dict.fromkeys(_everywhere(name)))
    once = {os.path.realpath(path): path for path in paths}
    with ThreadPoolExecutor(max_workers=4) as starter:
        return list(starter.map(_python, once.values()))


def _python(path: str) -> dict[str, Any]:
    text, error = ask([path, "-I", "-B", "-c", ASK_PYTHON])
    if error or not (text or "").strip():
        return {
            "path": path,
            "version": None,
            "base_prefix": None,
            "ensurepip": None,
            "error": error,
        }
    version, base_prefix, works, why = json.loads((text or "").strip().splitlines()[-1])
    return {
        "path": path,
        "version": version,
        "base_prefix": base_prefix,
        "ensurepip": works,
        "error": None if works else why,
    }


def _nvidia() -> dict[str, Any]:
    path = shutil.which("nvidia-smi")
    text, error = ask([path, "-L"]) if path else (None, None)
    return {
        "nvidia_smi": path,
        "gpus": [line for line in (text or "").splitlines() if line.startswith("GPU ")],
        "driver": (_text("/proc/driver/nvidia/version") or "").splitlines()[:1],
        "error": error,
    }


def ask(argv: list[str], timeout_s: float = ANSWER_TIMEOUT_S) -> tuple[str | None, str | None]:
    """Output of a program that only answers, and what was wrong with it, if anything.

    **Changes:** nothing.
    """
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=timeout_s,
            text=True,
            errors="backslashreplace",
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, f"{type(error).__name__}: {error}"
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-3:]
        return done.stdout, f"exit code {done.returncode}: {' / '.join(last)}"
    return done.stdout, None
