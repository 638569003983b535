"""Drawings of measurements: throughput over time, first steps cold and warm.

Drawn by matplotlib without a display: as PNG for a notebook, as SVG (light or dark, wide or narrow)
for the report. Whoever imports this loads matplotlib: half a second and 50 MB. This room must not
know where the data comes from.
"""

from __future__ import annotations

import io
import statistics
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter
from matplotlib.typing import RcKeyType

from helpers.record.pictures import FirstSteps, Picture, Throughput, time_text
from helpers.record.wording import tok_per_s_text, visible

_POINTS_SHOWN = 300
_ROWS_SHOWN = 16
_LABEL_CHARACTERS = 36
_NARROW_INCHES = 6
_SVG_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


@dataclass(frozen=True)
class _Inks:
    text: str
    faint: str
    line: str
    second: str
    band: str
    ground: str


_LIGHT = _Inks("#3a4149", "#d9dde2", "#1f5fae", "#b3652a", "#dcebdf", "#ffffff")
_DARK = _Inks("#c3c9d1", "#3a4149", "#7fb2f0", "#e6a370", "#22382a", "#16191d")


def as_png(picture: Picture) -> bytes:
    """Draw on a light ground, for a notebook.

    **Runs on:** operator. **Changes:** nothing.
    """
    return _written(picture, _LIGHT, (7.2, 2.7), "png")


def as_svg(picture: Picture, *, dark: bool = False, narrow: bool = False) -> bytes:
    """Draw on a transparent ground, for a page; the same data gives the same bytes.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        picture: what to draw.
        dark: for a dark page.
        narrow: for a phone.
    """
    size = (4.0, 2.7) if narrow else (8.0, 2.8)
    drawn = _written(picture, _DARK if dark else _LIGHT, size, "svg")
    return drawn.replace(b"'DejaVu Sans'", _SVG_FONT.encode())


def _written(picture: Picture, inks: _Inks, size: tuple[float, float], kind: str) -> bytes:
    settings: dict[RcKeyType, Any] = {
        "font.size": 9,
        "font.family": "DejaVu Sans",
        "svg.fonttype": "none",  # text stays text: smaller, and it can be searched
        "svg.hashsalt": "recover",  # ids that do not differ from drawing to drawing
        "text.color": inks.text,
        "axes.labelcolor": inks.text,
        "xtick.color": inks.text,
        "ytick.color": inks.text,
        "text.parse_math": False,  # a label with two dollar signs is a label
    }
    out = io.BytesIO()
    with matplotlib.rc_context(settings):
        figure = Figure(figsize=size, layout="constrained")
        figure.patch.set_facecolor(inks.ground)
        axes = figure.add_subplot()
        if isinstance(picture, Throughput):
            _draw_throughput(figure, axes, picture, inks)
        else:
            _draw_first_steps(figure, axes, picture, inks)
        _undress(axes, inks)
        none = dict.fromkeys(("Date", "Creator", "Format", "Type")) if kind == "svg" else None
        figure.savefig(out, format=kind, dpi=140, metadata=none, transparent=kind == "svg")
    return out.getvalue()


def _draw_throughput(figure: Figure, axes: Axes, picture: Throughput, inks: _Inks) -> None:
    points = _thinned(picture.samples)
    times, rates = [t for t, _ in points], [r for _, r in points]
    baseline, tolerance = picture.baseline_tok_per_s, picture.tolerance_ratio
    if baseline is not None:
        if tolerance is not None:
            label = f"recovered from {tok_per_s_text(baseline * tolerance)}"
            axes.axhspan(baseline * tolerance, baseline, color=inks.band, lw=0, label=label)
        said = f"baseline {tok_per_s_text(baseline)}"
        axes.axhline(baseline, color=inks.second, lw=1.4, ls=(0, (5, 3)), label=said)
    how = "corrected for other work" if picture.corrected else "measured"
    axes.plot(times, rates, color=inks.line, lw=1.5, marker="o", ms=2.6, label=how)
    axes.set_ylim(0, max([*rates, baseline or 0.0, 1e-9]) * 1.12)
    axes.set_xlim(0, times[-1] * 1.01 if times else 1)
    axes.set_xlabel("seconds since the measurement began")
    axes.set_ylabel("tok/s")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.grid(axis="y", color=inks.faint, lw=0.6)
    columns = 3 if figure.get_figwidth() > _NARROW_INCHES else 2
    figure.legend(frameon=False, loc="outside upper left", ncols=columns, fontsize=8, reverse=True)


def _draw_first_steps(figure: Figure, axes: Axes, picture: FirstSteps, inks: _Inks) -> None:
    rows = picture.rows[:_ROWS_SHOWN]
    figure.set_figheight(0.9 + 0.62 * max(len(rows), 1))
    for offset, colour, name, values in (
        (-0.19, inks.second, "cold", [row.cold_s for row in rows]),
        (0.19, inks.line, "warm", [row.warm_s for row in rows]),
    ):
        widths = [value or 0.0 for value in values]
        places = [index + offset for index in range(len(rows))]
        bars = axes.barh(places, widths, height=0.34, color=colour, label=name)
        axes.bar_label(bars, [time_text(value) for value in values], padding=4, fontsize=8)
    narrow = figure.get_figwidth() <= _NARROW_INCHES
    width = _LABEL_CHARACTERS // 2 if narrow else _LABEL_CHARACTERS
    # Two rows may differ in their last words only: a label is wrapped rather than cut.
    labels = [textwrap.fill(visible(r.label), width, max_lines=4, placeholder=" …") for r in rows]
    axes.set_yticks(range(len(rows)), labels)
    axes.invert_yaxis()
    axes.margins(x=0.16)
    axes.set_xlabel("seconds to the end of the first step")
    axes.grid(axis="x", color=inks.faint, lw=0.6)
    if rows:
        figure.legend(frameon=False, loc="outside upper right", ncols=2, fontsize=8)


def _undress(axes: Axes, inks: _Inks) -> None:
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    axes.tick_params(length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(inks.faint)


def _thinned(samples: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Few enough points to draw; each stands for the mean of its neighbours."""
    size = -(-len(samples) // _POINTS_SHOWN)
    if size <= 1:
        return list(samples)
    groups = [samples[start : start + size] for start in range(0, len(samples), size)]
    return [(g[-1][0], statistics.fmean(rate for _, rate in g)) for g in groups]
