"""The only door for notebooks: ``from helpers import open_stage``.

What a notebook needs is loaded when it is asked for, so that the rest of the package can import a small
room without loading the whole house.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from helpers.book.opening import open_stage

__all__ = ["open_stage"]


def __getattr__(name: str) -> Any:
    if name == "open_stage":
        from helpers.book.opening import open_stage

        return open_stage
    raise AttributeError(f"module 'helpers' has no attribute {name!r}")
