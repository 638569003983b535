"""Is this torch exposed to the race between threads, and is its guard left alone?

A part of the judge of stage 50.

The rule by version (pytorch #126024, #168999, #184614, #187589): up to 2.12 one tracing flag serves
all threads, and ``nn.Module`` is patched for all while one traces. 2.13 hides the flag from the
check while a thread compiles, and patches as before: threads that trace at once still break each
other (measured on a CPU with 2.13.0 as it was shipped: 3 of 3). From 2.14 on both are each thread's
own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from helpers.judge.reading import at, items, number, text
from helpers.verdict import Check, Status

HIDDEN_SINCE, FIXED_SINCE = (2, 13), (2, 14)


def _torch(measured: Mapping[str, Any]) -> str | None:
    found = (at(start, "torch", "version") for start in all_starts(measured))
    return next((version for version in found if version), None)


def all_starts(measured: Mapping[str, Any]) -> list[Any]:
    """Every start, in whichever way. **Changes:** nothing."""
    return [s for how in ("bare", "prewarmed") for s in items(at(measured, how)) or [] if s]


def release(version: str | None) -> tuple[int, int] | None:
    """Major and minor of a torch version; None when it says none. **Changes:** nothing."""
    found = re.match(r"(\d+)\.(\d+)", version or "")
    return (int(found[1]), int(found[2])) if found else None


def version(measured: Mapping[str, Any]) -> Check:
    """What this torch does for threads by its own rule. **Changes:** nothing."""
    installed = _torch(measured)
    parts = release(installed)
    if parts is None:
        status, said = Status.UNKNOWN, "It is not known which torch was started."
    elif parts >= FIXED_SINCE:
        status, said = Status.PASS, "the tracing flag is each thread's own: safe (since 2.14)"
    elif parts >= HIDDEN_SINCE and not _replaced(measured):
        status = Status.PASS
        said = "one tracing flag for all threads, hidden while one compiles: safe if none traces"
    elif parts >= HIDDEN_SINCE:
        status = Status.DRIFT
        said = "2.13 hides its one flag while a thread compiles; here that has been replaced"
    else:
        status, said = Status.DRIFT, "one tracing flag for all threads, and nothing hides it"
    return Check(
        name="torch's own rule",
        status=status,
        measured=None if parts is None else {"torch": installed, "rule": said},
        expected="2.14 or newer, or 2.13 as it was shipped",
        source="pytorch #168999, #187589 (2.14), #184614 (2.13)",
        meaning=""
        if status is Status.PASS
        else f"{said[0].upper()}{said[1:]}: exposed to the race.",
    )


def _exposed(measured: Mapping[str, Any]) -> bool:
    parts = release(_torch(measured))
    return parts is None or parts < FIXED_SINCE


def lucky(measured: Mapping[str, Any], how: str) -> bool:
    """Whether starts that were fine may have been so by luck. **Changes:** nothing."""
    found = [start for start in items(at(measured, how)) or [] if start]
    several = any(len(items(at(start, "threads")) or []) > 1 for start in found)
    later = any(number(start, "compile", "window", "compilations") for start in found)
    return several and _exposed(measured) and (later or traced(measured, how) > 0)


def traced(measured: Mapping[str, Any], how: str) -> float:
    """The share of looks that found the tracing flag up; 1 where nobody looked.

    **Changes:** nothing.
    """
    found = [at(start, "tracing") for start in items(at(measured, how)) or []]
    looks, up = (sum(number(one, key) or 0 for one in found) for key in ("looks", "up"))
    return up / looks if looks else 1.0


def _guards_of(measured: Mapping[str, Any]) -> list[Any]:
    return [
        at(thread, "guards")
        for s in all_starts(measured)
        for thread in items(at(s, "threads")) or []
    ]


def _replaced(measured: Mapping[str, Any]) -> bool:
    return any(items(at(seen, "replaced")) for seen in _guards_of(measured))


def guards(measured: Mapping[str, Any]) -> Check:
    """Whether anything of torch's guard is muted or replaced. **Changes:** nothing."""
    known = [seen for seen in _guards_of(measured) if seen]
    replaced = {
        f"{text(one, 'name')} by {text(one, 'by')}": text(one, "name")
        for seen in known
        for one in items(at(seen, "replaced")) or []
    }
    muted = any(at(seen, "error_on_nested_fx_trace") is False for seen in known)
    muted = muted or any("is_fx_symbolic_tracing" in str(name) for name in replaced.values())
    status = Status.UNKNOWN if not known else Status.DRIFT if replaced else Status.PASS
    meaning = "It was not looked at." if not known else "Code of this training replaces it."
    if muted:
        status = Status.FAIL
        meaning = (
            "The check that reports the race is muted: threads then go on uncompiled, many times "
            "slower and with many times the memory. Take that out; the remedy is prewarm."
        )
    said = [*replaced, *(["error_on_nested_fx_trace = False"] if muted and not replaced else [])]
    return Check(
        name="torch's guards as shipped",
        status=status,
        measured=[*said] if known else None,
        expected="nothing of torch is muted or replaced",
        source="torch, as each thread sees it",
        meaning="" if status is Status.PASS else meaning,
    )
