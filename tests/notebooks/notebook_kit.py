"""Small real notebooks for the tests of the engine, and programs that execute them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from helpers.book import fast_import  # noqa: F401  # before nbformat

import nbformat  # isort: skip
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook  # isort: skip

REPOSITORY = Path(__file__).resolve().parents[2]


def write_notebook(
    path: Path,
    *cells: str | tuple[str, ...],
    parameters: str | None = "x: int = 1",
    kernel: str = "python3",
) -> Path:
    """Write a notebook: a text is a code cell, a tuple is its text and its tags, ``#`` is prose."""
    notebook = new_notebook()
    notebook.metadata["kernelspec"] = {"name": kernel, "display_name": kernel, "language": "python"}
    notebook.metadata["language_info"] = {"name": "python"}
    if parameters is not None:
        cells = ((parameters, "parameters"), *cells)
    for cell in cells:
        source, *tags = (cell,) if isinstance(cell, str) else cell
        new = new_markdown_cell if source.startswith("# ") else new_code_cell
        notebook.cells.append(new(source, metadata={"tags": tags} if tags else {}))
    nbformat.write(notebook, path)
    return path


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def states(path: Path) -> list[str]:
    """The states of the code cells that were in the source, in order."""
    cells = [c for c in read(path).cells if c.cell_type == "code"]
    own = [c for c in cells if "injected-parameters" not in c.metadata.get("tags", [])]
    return [c.metadata.papermill.status for c in own]


def shown(path: Path) -> str:
    """Everything that the code cells show as text."""
    texts = []
    for cell in read(path).cells:
        for output in cell.get("outputs", []):
            texts.append(output.get("text") or output.get("data", {}).get("text/plain") or "")
    return "".join(texts)


def errors(path: Path) -> list[tuple[str, str]]:
    outputs = [o for cell in read(path).cells for o in cell.get("outputs", [])]
    return [(o.ename, o.evalue) for o in outputs if o.output_type == "error"]


def wait_for(condition: Callable[[], object], within_s: float, what: str) -> None:
    deadline_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline_s, f"not within {within_s} s: {what}"
        time.sleep(0.02)


class Runner:
    """A process of its own that executes one notebook and prints how it ended."""

    def __init__(self, notebook: Path, out: Path, **options: object) -> None:
        program = (
            "import json, sys; from pathlib import Path\n"
            "from helpers.book.execution import execute\n"
            "notebook, out, options = json.loads(sys.argv[1])\n"
            "told = execute(Path(notebook), Path(out), {}, **options)\n"
            "print(json.dumps([told.outcome, told.signal, told.ename, told.evalue]))\n"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, json.dumps([str(notebook), str(out), options])],
            stdout=subprocess.PIPE,
            text=True,
            env=with_path(),
        )

    def family(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def told(self) -> tuple[str, str | None, str | None, str | None]:
        out, _ = self.process.communicate(timeout=60)
        return tuple(json.loads(out))


def with_path(*folders: Path) -> dict[str, str]:
    """This environment, in which ``helpers`` can be imported whether it is installed or not."""
    paths = [*map(str, folders), str(REPOSITORY), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def living(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
