"""What can be told from a notebook's cells without running them.

This room must not know kernels or files.
"""

from __future__ import annotations

import ast
import re
import warnings
from typing import Any

from helpers.errors import PreconditionFailed

# Both are an nbformat.NotebookNode: attributes over JSON, untyped in its own library.
Notebook = Any
Cell = Any

_UNSEEN = re.compile(
    r"^\s*(?:[\w.,\s]+=\s*)?!"  # !command, names = !command
    r"|^%%(?:bash|sh|script|system|sx|!)"  # a cell given to a shell
    r"|^\s*(?:[\w.,\s]+=\s*)?%(?:system|sx|sc)\b",
    re.MULTILINE,
)
_INJECTED = "injected-parameters"


def is_runbook(notebook: Notebook) -> bool:
    """Whether a notebook is one of ours: it has a cell tagged ``bind``, which opens a stage."""
    return any("bind" in cell.metadata.get("tags", []) for cell in notebook.cells)


def first_tag(cell: Cell) -> str | None:
    """A cell's first tag, or None."""
    tags = cell.metadata.get("tags", [])
    return str(tags[0]) if tags else None


def runs(cell: Cell) -> bool:
    """Whether there is something to run in a cell."""
    if cell.cell_type != "code" or not cell.source.strip():
        return False
    return "skip-execution" not in cell.metadata.get("tags", [])


def labels(cells: list[Cell]) -> list[str]:
    """A short name for each cell: its first tag, else the heading above it, else its number."""
    found, heading = [], ""
    for index, cell in enumerate(cells):
        if cell.cell_type == "markdown":
            match = re.search(r"^#+\s+(.+)$", cell.source, re.MULTILINE)
            heading = match[1].strip() if match else heading
        tag = first_tag(cell)
        found.append("parameters" if tag == _INJECTED else tag or heading or f"cell {index + 1}")
    return found


def refuse_unseen_failures(notebook: Notebook) -> None:
    """Refuse cells whose failure nobody would see.

    IPython goes on after ``!command`` and ``%%bash`` whatever the command's exit code was, so no
    record of such a cell can be trusted.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        PreconditionFailed: a cell has such a line; it is named.
    """
    for index, cell in enumerate(notebook.cells):
        if not runs(cell) or _plain_python(cell.source):
            continue
        match = _UNSEEN.search(cell.source)
        if match:
            line = cell.source[match.start() :].strip().splitlines()[0]
            raise PreconditionFailed(
                f"Cell {index + 1} runs a shell whose failure nobody would see: {line!r}.",
                hint="Use a helper, or subprocess.run(..., check=True), in its place.",
            )


def _plain_python(source: str) -> bool:
    """Whether it is Python without IPython's additions; a ``!`` in a string is none."""
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the cell's style, which is not the question
            compile(source, "<cell>", "exec", flags=flags)
    except (SyntaxError, ValueError):
        return False
    return True
