"""Judge of stage 50: does training get its threads started, every time, compiled and right?

The verdict is one word, the headline of the check "thread start":

- *safe* (pass): every start was fine, and that is no luck: this torch keeps threads apart, or
  nothing was traced (its flag was never found up while they took their first steps, and nothing was
  compiled later), or there is only one thread.
- *racy*: a start crashed, hung or computed something else than the serial run.
- *silently degraded*: none of that, but a start ran uncompiled, compiled on and on, or left torch's
  state damaged.
- *unknown*: no start could be judged, or none failed on a torch that is exposed and traced
  meanwhile: luck cannot be told from safety by a handful of starts.

Racy and silently degraded are *degraded* when the same starts are fine with the remedy, so that
training can be had with three lines, and *fail* otherwise. Where the target declares that training
calls the remedy (``threads.remedy: prewarm``) the starts with it decide, and those without it are
told. What a start is: see ``helpers.judge.starts``; the interval: ``helpers.judge.interval``;
which torch is exposed: ``helpers.judge.exposure``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from helpers.judge import starts
from helpers.judge.exposure import all_starts, guards, lucky, traced, version
from helpers.judge.interval import failure_rate
from helpers.judge.reading import at, items, number, text
from helpers.judge.starts import Start, classify
from helpers.target import Target
from helpers.verdict import Check, Status, Verdict, verdict

SAFE, RACY, DEGRADED, UNKNOWN = "safe", "racy", "silently degraded", "unknown"
THREE_LINES = (
    "import prewarm",
    "calls = [lambda w=w, b=b: w.gradients(b) for w in workers for b in batches]",
    "prewarm.prewarm(calls, keep=[w.model for w in workers])",
)
_RULE = "rule: see the head of helpers/judge/threads.py"
_REMEDY = (
    "Put prewarm.py (from helpers/payloads) beside the training script and, before its threads "
    f"start, add: {' ⏎ '.join(THREE_LINES)} — then declare threads.remedy: prewarm."
)


def judge(evidence: Mapping[str, Any], target: Target) -> Verdict:
    """Judge how training's threads start.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        evidence: of stage 50; ``measured`` may be None, then nothing is known.
        target: what is declared.
    """
    measured = evidence.get("measured") or {}
    serial = at(measured, "serial")
    kinds = {
        how: [classify(start, serial) for start in items(at(measured, how)) or []]
        for how in ("bare", "prewarmed")
    }
    return verdict(
        [
            _thread_start(measured, kinds, target),
            *_without_remedy(measured, kinds["bare"], target),
            *_remedy(measured, kinds["prewarmed"], target),
            version(measured),
            guards(measured),
            _serial(measured),
            *_results(measured),
        ]
    )


def word(found: list[Start], measured: Mapping[str, Any], how: str) -> str:
    """The one word for a set of starts. **Changes:** nothing."""
    kinds = Counter(start.kind for start in found)
    if any(kinds[kind] for kind in starts.RACES):
        return RACY
    if any(kinds[kind] for kind in starts.DEGRADES):
        return DEGRADED
    if not found or kinds[starts.UNKNOWN] or lucky(measured, how):
        return UNKNOWN
    return SAFE


def _thread_start(
    measured: Mapping[str, Any], kinds: Mapping[str, list[Start]], target: Target
) -> Check:
    how = "prewarmed" if target.threads.remedy == "prewarm" else "bare"
    said = word(kinds[how], measured, how)
    proven = word(kinds["prewarmed"], measured, "prewarmed") == SAFE
    status = {SAFE: Status.PASS, UNKNOWN: Status.UNKNOWN}.get(said, Status.FAIL)
    if status is Status.FAIL and how == "bare" and proven:
        status = Status.DEGRADED
    return Check(
        name="thread start",
        status=status,
        measured=_counted(kinds[how], said),
        expected="in every process all threads get through their first steps, compiled and right",
        source=f"target: threads.processes, threads.remedy; {_RULE}",
        meaning="" if status is Status.PASS else _meaning(kinds, measured, how, said, proven),
    )


def _counted(found: list[Start], said: str) -> dict[str, Any] | None:
    if not found:
        return None
    known = [start for start in found if start.kind != starts.UNKNOWN]
    failed = sum(start.kind != starts.FINE for start in known)
    low, high = failure_rate(failed, len(known))
    return {
        "verdict": said,
        "failed": f"{failed} of {len(known)}",
        "failure_low_ratio": round(low, 3),
        "failure_high_ratio": round(high, 3),
        **({"unknown": len(found) - len(known)} if len(known) < len(found) else {}),
    }


def _meaning(
    kinds: Mapping[str, list[Start]],
    measured: Mapping[str, Any],
    how: str,
    said: str,
    proven: bool,
) -> str:
    worst = [start for start in kinds[how] if start.kind not in (starts.FINE, starts.UNKNOWN)]
    if worst:
        counts = Counter(start.kind for start in worst)
        named = ", ".join(f"{kind} {count} ×" for kind, count in counts.most_common())
        gravest = next((s for s in worst if s.kind in starts.RACES), worst[0])
        what = f"Started {'with the remedy' if how != 'bare' else 'as training does'}: {named}. {gravest.why}."
        if how == "bare" and proven:
            return f"{what} Warmed by one thread first, every start was fine. {_REMEDY}"
        return f"{what} " + (
            "The remedy did not help: this is more than the race. The stacks are in the evidence."
            if any(start.kind not in (starts.FINE, starts.UNKNOWN) for start in kinds["prewarmed"])
            else "It is not known whether the remedy helps."
        )
    unclear = next((start.why for start in kinds[how] if start.kind == starts.UNKNOWN), None)
    if unclear or not kinds[how]:
        return f"It could not be measured: {unclear or 'nothing was started'}."
    return (
        "None failed, but this torch is exposed and traced while the threads ran "
        f"({traced(measured, how):.0%} of the looks): that may have been luck. {_REMEDY}"
    )


def _without_remedy(
    measured: Mapping[str, Any], found: list[Start], target: Target
) -> Iterator[Check]:
    if target.threads.remedy == "none" or not found:
        return
    said = word(found, measured, "bare")
    yield Check(
        name="start without the remedy",
        status=Status.PASS if said == SAFE else Status.DRIFT,
        measured=_counted(found, said),
        expected="told only: the target declares that training calls the remedy",
        source="target: threads.remedy",
        meaning=""
        if said == SAFE
        else "Training must go on calling prewarm: without it its threads do not start safely.",
    )


def _remedy(measured: Mapping[str, Any], found: list[Start], target: Target) -> Iterator[Check]:
    if not found:
        return
    said = word(found, measured, "prewarmed")
    bad = next((start for start in found if start.kind != starts.FINE), None)
    status = {SAFE: Status.PASS, UNKNOWN: Status.UNKNOWN}.get(said, Status.FAIL)
    rate = starts.median_tok_per_s(items(at(measured, "prewarmed")) or [])
    told = {} if rate is None else {"tok_per_s": round(rate, 1)}
    yield Check(
        name="remedy: prewarm",
        status=status,
        measured={**(_counted(found, said) or {}), **told},
        expected="every start with it is fine",
        source="the same starts, every first step made by one thread before",
        meaning=""
        if status is Status.PASS
        else f"{bad.kind}: {bad.why}"
        if bad
        else "Something was traced all the same: none failing may be luck.",
    )


def _serial(measured: Mapping[str, Any]) -> Check:
    entries = items(at(measured, "serial", "entries"))
    whole = bool(entries) and all(
        number(entry, "later_step_s") is not None and not at(entry, "error")
        for entry in entries or []
    )
    return Check(
        name="serial run",
        status=Status.PASS if whole else Status.UNKNOWN,
        measured=None if entries is None else f"{len(entries)} entries",
        expected="every role, device and shape, by one thread, without an error",
        source=str(at(measured, "serial_from") or "nothing was measured"),
        meaning="" if whole else "Without it only crashes and hangs can be told from good starts.",
    )


def _results(measured: Mapping[str, Any]) -> Iterator[Check]:
    done = [start for start in all_starts(measured) if text(start, "phase") == "done"]
    if not done:
        return
    count = sum(starts.compared_losses(start, at(measured, "serial")) for start in done)
    yield Check(
        name="losses compared",
        status=Status.PASS if count else Status.DRIFT,
        measured=count,
        expected=f"the first losses, each within {starts.LOSS_RATIO:.0%} of the serial run's",
        source="the workload's step.loss()",
        meaning="" if count else "The workload's steps do not tell their loss: add step.loss().",
    )
