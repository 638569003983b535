"""What became of one start of training's threads. A part of the judge of stage 50.

A start is compared with the serial run: one thread that took the first steps of every role, device
and shape in a process of its own (stage 40's proof). The kinds, the gravest first:

- *crash*: a thread raised, or the process died.
- *deadlock*: the watchdog ended it, or a thread did not stop.
- *wrong results*: a loss differs from the serial run's by more than ``LOSS_RATIO``.
- *silent eager fallback*: steps enter more modules than compiled ones do, or fewer graphs were
  made than the serial run has, or a device's threads do less work than ``WORK_RATIO`` of what one
  thread alone does there, or need more than ``MEMORY_RATIO`` × the memory of all their serial steps
  together.
- *recompiles*: torch gave a function up at its recompile limit, or compiled more than
  ``COMPILED_PER_S`` graphs a second in the window. (A graph now and then is Dynamo's own: threads
  that share a ``forward`` reorder its list of graphs, and one that looks it through may miss.)
- *residue*: torch's tracing flag is up, or ``nn.Module`` is patched, when no thread runs any more.
- *fine*, or *unknown* where it did not come far enough to say.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any, NamedTuple

from helpers.judge.reading import at, items, number, text
from helpers.judge.signatures import recognise

LOSS_RATIO = 0.02
WORK_RATIO = 0.5
MEMORY_RATIO = 1.5
COMPILED_PER_S = 1.0
FINE, UNKNOWN = "fine", "unknown"
CRASH, DEADLOCK, WRONG = "crash", "deadlock", "wrong results"
EAGER, RECOMPILES, RESIDUE = "silent eager fallback", "recompiles", "residue"
RACES = (CRASH, DEADLOCK, WRONG)
DEGRADES = (EAGER, RECOMPILES, RESIDUE)
_LINE_CHARACTERS = 300
_FATAL_SIGNALS = {"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL"}


class Start(NamedTuple):
    """One start: its kind, and why it is that, in words."""

    kind: str
    why: str


def classify(start: object, serial: object) -> Start:
    """Say what became of a start. **Changes:** nothing.

    Args:
        start: what stage 50 kept of it.
        serial: what the serial run measured; without it only crash, deadlock and residue show.
    """
    for kind, found in (
        (CRASH, _crash(start)),
        (DEADLOCK, _deadlock(start)),
        (UNKNOWN, _unmeasured(start)),
        (WRONG, _wrong(start, serial)),
        (EAGER, _eager(start, serial)),
        (RECOMPILES, _recompiles(start)),
        (RESIDUE, _residue(start)),
    ):
        if why := next(found, None):
            return Start(kind, why)
    return Start(FINE, "")


def _threads(start: object) -> list[Any]:
    return [thread for thread in items(at(start, "threads")) or [] if thread]


def _errors(start: object) -> list[Any]:
    return [error for error in items(at(start, "errors")) or [] if error]


def _crash(start: object) -> Iterator[str]:
    failed = [thread for thread in _threads(start) if text(thread, "error")]
    if failed:
        said = str(failed[0]["error"])
        known = recognise(said)
        yield (
            f"{len(failed)} of {len(_threads(start))} threads: {name(failed[0])} on "
            f"{text(failed[0], 'device')}: {first_line(said)}"
            + (f" — known as: {known.name}" if known else "")
        )
    signal = text(start, "died_of")
    if signal in _FATAL_SIGNALS:
        yield f"the process died of {signal}"


def _deadlock(start: object) -> Iterator[str]:
    """Whether it hung once torch was imported: before that there were no threads to hang."""
    phase = text(start, "phase")
    for error in _errors(start):
        if text(error, "where") == "watchdog" and phase not in (None, "import"):
            waiting = [name(t) for t in _threads(start) if number(t, "first_steps_s") is None]
            who = (
                f"{', '.join(waiting)} never finished a first step" if waiting else "all had begun"
            )
            yield f"hung in the phase {phase} ({text(error, 'message')}): {who}"
        if text(error, "type") == "DidNotStop":
            yield f"{text(error, 'message')}"


def _unmeasured(start: object) -> Iterator[str]:
    if errors := _errors(start):
        yield f"{text(errors[0], 'type')}: {first_line(text(errors[0], 'message'))}"
    if text(start, "phase") != "done" or not _threads(start):
        yield f"it came as far as {text(start, 'phase')}"
    if any(value is None for value in (at(start, "residue"), at(start, "compile", "window"))):
        yield "what it left behind was not looked at"
    if any(number(thread, "tokens") is None for thread in _threads(start)):
        yield "its tokens were not counted"


def _wrong(start: object, serial: object) -> Iterator[str]:
    for where, mine, right in _losses(start, serial):
        for step, (loss, expected) in enumerate(zip(mine, right, strict=False), 1):
            if loss is None or expected is None:
                continue
            if not abs(loss - expected) <= LOSS_RATIO * max(1.0, abs(expected)):
                yield f"{where}: loss {loss:.6g} at step {step}, {expected:.6g} in the serial run"


def compared_losses(start: object, serial: object) -> int:
    """How many losses could be compared. **Changes:** nothing."""
    return sum(
        loss is not None and expected is not None
        for _, mine, right in _losses(start, serial)
        for loss, expected in zip(mine, right, strict=False)
    )


def _losses(start: object, serial: object) -> Iterator[tuple[str, list[Any], list[Any]]]:
    for thread in _threads(start):
        entries = _entries(serial, thread)
        for entry, mine in zip(entries, items(at(thread, "losses")) or [], strict=False):
            yield name(thread), items(mine) or [], items(at(entry, "losses")) or []


def _entries(serial: object, thread: object) -> list[Any]:
    """The serial run's entries of a thread's role and device, in the order of its shapes."""
    wanted = (text(thread, "role"), text(thread, "device"))
    found = items(at(serial, "entries")) or []
    return [e for e in found if (text(e, "role"), text(e, "device")) == wanted]


def _eager(start: object, serial: object) -> Iterator[str]:
    for thread in _threads(start):
        pairs = zip(_entries(serial, thread), items(at(thread, "module_calls")) or [], strict=False)
        for entry, count in pairs:
            right = number(entry, "module_calls")
            if right is not None and count is not None and count > right:
                yield (
                    f"a step of {name(thread)} enters {count:.0f} modules one by one, "
                    f"{right:.0f} in the serial run"
                )
    graphs = number(start, "compile", "before", "unique_graphs")
    right = number(serial, "totals", "counters", "unique_graphs")
    if graphs is not None and right is not None and graphs < right:
        yield f"{graphs:.0f} graphs were made, {right:.0f} in the serial run"
    for device, ratio in work_ratios(start, serial).items():
        if ratio < WORK_RATIO:
            yield f"all threads on {device} together do {ratio:.0%} of one thread's work alone"
    yield from _memory(start, serial)


def work_ratios(start: object, serial: object) -> dict[str, float]:
    """For each device: the work of its threads, in units of what one thread alone does there.

    Work is what the tokens would have taken in the serial run. On a CPU it is corrected for other
    programs, as stage 60's is. **Changes:** nothing.
    """
    window_s = number(start, "window_s")
    ratios: dict[str, float] = {}
    for thread in _threads(start) if window_s else []:
        entries, tokens = _entries(serial, thread), number(thread, "tokens")
        steps = [(number(e, "later_step_s"), number(e, "tokens")) for e in entries]
        if tokens is None or not steps or any(not s or not t for s, t in steps):
            continue
        per_token_s = sum(s or 0.0 for s, _ in steps) / sum(t or 0.0 for _, t in steps)
        device = str(text(thread, "device"))
        ratios[device] = ratios.get(device, 0.0) + tokens * per_token_s / (window_s or 1.0)
    if "cpu" in ratios:
        ratios["cpu"] *= _kept_from_cores(start)
    return ratios


def _kept_from_cores(start: object) -> float:
    """By how much more the process would have run, had every core been free for it."""
    own, wait = (number(start, "load", "own", key) for key in ("own_cores", "own_wait_cores"))
    cores = number(start, "load", "cores")
    if not own or wait is None or cores is None:
        return 1.0
    return max(1.0, min(cores, own + wait) / own)


def _memory(start: object, serial: object) -> Iterator[str]:
    for device, peaks in (at(start, "memory", "devices") or {}).items():
        threads = [t for t in _threads(start) if text(t, "device") == device]
        serial_peaks = [
            number(entry, "memory", "devices", device, "peak_allocated_bytes")
            for thread in threads
            for entry in _entries(serial, thread)
        ]
        bound = sum(peak or 0.0 for peak in serial_peaks)
        peak = number(peaks, "peak_allocated_bytes")
        if peak is not None and bound and None not in serial_peaks and peak > MEMORY_RATIO * bound:
            yield f"{peak / 1e9:.1f} GB on {device}, {bound / 1e9:.1f} GB for all its serial steps"


def _recompiles(start: object) -> Iterator[str]:
    if (count := number(start, "over_limit") or 0) > 0:
        yield f"{count:.0f} compilations were given up at torch's recompile limit"
    allowed = COMPILED_PER_S * (number(start, "window_s") or 0.0)
    if (count := number(start, "compile", "window", "compilations") or 0) > allowed:
        yield f"{count:.0f} graphs were compiled after all threads had their first steps"


def _residue(start: object) -> Iterator[str]:
    left = [key for key, value in (at(start, "residue") or {}).items() if value]
    if left:
        yield f"left behind when no thread ran any more: {', '.join(left)}"


def median_tok_per_s(starts: list[Any]) -> float | None:
    """The middle throughput of the starts that have one. **Changes:** nothing."""
    rates = [rate for start in starts if (rate := number(start, "tok_per_s"))]
    return statistics.median(rates) if rates else None


def name(thread: object) -> str:
    """What a thread is called: its role and its number in it. **Changes:** nothing."""
    return f"{text(thread, 'role')}{at(thread, 'index')}"


def first_line(said: object) -> str:
    """The first line of an error, cut where it is long. **Changes:** nothing."""
    lines = str(said or "no reason was given").strip().splitlines()
    return lines[0][:_LINE_CHARACTERS] if lines else "no reason was given"
