"""Install packages into an environment with uv, from where this machine's pip would take them.

Parameters (JSON):

- ``uv``: path of uv (0.7 or newer)
- ``venv``: the environment's folder; it must exist unless ``dry_run``
- ``packages``: requirements
- ``torch_index``: an index for torch, torchvision and torchaudio, or null.  Its last part names the
  build that is wanted (``.../whl/cpu``, ``.../whl/cu128``).  It is asked only when the machine's
  own folders and ``file://`` indexes do not offer every such requirement in that build, and after
  all of the machine's own indexes.
- ``lock``: null, or the text of an earlier ``lock``: every version in it is kept
- ``dry_run``: only resolve (default false)
- ``python_version``: for a dry run without an environment, for instance ``"3.11"``

**Changes:** the environment, and uv's cache; with ``dry_run`` only uv's cache.

``measured``; passwords are never in it.  When a command of uv fails, ``errors`` has its last lines
and the exit code is 1. ::

    {uv: {path, version}, settings: as ``pip_settings`` in inventory,
     torch: {requirements: [str], wanted_build: "cpu"|null, offered_locally: bool|null,
             index_asked: str|null, why: one sentence}, dry_run: bool,
     resolved: [{name, version, file: name of the wheel|null, source: URL without the file|null,
                                bytes: int|null, sha256: str|null}],
     torch_file: file of torch in ``resolved``, or null,
     install: null in a dry run, or {command: text, returncode, elapsed_s, lines: [uv's output],
              downloads: [{name, bytes}], downloaded_bytes: as far as uv names sizes},
     lock: [requirement lines of ``uv pip freeze``]|null, check: {ok: bool, lines: [str]}|null}

Sent along with it: ``protocol``, ``pip_settings``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
import urllib.parse
from pathlib import Path
from typing import Any

import pip_settings
from pip_settings import Sources
from protocol import REQUIRED, Param, ParamsRefused, Reporter, run

SCHEMA = 1
TORCH_FAMILY = re.compile(
    r"^\s*(torch|torchvision|torchaudio)\s*(?:\[.*?\])?\s*(?=$|[<>=!~;@,])", re.IGNORECASE
)
SIZES = {"B": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
KEPT_LINES = 400
NOWHERE = Sources([], {})
PARAMS = {
    "uv": Param(str, REQUIRED),
    "venv": Param(str, REQUIRED),
    "packages": Param(list, REQUIRED, items=str),
    "torch_index": Param(str, None),
    "lock": Param(str, None),
    "dry_run": Param(bool, False),
    "python_version": Param(str, None),
}


class UvFailed(Exception):
    """uv ended with an error."""


class Uv:
    """uv with this machine's settings."""

    def __init__(
        self, params: dict[str, Any], settings: pip_settings.Settings, reporter: Reporter
    ) -> None:
        self._path = params["uv"]
        self._settings = settings
        self._reporter = reporter
        python = Path(params["venv"]) / "bin" / "python"
        if params["python_version"] and params["dry_run"]:
            self.python = ["--python-version", params["python_version"], "--no-python-downloads"]
        elif python.exists():
            self.python = ["--python", str(python)]
        else:
            raise ParamsRefused(f"there is no environment at {params['venv']}")
        self.constraints = pip_settings.uv_arguments(settings)
        if params["lock"]:
            self.constraints.append(f"--constraint={self._scratch('lock.txt', params['lock'])}")

    def _scratch(self, name: str, text: str) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="install_packages-"))
        self._reporter.at_end(lambda: shutil.rmtree(folder, ignore_errors=True))
        (folder / name).write_text(text, encoding="utf-8")
        return folder / name

    def command(self, arguments: list[str], sources: Sources) -> str:
        """The command as one would type it, passwords masked."""
        shown = [
            f"{name}={value!r}"
            for name, value in {**self._variables(), **sources.variables}.items()
        ]
        return pip_settings.mask(" ".join([*shown, self._path, *arguments, *sources.arguments]))

    def _variables(self) -> dict[str, str]:
        return pip_settings.uv_variables(self._settings)

    def run(
        self, phase: str, arguments: list[str], sources: Sources = NOWHERE, stdin: str = ""
    ) -> tuple[int, list[str], list[str]]:
        """Run uv, its words being progress; return its exit code, its output and its words."""
        # A file takes the output: a pipe could fill up while the words are read.
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(
                [self._path, *arguments, *sources.arguments],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.PIPE,
                env={**os.environ, **self._variables(), **sources.variables, "NO_COLOR": "1"},
            )
            self._reporter.at_end(process.kill)
            assert process.stdin is not None
            assert process.stderr is not None
            with process.stdin as feed:
                feed.write(stdin.encode())
            said = []
            for line in process.stderr:
                said.append(pip_settings.mask(line.decode("utf-8", "backslashreplace").strip()))
                self._reporter.progress(phase=phase, line=said[-1])
            code = process.wait()
            output.seek(0)
            text = pip_settings.mask(output.read().decode("utf-8", "backslashreplace"))
        return code, text.splitlines(), said[-KEPT_LINES:]

    def must(
        self, phase: str, arguments: list[str], sources: Sources = NOWHERE, stdin: str = ""
    ) -> list[str]:
        """Run uv and return its output; when it fails, its words are the error."""
        code, output, said = self.run(phase, arguments, sources, stdin)
        if code != 0:
            raise UvFailed(
                f"uv {' '.join(arguments[:2])} ended with exit code {code}:\n"
                + "\n".join(said[-20:])
            )
        return output


