"""What happened to a run besides its stages: taken up again, what was found, what was reused.

This room puts journal events into words; it must not know who wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Event = Mapping[str, Any]


def happenings(events: Iterable[Event]) -> list[tuple[str, str]]:
    """When and what, in order. **Runs on:** operator. **Changes:** nothing."""
    return [
        (str(event.get("at", "")), _SAID[event["event"]](event))
        for event in events
        if event.get("event") in _SAID
    ]


def _resumed(event: Event) -> str:
    stages = ", ".join(map(str, event.get("left_running") or [])) or "no stage"
    changes = event.get("left_open") or 0
    return f"The run was taken up again; left open were {stages} and {changes} changes."


def _taken_over(event: Event) -> str:
    who = event.get("holder") or {}
    return (
        f"The container's lock had been left by process {who.get('pid')} of {who.get('operator')} "
        f"(run {who.get('run_id')}), which is gone."
    )


_SAID: dict[str, Callable[[Event], str]] = {
    "run_resumed": _resumed,
    "stage_reused": lambda event: f"{event.get('stage')} still held and was not run again.",
    "stage_again": lambda event: f"{event.get('stage')} was run again: {event.get('why')}.",
    "left_work": lambda event: f"{event.get('stage')}: {event.get('said')}.",
    "lock_taken_over": _taken_over,
}
