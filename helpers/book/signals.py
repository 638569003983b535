"""Ctrl-C, SIGTERM and SIGHUP as one polite request to stop.

A signal handler that raises can cut a save or a kernel's start in two. While a notebook is executed
the handlers only count, and the execution looks at the count ten times a second. This room must not
know what is being stopped.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PATIENCE = 3  # requests before the execution is cut off wherever it is


class StopRequests:
    """How often, and by which signal first, this process was asked to stop.

    Attributes:
        count: 0 = go on, 1 = stop and clean up, 2 = stop now.
        first: the signal that asked first.
    """

    def __init__(self) -> None:
        self.count = 0
        self.first: signal.Signals | None = None

    @property
    def name(self) -> str:
        """The first signal's name, as a person knows it."""
        if self.first is None:
            return ""
        return "Ctrl-C" if self.first is signal.SIGINT else self.first.name

    def ask(self, number: int) -> None:
        """Count one request. The third raises: whoever asks three times has seen it is no use."""
        self.count += 1
        self.first = self.first or signal.Signals(number)
        if self.count >= _PATIENCE:
            raise KeyboardInterrupt(self.name)


@contextmanager
def stop_requests() -> Iterator[StopRequests]:
    """Count signals instead of dying of them, while the block runs.

    **Runs on:** operator. **Changes:** this process's signal handlers, and puts them back.
    """
    requests = StopRequests()
    with _handling(lambda number, _frame: requests.ask(number)):
        yield requests


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt as Ctrl-C does, while the block runs.

    For what surrounds the execution of notebooks, so that its ``finally`` blocks run in every case.

    **Runs on:** operator. **Changes:** this process's signal handlers, and puts them back.
    """
    with _handling(_interrupt):
        yield


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)


@contextmanager
def _handling(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Install one handler. Only the main thread may; in another, nothing is installed.

    A signal that is ignored stays ignored: ``nohup`` and background jobs mean it. So does one that
    was taken by something other than Python (None), which could not be put back.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in _SIGNALS}
    ours = [number for number, old in before.items() if old not in (signal.SIG_IGN, None)]
    for number in ours:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])
