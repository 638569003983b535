"""Evidence with holes: what is left of it when any one part is missing, null or of another kind."""

import json
from collections.abc import Iterator
from typing import Any


def cut_everywhere(evidence: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Copies of ``evidence``, each with one part missing, null, or something else altogether."""
    for path in places(evidence):
        for damage in ("missing", None, "text", 7, [], {}):
            copied = json.loads(json.dumps(evidence))
            inside: Any = copied
            for key in path[:-1]:
                inside = inside[key]
            if damage == "missing":
                del inside[path[-1]]
            else:
                inside[path[-1]] = damage
            yield copied


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every part of a JSON value."""
    inside = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, part in inside:
        yield (*path, key)
        yield from places(part, (*path, key))
