"""Stage 50: training's threads are started as training starts them, in fresh processes.

Every process starts all threads at once on every declared device and shape, each under a watchdog
of its own. When one does not come through, or something was traced meanwhile, or the target says
that training does so, the same is done with the remedy: one thread makes all first steps before the
others start (``payloads/prewarm.py``). Nothing is changed; torch works in a private copy of the
cache. This room must not know which start is good.

Facts::

    {torch: installed version|null, misfits: [why the cache is not known to be warm],
     processes: how many are started, remedy: what the target declares,
     serial_from: where the serial run comes from, running: [{pid, command, ..}] from the
     environment, errors: [payload errors]}

Measured::

    {serial: what stage 40's payload measured while proving, see its head, serial_from: stage or
     "this stage", deadline_s: of one start,
     bare: [start], prewarmed: [start]} each what the payload ``threads`` measured (see its head),
     with its ``errors``, ``elapsed_s`` and ``died_of``: null, or the signal or exit code of a
     process that ended without a document, its last words then in ``errors``
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any

from helpers.errors import PayloadBroken
from helpers.plan import Plan
from helpers.reach.payload import run_payload
from helpers.recover import warm_cache, warm_process, workload
from helpers.recover.work import Json, Work

STAGE = "50_threads"
WINDOW_S = 2.0
_LEAST_DEADLINE_S, _MOST_DEADLINE_S = 45.0, 900.0
# A start that compiles everything anew in every thread takes a few times as long as one thread.
_TIMES_SERIAL = 4.0
_LAST_LINES = 200


def look(work: Work) -> Json:
    """Whether the cache is warm, which torch will be started, what else is running.

    **Runs on:** container. **Changes:** nothing.
    """
    found: Any = warm_cache.look(work)
    declared = work.target.threads
    return {
        "torch": found["key"]["torch"],
        "misfits": found["misfits"],
        "processes": declared.processes,
        "remedy": declared.remedy,
        "serial_from": "this stage" if _of_stage_40(work) is None else warm_cache.STAGE,
        "running": found["processes"],
        "errors": found["errors"],
    }


def plan(work: Work, facts: Json) -> Plan:
    """Never a change. **Runs on:** operator. **Changes:** nothing."""
    threads = sum(len(role.devices) for role in work.target.workload.roles)
    count = work.target.threads.processes
    return Plan(
        stage=STAGE,
        measures=(
            f"{count} fresh process{'es' * (count != 1)} start{'s' * (count == 1)} {threads} "
            "threads at once, as training does, in a private copy of the compile cache",
            f"{count} more with the remedy, when one does not come through or the target names it",
        ),
        why="This stage only measures.",
    )


def apply(work: Work, facts: Json, plan: Plan) -> Json:
    """Start the threads as training does; and with the remedy, where that is of interest.

    **Runs on:** container. **Changes:** nothing.

    Raises:
        PayloadBroken, CommandTimedOut, OutcomeUnknown: nothing is known to be measured.
    """
    serial, origin = _serial(work)
    deadline_s = _deadline_s(serial)
    bare = _starts(work, deadline_s, prewarm=False)
    wanted = work.target.threads.remedy == "prewarm" or any(
        _of_interest(start, serial) for start in bare
    )
    return {
        "serial": serial,
        "serial_from": origin,
        "deadline_s": deadline_s,
        "bare": [*bare],
        "prewarmed": [*_starts(work, deadline_s, prewarm=True)] if wanted else [],
    }


def _serial(work: Work) -> tuple[Json, str]:
    """One thread's first steps of every role, device and shape, in a process of its own."""
    proof = _of_stage_40(work)
    if proof is not None:
        return proof, warm_cache.STAGE
    return warm_process.run(work, "prove").measured, "this stage"


