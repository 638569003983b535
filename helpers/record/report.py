"""The report: one self-contained page of a run, and a page for each executed notebook beside it.

A pure reader of the run folder: it can be made again years later, and says of what is missing that
it is missing. No network, no JavaScript. This room lays out; what is said comes from ``reading``,
``measured`` and ``headline``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from helpers.record import wording
from helpers.record.atomic import write_atomic
from helpers.record.headline import STATE_MARKS, check_sentence, headline
from helpers.record.measured import first_steps_plot, rates, throughput_plot
from helpers.record.pictures import Picture
from helpers.record.reading import Reading, read_run
from helpers.record.run_folder import RunFolder
from helpers.verdict import Status

_TEMPLATES = Path(__file__).parent / "templates"
_COMMANDS_SHOWN = 400

_TONES = {
    Status.PASS: "good",
    Status.DRIFT: "note",
    Status.UNKNOWN: "open",
    Status.DEGRADED: "warn",
    Status.FAIL: "bad",
}
PHASES = {
    "begins": ("?", "begun; its end is not known", "open"),
    "done": ("✓", "done", "good"),
    "failed": ("✗", "failed", "bad"),
    "undone": ("↩", "taken back", "note"),
    "unknown": ("?", "whether it was made is not known", "open"),
}


@dataclass(frozen=True)
class DrawnPicture:
    """A picture in the four drawings a page chooses from, as data addresses."""

    wide: str
    wide_dark: str
    narrow: str
    narrow_dark: str
    alt: str


def write_report(folder: RunFolder) -> Path:
    """Write the report of a run, and a page for each of its executed notebooks.

    **Runs on:** operator. **Changes:** ``report.html`` and ``notebooks/*.html`` in the run folder,
    atomically; nothing else.

    Returns:
        The report's path.

    Raises:
        ParameterError: the folder has no readable run.json.
        OSError: a page could not be written.
    """
    reading = read_run(folder)
    environment = _environment()
    pages, unreadable = _write_pages(folder, reading, environment)
    figures = rates(reading)
    text = environment.get_template("report.html.j2").render(
        reading=reading,
        headline=headline(reading, figures),
        rates=figures,
        throughput=_drawn(throughput_plot(reading)),
        first_steps=_drawn(first_steps_plot(reading)),
        pages=pages,
        problems=[*reading.problems, *unreadable],
        commands_shown=_COMMANDS_SHOWN,
    )
    path = folder.path / "report.html"
    write_atomic(path, text)
    return path


def _write_pages(
    folder: RunFolder, reading: Reading, environment: Environment
) -> tuple[dict[str, str], list[str]]:
    """Write a page for each notebook there is; return their addresses and what was unreadable."""
    # Loaded only when there is something to write: nbconvert takes a second and 40 MB.
    from helpers.record.pages import read_cells

    there = [s for s in reading.stages if folder.notebook(s.record.name).is_file()]
    names = [s.record.name for s in there]
    pages, unreadable = {}, []
    for stage in there:
        notebook = folder.notebook(stage.record.name)
        try:
            cells = read_cells(notebook, names)
        except ValueError as error:
            unreadable.append(str(error))
            continue
        text = environment.get_template("page.html.j2").render(
            reading=reading, stage=stage, cells=cells, notebook=notebook.name
        )
        page = notebook.with_suffix(".html")
        write_atomic(page, text)
        pages[stage.record.name] = f"{page.parent.name}/{page.name}"
    return pages, unreadable


def _drawn(picture: Picture | None) -> DrawnPicture | None:
    if picture is None:
        return None
    # Loaded only when there is something to draw: matplotlib takes half a second and 50 MB.
    from helpers.record.plots import as_svg

    def address(*, dark: bool, narrow: bool) -> str:
        drawn = base64.b64encode(as_svg(picture, dark=dark, narrow=narrow)).decode()
        return f"data:image/svg+xml;base64,{drawn}"

    return DrawnPicture(
        wide=address(dark=False, narrow=False),
        wide_dark=address(dark=True, narrow=False),
        narrow=address(dark=False, narrow=True),
        narrow_dark=address(dark=True, narrow=True),
        alt=picture.alt,
    )


def _environment() -> Environment:
    """Templates in which every value is escaped and every text is made visible."""
    environment = Environment(
        loader=FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.filters |= {
        "seconds": lambda v: wording.NOT_MEASURED if v is None else wording.seconds_text(v),
        "tok_per_s": lambda v: wording.NOT_MEASURED if v is None else wording.tok_per_s_text(v),
        "ratio": wording.ratio_text,
        "when": lambda v: wording.when_text(str(v)),
        "value": wording.value_text,
        "shortened": wording.shortened,
        "command_line": _command_line,
    }
    environment.globals |= {
        "tones": _TONES,
        "marks": STATE_MARKS,
        "phases": PHASES,
        "check_sentence": check_sentence,
    }
    return environment


def _visible(value: object) -> object:
    if isinstance(value, str) and not isinstance(value, Markup):
        return wording.visible(value)
    return value


def _command_line(event: Mapping[str, Any]) -> str:
    argv = event.get("argv")
    return " ".join(map(str, argv)) if isinstance(argv, list) else str(argv)
