"""Plots as views: a picture with its content in words, for notebook cells.

Whoever imports this loads matplotlib. This room must not know where the numbers come from.
"""

from __future__ import annotations

import base64
import html

from helpers.book.view import View
from helpers.record.pictures import FirstSteps, Picture, Throughput
from helpers.record.plots import as_png


def throughput_view(throughput: Throughput) -> View:
    """Throughput over time with the baseline and the band in which it counts as recovered.

    **Runs on:** operator. **Changes:** nothing.
    """
    return _picture_view(throughput)


def first_steps_view(steps: FirstSteps) -> View:
    """The first step of each role and shape, with a cold and with a warm compile cache.

    **Runs on:** operator. **Changes:** nothing.
    """
    return _picture_view(steps)


def _picture_view(picture: Picture) -> View:
    drawn = as_png(picture)
    data = base64.b64encode(drawn).decode()
    alt = html.escape(picture.alt)
    wide = "max-width:100%;width:760px"
    shown = (
        f'<div><img alt="{alt}" src="data:image/png;base64,{data}" style="{wide}">'
        f'<p style="font-size:88%;opacity:.82;margin:2px 0 8px 0">{alt}</p></div>'
    )
    return View(picture.alt, shown, drawn)
