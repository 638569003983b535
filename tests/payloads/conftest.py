"""What the tests of payloads share: Pythons to run them, both ways to start them, small real wheels."""

from __future__ import annotations

import ast
import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

PAYLOADS = Path(__file__).resolve().parents[2] / "helpers" / "payloads"
BOOTSTRAP = (PAYLOADS / "bootstrap.py").read_text(encoding="utf-8")


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
    file: Path, params: object, *, python: str = sys.executable, env: Mapping[str, str] | None = None
) -> Answer:
    """Start a payload as a person would: ``python payload.py '{…}'``."""
    done = subprocess.run(
        [python, "-B", str(file), json.dumps(params)],
        stdin=subprocess.DEVNULL, capture_output=True, env={**os.environ, **(env or {})}, timeout=300,
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
            waiting += [f"{n}.py" for n in names if (folder / f"{n}.py").is_file() and f"{n}.py" not in files]
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
        f"{module}.py": f'__version__ = "{version}"\n\n\ndef main():\n    print("{name} {version}")\n',
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {need}\n" for need in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
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
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")


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
        content = os.readlink(path).encode() if path.is_symlink() else b""
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
        digest.update(f"{path} {facts.st_mode} {facts.st_mtime_ns}\n".encode() + content)
    return digest.hexdigest()
