"""Reading evidence that may lack anything, and the checks that most judges need.

Evidence comes from files that may be old, cut short or written by a stage that failed: what is not
there is None, and None is ``unknown``, never an exception.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import JsonValue

from helpers.verdict import Check, Status


def at(document: object, *path: str) -> Any:
    """The value at a path of keys, or None where the path ends early. **Changes:** nothing."""
    for key in path:
        if not isinstance(document, Mapping):
            return None
        document = document.get(key)
    return document


def items(value: object) -> list[Any] | None:
    """A list as it is; None for anything else. **Changes:** nothing."""
    return value if isinstance(value, list) else None


def text(document: object, *path: str) -> str | None:
    """The text at a path of keys; None for anything else. **Changes:** nothing."""
    found = at(document, *path)
    return found if isinstance(found, str) else None


def number(document: object, *path: str) -> float | None:
    """The number at a path of keys; None for anything else. **Changes:** nothing."""
    found = at(document, *path)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def holds(
    name: str,
    right: bool | None,
    *,
    measured: JsonValue,
    expected: str,
    source: str,
    meaning: str,
    otherwise: Status = Status.FAIL,
) -> Check:
    """A check of a condition: None is unknown, True passes, False is ``otherwise``.

    **Changes:** nothing.
    """
    status = Status.UNKNOWN if right is None else Status.PASS if right else otherwise
    return Check(
        name=name,
        status=status,
        measured=measured,
        expected=expected,
        source=source,
        meaning="" if status is Status.PASS else meaning,
    )


def none_of(
    name: str,
    found: object,
    *,
    expected: str,
    source: str,
    meaning: str,
    otherwise: Status = Status.FAIL,
) -> Check:
    """A check that a list is empty: what is in it is named. **Changes:** nothing."""
    listed = items(found)
    return holds(
        name,
        None if listed is None else not listed,
        measured=listed,
        expected=expected,
        source=source,
        meaning=meaning,
        otherwise=otherwise,
    )
