"""One line that says what is going on now, updated in place.

In a notebook the line is one output that is replaced (display_id): live while the cell runs, a
single final line in the archive, without widget or JavaScript. In a terminal it prints a line now
and then. This room must not know what the work is.
"""

from __future__ import annotations

import html
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TextIO

from helpers.book.view import View
from helpers.record.wording import seconds_text, visible

_NOTEBOOK_EVERY_S = 0.5
# What a phase is called once it has come to its end.
_ENDED = {"look": "looked", "plan": "planned", "act": "done", "judge": "judged", "close": "closed"}
_TERMINAL_EVERY_S = 2.0


class _Shown(Protocol):
    """What IPython returns for an output that can be replaced."""

    def update(self, obj: View) -> None: ...


class Progress:
    """A live line. ``say`` begins it and moves it on, ``end`` leaves its final form.

    Output of payloads arrives on another thread than the cell's, so a lock stands around the line.

    Args:
        title: whose line it is; said in a terminal, where no heading stands above it.
        every_s: shortest time between two updates; None = 0.5 in a notebook, 2 in a terminal.
        terminal: where lines go outside a notebook; None = standard error.
    """

    def __init__(
        self, title: str, *, every_s: float | None = None, terminal: TextIO | None = None
    ) -> None:
        self._title = visible(title)
        self._notebook = _in_notebook()
        default_s = _NOTEBOOK_EVERY_S if self._notebook else _TERMINAL_EVERY_S
        self._every_s = default_s if every_s is None else every_s
        self._terminal = terminal
        self._lock = threading.Lock()
        self._shown: _Shown | None = None
        self._phase = ""
        self._what: str | None = None
        self._fraction: float | None = None
        self._began_s = 0.0
        self._updated_s = 0.0

    def say(self, what: str, fraction: float | None = None) -> None:
        """Show what is going on.

        **Runs on:** operator. **Changes:** nothing.

        Args:
            what: in words.
            fraction: how far, 0 to 1; None = unknown.
        """
        with self._lock:
            now_s = time.monotonic()
            first = self._what is None
            if first:
                self._began_s = now_s
            self._what = visible(what) or self._phase
            self._fraction = None if fraction is None else min(max(fraction, 0.0), 1.0)
            if first or now_s - self._updated_s >= self._every_s:
                self._updated_s = now_s
                self._put(progress_view(self._what, self._fraction, now_s - self._began_s))

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """A line of its own for what is done inside; without any ``say`` inside nothing is shown.

        **Runs on:** operator. **Changes:** nothing.

        Args:
            name: what the phase is called; said where a line has nothing better to say.
        """
        self.end()
        self._phase = visible(name)
        try:
            yield
        except BaseException:
            self.end(whole=False)
            raise
        self.end()

    def end(self, *, whole: bool = True) -> None:
        """Leave the final line; without any ``say`` before there is nothing to end.

        **Runs on:** operator. **Changes:** nothing.

        Args:
            whole: whether the work came to its end; False = it was stopped on the way.
        """
        with self._lock:
            if self._what is None:
                return
            elapsed = seconds_text(time.monotonic() - self._began_s)
            ended = _ENDED.get(self._phase, self._phase) or self._what
            said = f"✓ {ended} — {elapsed}" if whole else f"✗ stopped: {self._what} — {elapsed}"
            self._put(View(said, f"<div>{html.escape(said)}</div>"))
            self._what, self._shown = None, None

    def _put(self, view: View) -> None:
        if not self._notebook:
            print(f"{self._title}: {view.text}", file=self._terminal or sys.stderr, flush=True)
        elif self._shown is not None:
            self._shown.update(view)
        else:
            # Imported late: only a kernel needs IPython's display.
            from IPython.display import display

            # IPython declares no types here.
            self._shown = display(view, display_id=True)  # type: ignore[no-untyped-call]


def progress_view(what: str, fraction: float | None, elapsed_s: float) -> View:
    """The line while the work goes on. **Runs on:** operator. **Changes:** nothing."""
    elapsed = seconds_text(elapsed_s)
    if fraction is None:
        return View(f"… {what} — {elapsed}", f"<div>… {html.escape(what)} — {elapsed}</div>")
    percent = f"{fraction:.0%}"
    bar = (
        '<span style="display:inline-block;width:180px;height:8px;border-radius:4px;'
        'background-color:rgba(128,128,128,.3);vertical-align:middle;margin-right:10px">'
        f'<span style="display:block;height:8px;border-radius:4px;background-color:#2563b8;'
        f'width:{fraction * 100:.1f}%"></span></span>'
    )
    text = f"… {what} — {percent}, {elapsed}"
    return View(text, f"<div>{bar}{html.escape(what)} — {percent}, {elapsed}</div>")


def _in_notebook() -> bool:
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return getattr(get_ipython(), "kernel", None) is not None