def measure(params: dict[str, Any], reporter: Reporter) -> None:
    """Decide where torch comes from, resolve, install, check."""
    settings = pip_settings.read(params["venv"], os.environ)
    uv = Uv(params, settings, reporter)
    measured = reporter.measured
    measured.update(settings=pip_settings.describe(settings), dry_run=params["dry_run"])
    measured.update(dict.fromkeys(("resolved", "torch_file", "install", "lock", "check")))
    version = uv.must("uv", ["--version"])
    measured["uv"] = {"path": params["uv"], "version": version[0].split()[1]}
    measured["torch"] = where_torch_comes_from(uv, settings, params)
    sources = pip_settings.uv_sources(settings, measured["torch"]["index_asked"])
    resolved = resolve(uv, "resolve", params["packages"], sources)
    measured["resolved"] = resolved
    measured["torch_file"] = next(
        (found["file"] for found in resolved if found["name"] == "torch"), None
    )
    if params["dry_run"]:
        return
    # Compiled once here, by all cores: payloads write nothing, so each would compile torch anew.
    compiled = ["--compile-bytecode"]
    arguments = ["pip", "install", *compiled, *uv.python, *uv.constraints, *params["packages"]]
    started = time.monotonic()
    code, _, said = uv.run("install", arguments, sources)
    downloads = [found for found in map(_download, said) if found]
    measured["install"] = {
        "command": uv.command(arguments, sources),
        "returncode": code,
        "elapsed_s": time.monotonic() - started,
        "lines": said,
        "downloads": downloads,
        "downloaded_bytes": sum(found["bytes"] for found in downloads),
    }
    if code != 0:
        raise UvFailed(f"uv pip install ended with exit code {code}:\n" + "\n".join(said[-20:]))
    measured["lock"] = uv.must("lock", ["pip", "freeze", *uv.python])
    code, output, said = uv.run("check", ["pip", "check", *uv.python])
    measured["check"] = {"ok": code == 0, "lines": [*output, *said]}


def where_torch_comes_from(
    uv: Uv, settings: pip_settings.Settings, params: dict[str, Any]
) -> dict[str, Any]:
    """Tell whether this machine's disk offers the wanted build, or the index must be asked."""
    wanted = [package for package in params["packages"] if TORCH_FAMILY.match(package)]
    facts: dict[str, Any] = {"requirements": wanted, "wanted_build": None, "offered_locally": None}
    if not wanted or not params["torch_index"]:
        why = "no package of torch is declared" if not wanted else "no index for torch is declared"
        return {**facts, "index_asked": None, "why": f"{why}: the machine's own sources decide"}
    build = params["torch_index"].rstrip("/").rpartition("/")[2]
    sources = pip_settings.uv_local_sources(settings)
    offered = False
    if sources is not None:
        try:
            found = resolve(uv, "look for torch", wanted, sources, ["--no-deps"])
            offered = all(package["version"].partition("+")[2] == build for package in found)
        except UvFailed:
            offered = False  # the folders and file:// indexes lack one of them
    facts.update(wanted_build=build, offered_locally=offered)
    if offered:
        return {
            **facts,
            "index_asked": None,
            "why": f"this machine's disk offers the {build} build",
        }
    if settings.flag("no-index"):
        return {**facts, "index_asked": None, "why": "pip's settings forbid indexes (no-index)"}
    return {
        **facts,
        "index_asked": pip_settings.mask(params["torch_index"]),
        "why": f"this machine's disk does not offer the {build} build",
    }


def resolve(
    uv: Uv, phase: str, packages: list[str], sources: Sources, more: list[str] | None = None
) -> list[dict[str, Any]]:
    """Find what uv would install, with the files it would take."""
    arguments = [
        "pip",
        "compile",
        "-",
        "--format=pylock.toml",
        "--no-header",
        *uv.python,
        *uv.constraints,
    ]
    lines = uv.must(phase, [*arguments, *(more or [])], sources, stdin="\n".join(packages) + "\n")
    blocks = re.split(r"^\[\[packages\]\]$", "\n".join(lines), flags=re.MULTILINE)[1:]
    return [_package(block) for block in blocks]


def _package(block: str) -> dict[str, Any]:
    """One package of a pylock file."""
    # Not by tomllib, which Python has only since 3.11.
    name = re.search(r'^name = "(.*?)"', block, re.MULTILINE)
    version = re.search(r'^version = "(.*?)"', block, re.MULTILINE)
    files = re.search(r"^wheels = \[(.*)\]", block, re.MULTILINE | re.DOTALL) or re.search(
        r"^(?:sdist|archive) = \{(.*)\}", block, re.MULTILINE
    )
    text = files.group(1) if files else ""
    place = re.search(r'\b(?:url|path) = "(.*?)"', text)
    size = re.search(r"\bsize = (\d+)", text)
    digest = re.search(r'\bsha256 = "([0-9a-f]{64})"', text)
    folder, _, file = place.group(1).rpartition("/") if place else ("", "", "")
    return {
        "name": name.group(1) if name else None,
        "version": version.group(1) if version else "",
        "file": urllib.parse.unquote(file) or None,
        "source": folder or None,
        "bytes": int(size.group(1)) if size else None,
        "sha256": digest.group(1) if digest else None,
    }


def _download(line: str) -> dict[str, Any] | None:
    found = re.match(r"^Downloading (\S+) \(([\d.]+)\s*([KMG]?i?B)\)", line)
    if not found:
        return None
    return {"name": found.group(1), "bytes": int(float(found.group(2)) * SIZES[found.group(3)])}


if __name__ == "__main__":
    run("install_packages", SCHEMA, PARAMS, measure, deadline_s=1800.0)
