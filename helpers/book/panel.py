"""What the cells of a runbook show: facts, plan, verdict, errors and banners as views.

Pure functions from plain data. This room decides what a tired person sees first; it must not know
how anything was found out, nor write anything down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import quote

from pydantic import JsonValue

from helpers.book.approval import offer_approval
from helpers.book.diff import diff_view
from helpers.book.progress import Progress
from helpers.book.view import (
    Piece,
    Tone,
    View,
    banner,
    block,
    chip,
    code,
    folded,
    joined,
    listing,
    pairs,
    paragraph,
    plain,
    quiet,
    strong,
    table,
    view,
)
from helpers.errors import CommandError, PayloadError, RunbookError
from helpers.plan import LATER, Change, Plan
from helpers.record.wording import NOT_MEASURED, field_text, shortened, value_text
from helpers.verdict import Check, Status, Verdict

__all__ = [
    "Progress",
    "View",
    "banner_view",
    "checks_view",
    "diff_view",
    "error_view",
    "facts_view",
    "header_view",
    "note_view",
    "offer_approval",
    "plan_view",
    "table_view",
    "verdict_view",
]

_FACTS_SHOWN = 60
_CHARACTERS_SHOWN = 600
_OUTPUT_LINES_SHOWN = 20

TONES = {
    Status.PASS: Tone.GOOD,
    Status.DRIFT: Tone.NOTE,
    Status.UNKNOWN: Tone.OPEN,
    Status.DEGRADED: Tone.WARN,
    Status.FAIL: Tone.BAD,
}


def header_view(rows: Mapping[str, str]) -> View:
    """The head of a stage: what it works on, and in ``mode`` whether it may change anything.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        rows: names and values in order; the value of ``mode`` begins with ``APPLY`` or ``DRY RUN``.
    """
    mode = rows.get("mode", "")
    shown = [(name, _heading_value(name, value)) for name, value in rows.items() if name != "mode"]
    tone = Tone.WARN if mode.startswith("APPLY") else Tone.NOTE
    return view(*([banner(strong(mode), tone)] if mode else []), pairs("", shown))


def table_view(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[JsonValue | Status]]
) -> View:
    """Any table: the first cell of a row is its heading, a Status is shown as symbol and word.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        title: what the table shows.
        columns: headings; a unit ending (``first_step_s``) is taken off and its values said in it.
        rows: as many values a row as there are columns.
    """
    if not rows:
        return view(paragraph(joined([strong(title), plain("— none")])))
    shown = [[_cell(v, c) for v, c in zip(row, columns, strict=True)] for row in rows]
    return view(table(title, [field_text(column) for column in columns], shown))


def facts_view(title: str, mapping: Mapping[str, object]) -> View:
    """Names and measured values; parts within parts are named by their path.

    **Runs on:** operator. **Changes:** nothing.
    """
    rows = list(_flat("", mapping))
    shown = [
        (name, plain(shortened(text, _CHARACTERS_SHOWN))) for name, text in rows[:_FACTS_SHOWN]
    ]
    left = len(rows) - len(shown)
    more = [quiet(plain(f"… and {left} more in the stage's evidence file."))] if left else []
    if not shown:
        return view(paragraph(joined([strong(title), plain("— nothing was found out")])))
    return view(pairs(title, shown), *more)


def plan_view(plan: Plan) -> View:
    """What would be changed, each with its way back; "nothing to change" is said plainly.

    **Runs on:** operator. **Changes:** nothing.
    """
    count = len(plan.changes)
    if not count:
        head = banner(joined([strong("Nothing to change."), plain(plan.why)]), Tone.GOOD)
    else:
        said = f"{count} change{'s' * (count > 1)} would be made."
        head = banner(joined([strong(said), plain(plan.why)]), Tone.WARN)
    pieces = [head]
    if count:
        rows = [_change_row(number, change) for number, change in enumerate(plan.changes, 1)]
        shown = table("Plan", ("change", "before → after", "undo"), rows)
        # In a terminal an undo must be a line to copy, so there is no table around it.
        pieces.append(Piece("\n".join(_change_lines(rows)), shown.html))
    if plan.measures:
        pieces.append(paragraph(plain("Measured without changing anything:")))
        pieces.append(listing([plain(measure) for measure in plan.measures]))
    pieces.append(
        quiet(plain(f"Plan {plan.hash[:12]}: an approval is given to exactly this content."))
    )
    return view(*pieces)


def verdict_view(verdict: Verdict) -> View:
    """A stage's verdict: the deciding check as a sentence, then every check, the worst first.

    **Runs on:** operator. **Changes:** nothing.
    """
    said = joined([_status_word(verdict.status), plain(verdict_sentence(verdict))], " — ")
    worst_first = sorted(verdict.checks, key=lambda check: -check.status.severity)
    pieces = [banner(said, TONES[verdict.status])]
    if worst_first:
        pieces.append(_checks("Checks", worst_first))
    return view(*pieces)


def checks_view(title: str, checks: Iterable[Check]) -> View:
    """Checks as a table in the order given.

    **Runs on:** operator. **Changes:** nothing.
    """
    kept = list(checks)
    if not kept:
        return view(paragraph(joined([strong(title), plain("— nothing")])))
    return view(_checks(title, kept))


def error_view(error: RunbookError) -> View:
    """What failed, the machine's state now, what to do next; the command's last lines folded below.

    **Runs on:** operator. **Changes:** nothing.
    """
    three = [
        joined([strong("What failed:"), plain(error.what)]),
        joined([strong("State now:"), plain(error.state)]),
        joined([strong("Next:"), plain(error.hint)]),
    ]
    pieces = [banner(joined(three, "\n"), Tone.BAD)]
    if isinstance(error, (CommandError, PayloadError)):
        tail = error.result.tail(lines=_OUTPUT_LINES_SHOWN)
        if tail:
            pieces.append(folded("Last lines of its output", block(tail)))
    return view(*pieces)


def banner_view(stage: str, status: Status, summary: str, next_notebook: str | None) -> View:
    """The end of a stage: its verdict, one sentence, and the notebook that comes next.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        stage: name of the stage.
        status: its verdict.
        summary: one sentence.
        next_notebook: file name beside this notebook; None after the last.
    """
    said = joined([strong(stage), _status_word(status), plain(summary)], " — ")
    if next_notebook is None:
        return view(banner(said, TONES[status]))
    name = plain(next_notebook)
    address = quote(next_notebook)  # a name is never a scheme
    link = Piece(
        f"Next: {name.text}",
        f'Next: <a href="{address}" style="color:inherit">{name.html}</a>',
    )
    return view(banner(joined([said, link], "\n"), TONES[status]))


def note_view(sentence: str) -> View:
    """One sentence that is neither a verdict nor an error.

    **Runs on:** operator. **Changes:** nothing.
    """
    return view(banner(plain(sentence), Tone.QUIET))


def status_chip(status: Status) -> Piece:
    """A status as symbol and word."""
    return chip(f"{status.symbol} {status.value}", TONES[status])


def _status_word(status: Status) -> Piece:
    """The same within a banner, which already has the colours."""
    return strong(f"{status.symbol} {status.value}")


def verdict_sentence(verdict: Verdict) -> str:
    """The verdict in a sentence that names the check that decided it."""
    deciding, count = verdict.deciding, len(verdict.checks)
    if deciding is None:
        return "Nothing was checked, so nothing is known."
    if verdict.status is Status.PASS:
        return "The one check holds." if count == 1 else f"All {count} checks hold."
    measured = value_text(deciding.measured, deciding.name)
    said = f"{deciding.name}: {measured}"
    if deciding.expected:
        said += f", expected {deciding.expected}"
    return f"{said}. {deciding.meaning}".rstrip()


def _checks(title: str, checks: Sequence[Check]) -> Piece:
    meant = any(check.meaning for check in checks)
    columns = ("check", "status", "measured", "expected", *(("what it means",) if meant else ()))
    return table(title, columns, [_check_row(check, meant=meant) for check in checks])


def _check_row(check: Check, *, meant: bool) -> list[Piece]:
    source = [quiet(plain(f"({check.source})"))] if check.source else []
    measured = shortened(value_text(check.measured, check.name), _CHARACTERS_SHOWN)
    row = [
        plain(check.name),
        status_chip(check.status),
        plain(measured),
        joined([plain(check.expected), *source]),
    ]
    return [*row, plain(check.meaning)] if meant else row


def _change_row(number: int, change: Change) -> list[Piece]:
    after = chip(LATER, Tone.QUIET) if change.after == LATER else plain(change.after)
    return [
        joined([plain(f"{number}. {change.what}"), code(change.where)], "\n"),
        joined([plain(change.before), plain("→"), after]),
        code(change.undo),
    ]


def _change_lines(rows: Iterable[Sequence[Piece]]) -> Iterable[str]:
    for what_where, before_after, undo in rows:
        what, _, where = what_where.text.partition("\n")
        yield f"{what}: {where}"
        yield f"     now → then: {before_after.text}"
        yield f"     undo:       {undo.text}"


def _heading_value(name: str, value: str) -> Piece:
    return code(value) if name == "run" or "/" in value.split(" ")[0] else plain(value)


def _cell(value: JsonValue | Status, column: str) -> Piece:
    if isinstance(value, Status):
        return status_chip(value)
    text = shortened(value_text(value, column), _CHARACTERS_SHOWN)
    return quiet(plain(NOT_MEASURED)) if value is None else plain(text)


def _flat(path: str, value: object) -> Iterable[tuple[str, str]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _flat(f"{path} · {name}" if path else str(name), inner)
        return
    last = path.rsplit(" · ", 1)
    named = " · ".join([part.replace("_", " ") for part in last[:-1]] + [field_text(last[-1])])
    yield named, value_text(value, last[-1])
