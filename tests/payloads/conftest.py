"""What the tests of payloads share: Pythons, both ways to start a payload, small real wheels."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import uv

PAYLOADS = Path(__file__).resolve().parents[2] / "helpers" / "payloads"
UV = uv.find_uv_bin()
BOOTSTRAP = (PAYLOADS / "bootstrap.py").read_text(encoding="utf-8")

HEAD = """
import ctypes, os, subprocess, sys, threading, time
import protocol
from protocol import REQUIRED, Param, ParamsRefused, run

PARAMS = {
    "count": Param(int, REQUIRED),
    "ratio": Param(float, 0.5),
    "names": Param(list, [], items=str),
    "mode": Param(str, "a", choices=("a", "b")),
    "kinds": Param(list, [], items=str, choices=("x", "y")),
    "quiet": Param(bool, False),
    "note": Param(str, None),
}

def measure(params, reporter):
    reporter.measured["first"] = 1
"""
TAIL = """
run("trial", 3, PARAMS, measure)
"""


def pythons() -> list[str]:
    """The running Python, and one of each other version from 3.9 on that pyenv keeps here."""
    found = {sys.version_info[:2]: sys.executable}
    for python in sorted(Path.home().glob(".pyenv/versions/3.*/bin/python3")):
        version = tuple(int(part) for part in python.parts[-3].split(".")[:2])
        if version >= (3, 9):
            found.setdefault(version, str(python))
    return list(found.values())


@dataclass(frozen=True)
class Answer:
    """What a payload answered."""

    code: int
    document: dict
    stdout: str
    stderr: str

    @property
    def measured(self) -> dict:
        return self.document["measured"]

    @property
    def progress(self) -> list[dict]:
        lines = [line for line in self.stderr.splitlines() if line.startswith('{"progress"')]
        return [json.loads(line)["progress"] for line in lines]


def answer(code: int, stdout: bytes, stderr: bytes) -> Answer:
    text = stdout.decode()
    document = json.loads(text.splitlines()[-1], parse_constant=pytest.fail)
    assert list(document) == [
        "payload", "schema", "params", "started_at", "elapsed_s", "measured", "errors",
    ]  # fmt: skip
    for error in document["errors"]:
        assert set(error) == {"where", "type", "message", "traceback"}
    return Answer(code, document, text, stderr.decode("utf-8", "backslashreplace"))


def by_hand(
    file: Path,
    params: object,
    *,
    python: str = sys.executable,
    env: Mapping[str, str] | None = None,
) -> Answer:
    """Start a payload as a person would: ``python payload.py '{…}'``."""
    done = subprocess.run(
        [python, "-B", str(file), json.dumps(params)],
        stdin=subprocess.DEVNULL, capture_output=True, env={**os.environ, **(env or {})},
        timeout=300,
    )  # fmt: skip
    return answer(done.returncode, done.stdout, done.stderr)


def request(name: str, params: object, folder: Path = PAYLOADS) -> dict:
    """The document that the bootstrap reads: a payload and what it imports of its own folder."""
    files: dict[str, str] = {}
    waiting = [f"{name}.py"]
    while waiting:
        file = waiting.pop()
        files[file] = (folder / file).read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(files[file])):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            waiting += [
                f"{n}.py"
                for n in names
                if (folder / f"{n}.py").is_file() and f"{n}.py" not in files
            ]
    hashes = {file: hashlib.sha256(text.encode()).hexdigest() for file, text in files.items()}
    return {"files": files, "sha256": hashes, "run": f"{name}.py", "params": params}


def sent(
    name: str,
    params: object,
    *,
    python: str | Path = sys.executable,
    env: Mapping[str, str] | None = None,
    folder: Path = PAYLOADS,
    cwd: Path | None = None,
) -> Answer:
    """Start a payload as the operator's side does: everything over standard input."""
    done = subprocess.run(
        [str(python), "-B", "-c", BOOTSTRAP],
        input=json.dumps(request(name, params, folder)).encode(),
        capture_output=True, env={**os.environ, **(env or {})}, timeout=600, cwd=cwd,
    )  # fmt: skip
    return answer(done.returncode, done.stdout, done.stderr)


def wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: tuple[str, ...] = (),
    scripts: Mapping[str, str] | None = None,
) -> Path:
    """A small real wheel: one module that knows its version, and perhaps console scripts."""
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    points = "".join(f"{script} = {target}\n" for script, target in (scripts or {}).items())
    files = {
        f"{module}.py": f"def main():\n    print('{name} {version}')\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {need}\n" for need in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if points:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{points}"
    record = [f"{path},{_digest(text)},{len(text.encode())}" for path, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,", ""])
    path = folder / f"{module}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in files.items():
            archive.writestr(file, text)
    return path


def _digest(text: str) -> str:
    return "sha256=" + base64.urlsafe_b64encode(
        hashlib.sha256(text.encode()).digest()
    ).decode().rstrip("=")


def index(folder: Path, wheels: list[Path]) -> str:
    """A package index in a folder, as a ``file://`` URL."""
    projects: dict[str, list[Path]] = {}
    for path in wheels:
        projects.setdefault(path.name.split("-")[0].replace("_", "-"), []).append(path)
    for project, files in projects.items():
        page = folder / "simple" / project / "index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        links = "".join(f'<a href="{path.as_uri()}">{path.name}</a>\n' for path in files)
        page.write_text(f"<!DOCTYPE html><html><body>\n{links}</body></html>\n")
    return (folder / "simple").as_uri()


def tree_hash(folder: Path) -> str:
    """SHA-256 over the names, links, contents and times of everything in a folder."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        facts = path.lstat()
        content = str(path.readlink()).encode() if path.is_symlink() else b""
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
        digest.update(f"{path} {facts.st_mode} {facts.st_mtime_ns}\n".encode() + content)
    return digest.hexdigest()


def look(section: str, **params):
    """One section, which must have worked."""
    got = sent("inventory", {"sections": [section], **params})
    assert got.code == 0
    assert got.document["errors"] == []
    return got.measured[section]


def make_venv(path: Path, *wheels: Path) -> Path:
    """A real environment that holds the given wheels."""
    subprocess.run([UV, "venv", "-q", "--python", sys.executable, str(path)], check=True)
    if wheels:
        command = [UV, "pip", "install", "-q", "--offline", "--no-deps"]
        subprocess.run([*command, "--python", f"{path}/bin/python", *wheels], check=True)
    return path


@pytest.fixture(scope="session")
def venv(tmp_path_factory):
    """An environment with two packages and a console script."""
    folder = tmp_path_factory.mktemp("venv")
    first = wheel(folder / "wheels", "Some.Package", "1.5", scripts={"greet": "Some.Package:main"})
    second = wheel(folder / "wheels", "other-package", "2.0+cpu")
    return make_venv(folder / "venv", first, second)


@pytest.fixture
def trial(tmp_path):
    """Writes a payload whose measuring function has the given lines."""

    def write(body: str, before: str = "") -> Path:
        shutil.copy(PAYLOADS / "protocol.py", tmp_path)
        lines = "".join(f"    {line}\n" for line in body.splitlines())
        file = tmp_path / "trial.py"
        file.write_text(HEAD + lines + before + TAIL)
        return file

    return write


@pytest.fixture(params=pythons(), ids=lambda python: Path(python).parts[-3])
def python(request):
    """Each Python in turn."""
    return request.param


# Dictionaries whose keys are data and not part of the shape.
KEYED_BY_DATA = {"os_release", "environment", "pyvenv_cfg", "files", "devices", "roles", "shape"}


def differences(now: object, captured: object, path: str = "") -> list[str]:
    """Where a captured document has another shape than one of today."""
    if isinstance(now, dict) and isinstance(captured, dict):
        found = [f"{path}.{key}" for key in now.keys() ^ captured.keys()]
        for key in now.keys() & captured.keys():
            if not (key in KEYED_BY_DATA and isinstance(now[key], dict)):
                found += differences(now[key], captured[key], f"{path}.{key}")
        return found
    if isinstance(now, list) and isinstance(captured, list):
        return differences(now[0], captured[0], f"{path}[0]") if now and captured else []
    return []


def captured(name: str) -> dict:
    """What a captured document measured."""
    text = (Path(__file__).parent / "captured" / f"{name}.json").read_text(encoding="utf-8")
    return json.loads(text)["measured"]
