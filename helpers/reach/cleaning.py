"""Cleaning up after oneself without hiding what went wrong before."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from helpers.errors import RunbookError


@contextmanager
def and_then(clean: Callable[[], object]) -> Iterator[None]:
    """Run ``clean`` after the block, come what may.

    When the block failed, its error is the one that is raised, also when cleaning fails too.
    """
    try:
        yield
    except BaseException:
        with suppress(RunbookError):  # most likely for the same reason
            clean()
        raise
    clean()
