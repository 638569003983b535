"""What a notebook cell shows: a View, and the pieces views are made of.

A View is text for a terminal and HTML for a notebook, made from the same data. The HTML has
no JavaScript, no style sheet and no class it depends on; every text in it is escaped. Pieces bring
their own background with their own text colour, so that they read on light and dark themes alike,
and say in words and symbols what they say in colour. This room must not know what is being shown.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from helpers.record.wording import visible

_TERMINAL_COLUMNS = 100


class Tone(StrEnum):
    """How a piece is meant; its colours follow."""

    GOOD = "good"
    NOTE = "note"
    OPEN = "open"
    WARN = "warn"
    BAD = "bad"
    QUIET = "quiet"

    @property
    def colours(self) -> tuple[str, str]:
        """Background and text colour; their contrast is at least 7 : 1 (WCAG AAA)."""
        return _COLOURS[self]


_COLOURS = {
    Tone.GOOD: ("#ddf4e4", "#0a4d24"),
    Tone.NOTE: ("#e2edfb", "#0a3f7a"),
    Tone.OPEN: ("#ebe6f6", "#43307a"),
    Tone.WARN: ("#fdeccd", "#663600"),
    Tone.BAD: ("#fde3e1", "#8a1212"),
    Tone.QUIET: ("#eceff2", "#323a43"),
}

_LINE = "1px solid rgba(128,128,128,.35)"
_CELL = f"text-align:left;vertical-align:top;padding:5px 14px 5px 0;border:0;border-bottom:{_LINE}"
_WRAP = "white-space:normal;overflow-wrap:anywhere"
# A heading's column must not be squeezed until its words break.
_WORDS = "white-space:normal;overflow-wrap:normal;min-width:9em"
_CODE = (
    "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:92%;font-weight:400;"
    "padding:0;background:transparent"
)


@dataclass(frozen=True)
class View:
    """What a cell shows.

    Attributes:
        text: for a terminal; tables are at most 100 columns wide, sentences one line.
        html: a fragment without JavaScript, everything in it escaped.
        png: the same as a picture, for readers that drop HTML; None when it is not a picture.
    """

    text: str
    html: str
    png: bytes | None = None

    def _repr_mimebundle_(
        self, include: object = None, exclude: object = None
    ) -> dict[str, str]:  # the arguments are IPython's
        bundle = {"text/plain": self.text, "text/html": self.html}
        if self.png is not None:
            bundle["image/png"] = base64.b64encode(self.png).decode()
        return bundle

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Piece:
    """A bit of a view: the same content as text and as escaped HTML."""

    text: str
    html: str


def plain(text: str) -> Piece:
    """Words; line ends are kept."""
    shown = visible(text)
    return Piece(shown, html.escape(shown).replace("\n", "<br>"))


def code(text: str) -> Piece:
    """Something to type or a path: fixed width, breaks anywhere."""
    shown = visible(text)
    return Piece(shown, f'<code style="{_CODE};{_WRAP}">{html.escape(shown)}</code>')


def strong(text: str) -> Piece:
    """Words that carry the line."""
    piece = plain(text)
    return Piece(piece.text, f"<strong>{piece.html}</strong>")


def chip(text: str, tone: Tone) -> Piece:
    """A word on its own ground, for a status: symbol and word, never colour alone."""
    shown = visible(text)
    ground, ink = tone.colours
    style = (
        f"background-color:{ground};color:{ink};padding:1px 9px;border-radius:10px;"
        "font-weight:600;white-space:nowrap"
    )
    return Piece(shown, f'<span style="{style}">{html.escape(shown)}</span>')


def joined(pieces: Iterable[Piece], between: str = " ") -> Piece:
    """Pieces in one line."""
    kept = list(pieces)
    return Piece(
        between.join(p.text for p in kept),
        html.escape(between).replace("\n", "<br>").join(p.html for p in kept),
    )


def quiet(piece: Piece) -> Piece:
    """The same in small type, for what stands beside the matter."""
    return Piece(piece.text, f'<span style="font-size:88%;opacity:.82">{piece.html}</span>')


def banner(sentence: Piece, tone: Tone) -> Piece:
    """One sentence across the page."""
    ground, ink = tone.colours
    style = (
        f"background-color:{ground};color:{ink};padding:10px 16px;border-left:5px solid {ink};"
        "border-radius:4px;margin:4px 0 10px 0;line-height:1.5"
    )
    return Piece(sentence.text, f'<div style="{style}">{sentence.html}</div>')


def paragraph(piece: Piece) -> Piece:
    """A paragraph of its own."""
    return Piece(piece.text, f'<p style="margin:6px 0">{piece.html}</p>')


def listing(items: Sequence[Piece]) -> Piece:
    """A list with a bullet for each."""
    shown = "".join(f"<li>{item.html}</li>" for item in items)
    text = "\n".join(f"  • {item.text}" for item in items)
    return Piece(text, f'<ul style="margin:4px 0 8px 0">{shown}</ul>')


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Piece]]) -> Piece:
    """A table with a caption, headed columns, and the first cell of each row as its heading."""
    head = "".join(
        f'<th scope="col" style="{_CELL};font-size:88%;opacity:.82">{plain(c).html}</th>'
        for c in columns
    )
    body = "".join(f"<tr>{_row(cells)}</tr>" for cells in rows)
    caption = (
        '<caption style="caption-side:top;text-align:left;font-weight:600;padding:4px 0">'
        f"{plain(title).html}</caption>"
    )
    text = _terminal_table(title, columns, rows)
    style = "border-collapse:collapse;border:0;margin:4px 0 12px 0;font-size:95%"
    shown = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return Piece(text, f'<table style="{style}">{caption}{shown}</table>')


def pairs(title: str, rows: Sequence[tuple[str, Piece]]) -> Piece:
    """Names and values: a table without column headings."""
    body = "".join(f"<tr>{_row((plain(name), value))}</tr>" for name, value in rows)
    caption = (
        '<caption style="caption-side:top;text-align:left;font-weight:600;padding:4px 0">'
        f"{plain(title).html}</caption>"
    )
    style = "border-collapse:collapse;border:0;margin:4px 0 12px 0;font-size:95%"
    shown = f'<table style="{style}">{caption if title else ""}<tbody>{body}</tbody></table>'
    text = _terminal_table(title, (), [(plain(name), value) for name, value in rows])
    return Piece(text, shown)


def folded(summary: str, content: Piece) -> Piece:
    """Content behind a line to click; in a terminal it follows the line."""
    shown = f"<details><summary>{plain(summary).html}</summary>{content.html}</details>"
    return Piece(f"{visible(summary)}:\n{content.text}", shown)


def block(text: str) -> Piece:
    """Lines of output as they were written."""
    shown = visible(text)
    style = f"{_CODE};white-space:pre-wrap;overflow-wrap:anywhere;margin:6px 0;line-height:1.45"
    return Piece(shown, f'<pre style="{style}">{html.escape(shown)}</pre>')


def view(*pieces: Piece) -> View:
    """Pieces one below the other, as a cell shows them."""
    kept = [p for p in pieces if p.text or p.html]
    shown = "".join(p.html for p in kept)
    return View("\n".join(p.text for p in kept).rstrip(), f"<div>{shown}</div>")


def _row(cells: Sequence[Piece]) -> str:
    heading, *others = cells
    shown = f'<th scope="row" style="{_CELL};font-weight:600;{_WORDS}">{heading.html}</th>'
    return shown + "".join(f'<td style="{_CELL};{_WRAP}">{cell.html}</td>' for cell in others)


def _terminal_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Piece]]) -> str:
    drawn = Table(box=SIMPLE_HEAD, show_header=bool(columns), pad_edge=False, show_edge=False)
    for column in columns or [""] * max((len(cells) for cells in rows), default=0):
        drawn.add_column(visible(column), overflow="fold")
    for cells in rows:
        drawn.add_row(*(Text(cell.text) for cell in cells))
    out = io.StringIO()
    # In a kernel rich would display the table itself, beside what the cell shows.
    console = Console(file=out, width=_TERMINAL_COLUMNS, color_system=None, force_jupyter=False)
    console.print(drawn)
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    return "\n".join([visible(title), *lines] if title else lines)