def _of_stage_40(work: Work) -> Json | None:
    """What stage 40's proof of this run measured, when it covers everything."""
    evidence = work.evidence_of(warm_cache.STAGE) or {}
    proof: Any = (evidence.get("measured") or {}).get("prove") or {}
    entries = proof.get("entries") or []
    whole = len(entries) == len(warm_process.entries(work.target)) and not any(
        entry.get("error") or entry.get("module_calls") is None for entry in entries
    )
    return proof if whole else None


def _deadline_s(serial: Mapping[str, Any]) -> float:
    first_steps_s = float((serial.get("totals") or {}).get("first_steps_s") or 0.0)
    return min(_LEAST_DEADLINE_S + _TIMES_SERIAL * first_steps_s, _MOST_DEADLINE_S)


def _starts(work: Work, deadline_s: float, *, prewarm: bool) -> list[Json]:
    count = work.target.threads.processes
    return [_start(work, deadline_s, prewarm, number, count) for number in range(count)]


def _start(work: Work, deadline_s: float, prewarm: bool, number: int, count: int) -> Json:
    """Start all threads in one fresh process; how it ended is the answer, whatever it is."""
    doing = f"start {number + 1} of {count}{', warmed by one thread first' if prewarm else ''}"
    work.say(f"{doing}: importing torch", number / count)
    try:
        document = run_payload(
            work.container,
            "threads",
            {**workload.params(work.target), "prewarm": prewarm, "seconds": WINDOW_S},
            python=workload.venv_python(work.target),
            purpose=f"start training's threads{', warmed first' if prewarm else ''}",
            env=workload.environment(work.target),
            deadline_s=deadline_s,
            on_progress=lambda record: work.say(f"{doing}: {_said(record)}", number / count),
        )
    except PayloadBroken as error:
        if (died_of := _died_of(error)) is None:
            raise
        return _died(error, died_of)
    return {
        **document.measured,
        "errors": list(document.errors),
        "elapsed_s": document.elapsed_s,
        "died_of": None,
    }


def _died_of(error: PayloadBroken) -> str | None:
    """The signal that ended a process, or its exit code; None when it is not known."""
    code = None if error.result is None else error.result.returncode
    if code is None:
        return None
    number = -code if code < 0 else code - 128
    known = number in signal.valid_signals() and number > 0
    return signal.Signals(number).name if known else f"exit code {code}"


def _died(error: PayloadBroken, died_of: str) -> Json:
    """A start without a document: killed by a signal, or by faulthandler while it hung."""
    last = error.result.stderr.decode("utf-8", "backslashreplace") if error.result else ""
    words = last.splitlines()[-_LAST_LINES:]
    # faulthandler's own words when it ends a process that no longer answers
    hung = any(line.startswith("Timeout (") for line in words)
    told: Json = {
        "where": "watchdog" if hung else "process",
        "type": "NoDocument",
        "message": error.what,
        "traceback": [*words],
    }
    # It is not known how far it came; before the threads nothing hangs without the interpreter.
    phase = "first_steps" if hung else None
    return {"phase": phase, "threads": [], "errors": [told], "elapsed_s": None, "died_of": died_of}


def _of_interest(start: Mapping[str, Any], serial: Mapping[str, Any]) -> bool:
    """Whether the remedy is worth trying: anything at all is unlike a start with nothing to trace."""
    most = max((e.get("module_calls") or 0 for e in serial.get("entries") or []), default=0)
    calls = [n for t in start.get("threads") or [] for n in t.get("module_calls") or []]
    return (
        start.get("phase") != "done"
        or bool(start.get("errors"))
        or any((start.get("residue") or {}).values())
        or bool((start.get("tracing") or {}).get("up"))
        or any(count > most for count in calls)
        or bool((start["compile"]["window"] or {}).get("compilations"))
    )


def _said(record: Mapping[str, Any]) -> str:
    phase = record.get("phase")
    if phase == "first_steps":
        return f"{record.get('ready')} of {record.get('threads')} threads have their first steps"
    return {"window": "counting steps", "prewarm": "making every first step"}.get(
        str(phase), "importing torch"
    )
