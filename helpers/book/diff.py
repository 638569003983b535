"""A unified diff as a view: coloured lines that also read without colour."""

from __future__ import annotations

import html

from helpers.book.view import Piece, Tone, View, paragraph, plain, quiet, strong, view
from helpers.record.wording import shortened, visible

_LINES_SHOWN = 400
_CHARACTERS_SHOWN = 300


def diff_view(title: str, unified_diff: str) -> View:
    """Show a unified diff: a minus is what goes, a plus is what comes.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        title: what is compared with what.
        unified_diff: as ``difflib.unified_diff`` writes it; empty when nothing differs.
    """
    lines = unified_diff.splitlines()
    if not lines:
        return view(
            paragraph(Piece(f"{title}: no difference", f"{strong(title).html}: no difference"))
        )
    goes = sum(line.startswith("-") and not line.startswith("--- ") for line in lines)
    comes = sum(line.startswith("+") and not line.startswith("+++ ") for line in lines)
    head = f"{title} (−{goes}, +{comes} lines)"
    shown = [shortened(visible(line), _CHARACTERS_SHOWN) for line in lines[:_LINES_SHOWN]]
    style = "font-family:ui-monospace,Menlo,Consolas,monospace;font-size:88%;line-height:1.45"
    body = f'<pre style="{style};margin:6px 0;overflow-x:auto">{"".join(map(_line, shown))}</pre>'
    left = len(lines) - len(shown)
    more = [quiet(plain(f"… and {left} more lines in the stage's evidence."))] if left else []
    return view(paragraph(strong(head)), Piece("\n".join(shown), body), *more)


def _line(text: str) -> str:
    escaped = html.escape(text) or " "
    base = "display:block;padding:0 10px;white-space:pre-wrap;overflow-wrap:anywhere;"
    if text.startswith(("--- ", "+++ ", "diff ", "index ")):
        return f'<span style="{base}font-weight:600">{escaped}</span>'
    if text.startswith("@@"):
        return f'<span style="{base}{_colours(Tone.NOTE)}">{escaped}</span>'
    if text.startswith("+"):
        return f'<ins style="{base}text-decoration:none;{_colours(Tone.GOOD)}">{escaped}</ins>'
    if text.startswith("-"):
        return f'<del style="{base}text-decoration:none;{_colours(Tone.BAD)}">{escaped}</del>'
    return f'<span style="{base}">{escaped}</span>'


def _colours(tone: Tone) -> str:
    ground, ink = tone.colours
    return f"background-color:{ground};color:{ink}"
