"""Did every thread of training start, step and live? A part of the judge of stage 60."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.judge.signatures import recognise
from helpers.target import Target
from helpers.verdict import Check, Status

_LINE_CHARACTERS = 300  # torch's errors can list thousands of frames in one line


def threads(measured: Mapping[str, Any], target: Target) -> Check:
    """One check over all threads; the first thread that failed is named with its error.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        measured: of stage 60; empty when nothing was measured.
        target: says how many threads there must be.
    """
    wanted = sum(len(role.devices) for role in target.workload.roles)
    found = [thread for thread in measured.get("threads") or [] if thread]
    status, meaning = _outcome(measured, found, wanted)
    stepping = sum(1 for thread in found if not thread.get("error") and thread.get("tokens"))
    return Check(
        name="threads",
        status=status,
        measured=f"{stepping} of {wanted} threads trained" if found else None,
        expected=f"{wanted} threads at once, none of them failing",
        source="target: workload.roles",
        meaning=meaning,
    )


def _outcome(
    measured: Mapping[str, Any], found: list[Mapping[str, Any]], wanted: int
) -> tuple[Status, str]:
    errors = [error for error in measured.get("errors") or [] if error]
    failed = [thread for thread in found if thread.get("error")]
    if failed:
        return Status.FAIL, _said(failed, wanted)
    hung = [error for error in errors if error.get("where") == "watchdog"]
    if hung and found:
        return Status.FAIL, _hung(found, str(measured.get("phase")), hung[0])
    stuck = [error for error in errors if error.get("type") == "DidNotStop"]
    if stuck:
        return Status.FAIL, f"{stuck[0].get('message')}: it hangs; its stack is in the evidence."
    if errors:
        text = _first_line(errors[0].get("message"))
        return Status.UNKNOWN, f"It could not be measured: {errors[0].get('type')}: {text}"
    if measured.get("phase") != "done" or not found:
        return Status.UNKNOWN, "The threads were not measured."
    idle = [_name(thread) for thread in found if thread.get("tokens") == 0]
    if idle:
        return (
            Status.FAIL,
            f"No step of {', '.join(idle)} fell into the window: it waits for something.",
        )
    if len(found) != wanted or any(thread.get("tokens") is None for thread in found):
        return Status.UNKNOWN, f"{len(found)} threads were measured, {wanted} are declared."
    return Status.PASS, ""


def _said(failed: list[Mapping[str, Any]], wanted: int) -> str:
    first = failed[0]
    text = str(first["error"])
    known = recognise(text)
    named = f" — known as: {known.name}. {known.meaning}" if known else ""
    count = f"{len(failed)} of {wanted} threads failed; " if len(failed) > 1 else ""
    return f"{count}{_name(first)} on {first.get('device')}: {_first_line(text)}{named}"


def _hung(found: list[Mapping[str, Any]], phase: str, watchdog: Mapping[str, Any]) -> str:
    waiting = [_name(thread) for thread in found if thread.get("first_steps_s") is None]
    who = f"{', '.join(waiting)} never finished a first step" if waiting else "the threads went on"
    return (
        f"Hung in the phase {phase} ({watchdog.get('message')}): {who}. "
        "The stacks of all threads are in the evidence."
    )


def _name(thread: Mapping[str, Any]) -> str:
    return f"{thread.get('role')}{thread.get('index')}"


def _first_line(text: object) -> str:
    lines = str(text or "no reason was given").strip().splitlines()
    return lines[0][:_LINE_CHARACTERS] if lines else "no reason was given"
