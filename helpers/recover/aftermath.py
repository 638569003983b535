"""What an error says of the machine: something was done before it, or the way back fails too.

An error knows only its own command. These two complete it with what the stage knows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from helpers.errors import RunbookError


@contextmanager
def after_changes(*, made: bool = True) -> Iterator[None]:
    """Let an error of the block say that the target was changed, if ``made``.

    A command that only reads says "nothing was changed", which is true of itself alone.
    """
    try:
        yield
    except RunbookError as error:
        if made and error.changed == "no":
            error.changed = "yes"
        raise


@contextmanager
def way_back(first: BaseException) -> Iterator[None]:
    """Let an error on the way back tell of both: what failed first, and that it is not undone."""
    try:
        yield
    except RunbookError as second:
        second.what = f"{first}\nAfter that, putting things back failed too: {second.what}"
        second.changed = "unknown"
        raise second from first
