"""An executed notebook as cells to read: prose, folded code, outputs that can do no harm.

Output is shortened to head and tail; the whole of it stays in the notebook. This room must not know
what a notebook is about.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import nbformat
from markupsafe import Markup
from nbconvert.filters.ansi import ansi2html
from nbconvert.filters.highlight import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from helpers.record.harmless import harmless
from helpers.record.wording import bytes_text, visible

_HEAD_LINES, _TAIL_LINES = 60, 120
_LINE_CHARACTERS = 2_000
_HTML_CHARACTERS = 400_000
_PICTURE_CHARACTERS = 1_500_000
_KINDS = ("text/html", "image/svg+xml", "image/png", "image/jpeg", "text/markdown", "text/plain")
# papermill puts these in front of a cell that failed; the cell itself says it here.
_PAPERMILL_NOTE = "papermill-error-cell-tag"

State = Literal["completed", "failed", "running", "pending", ""]


@dataclass(frozen=True)
class Cell:
    """One cell, ready to be put into a page.

    Attributes:
        state: as the engine recorded it; empty when it recorded none, as when stepped by hand.
        source: prose, or code in colours.
        outputs: in order.
    """

    kind: Literal["prose", "code"]
    state: State
    source: Markup
    outputs: tuple[Markup, ...] = ()


def read_cells(notebook: Path, pages: Collection[str]) -> list[Cell]:
    """The cells of an executed notebook.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        notebook: the file.
        pages: stages that have a page, so that links to their notebooks can lead there.

    Raises:
        ValueError: the file is not a notebook; the text says why.
    """
    try:
        raw = json.loads(notebook.read_text(encoding="utf-8"))
        # nbformat and nbconvert declare no types here and below.
        found = next(nbformat.validator.iter_validate(raw), None)  # type: ignore[no-untyped-call]
        if found is not None:
            raise ValueError(str(found).splitlines()[0])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{notebook.name} is not a whole notebook: {error}") from error
    colour = Highlight2HTML(pygments_lexer="python")  # type: ignore[no-untyped-call]
    shown = []
    for cell in raw["cells"]:
        source = _text(cell["source"])
        if not source.strip() or _PAPERMILL_NOTE in cell["metadata"].get("tags", ()):
            continue
        if cell["cell_type"] == "code":
            outputs = tuple(_output(output, pages) for output in cell["outputs"])
            shown.append(Cell("code", _state(cell), Markup(colour(visible(source))), outputs))
        else:
            shown.append(Cell("prose", "", _prose(source, pages)))
    return shown


def excerpt(text: str) -> str:
    """Head and tail of a long text, and in between how much is left out."""
    lines = text.splitlines()
    left = len(lines) - _HEAD_LINES - _TAIL_LINES
    if left > 0:
        said = f"… {left:,} lines left out here; the notebook has what was kept of them …"
        lines = [*lines[:_HEAD_LINES], said, *lines[-_TAIL_LINES:]]
    return "\n".join(_line(line) for line in lines)


def _output(output: Mapping[str, Any], pages: Collection[str]) -> Markup:
    if output["output_type"] == "stream":
        return Markup('<pre class="{}">{}</pre>').format(
            "stream" if output["name"] == "stdout" else "stream err", _ansi(_text(output["text"]))
        )
    if output["output_type"] == "error":
        return _error(output)
    data: Mapping[str, Any] = output["data"]
    kind = next((kind for kind in _KINDS if kind in data), None)
    if kind is None:
        return Markup('<p class="aside">An output that only lives in JupyterLab.</p>')
    return _shown(kind, _text(data[kind]), pages)


def _shown(kind: str, text: str, pages: Collection[str]) -> Markup:
    limit = _PICTURE_CHARACTERS if kind.startswith("image/") else _HTML_CHARACTERS
    if kind != "text/plain" and len(text) > limit:
        return Markup(
            '<p class="aside">An output of {} is left out; the notebook has it.</p>'
        ).format(bytes_text(len(text)))
    if kind == "text/html":
        return Markup('<div class="shown">{}</div>').format(Markup(harmless(visible(text), pages)))
    if kind == "text/markdown":
        return Markup('<div class="shown">{}</div>').format(_prose(text, pages))
    if kind == "image/svg+xml":
        return _picture(kind, base64.b64encode(text.encode("utf-8", "replace")).decode())
    if kind.startswith("image/"):
        return _picture(kind, "".join(text.split()))
    return Markup("<pre>{}</pre>").format(_ansi(text))


def _picture(kind: str, data: str) -> Markup:
    drawn = f'<img alt="Picture in the notebook" src="data:{kind};base64,{html.escape(data)}">'
    return Markup(harmless(drawn))


def _error(output: Mapping[str, Any]) -> Markup:
    trace = "\n".join(str(line) for line in output["traceback"])
    said = excerpt(visible(str(output["evalue"])))
    return Markup(
        '<div class="error"><p><strong>{}</strong></p><p class="said">{}</p>'
        "<details><summary>Traceback</summary><pre>{}</pre></details></div>"
    ).format(visible(str(output["ename"])), said, _ansi(trace))


def _prose(source: str, pages: Collection[str]) -> Markup:
    renderer = IPythonRenderer(escape=False, exclude_anchor_links=True)
    return Markup(harmless(MarkdownWithMath(renderer=renderer).render(visible(source)), pages))


def _ansi(text: str) -> Markup:
    return Markup(visible(ansi2html(excerpt(text))))  # type: ignore[no-untyped-call]


def _state(cell: Mapping[str, Any]) -> State:
    engine = cell["metadata"].get("papermill")
    state = engine.get("status") if isinstance(engine, Mapping) else None
    known: tuple[State, ...] = ("completed", "failed", "running", "pending")
    return next((k for k in known if k == state), "")


def _text(value: object) -> str:
    """Text as notebooks keep it: one string, or a list of lines."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "".join(str(part) for part in value)
    return str(value)


def _line(line: str) -> str:
    left = len(line) - _LINE_CHARACTERS
    return f"{line[:_LINE_CHARACTERS]} … ({left:,} more characters)" if left > 0 else line
