"""Take up a run that has not come to its end: what still counts is kept, everything else is done again.

A stage that passed is kept only while everything it rested on is the same and a fresh, read-only look
finds nothing to change. This room must not know what a stage does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import nbformat
from pydantic import JsonValue

from helpers.book.alone import runner_is_gone
from helpers.book.binding import bind, runs_root
from helpers.book.chain import StageEvent, Watch, carry_out, finish_record
from helpers.book.rooms import STAGES
from helpers.errors import ParameterError, RunbookError
from helpers.record.run_folder import Outcome, RunFolder, StageState
from helpers.target import find_target, load_target, target_names

ALWAYS_AGAIN = "00_preflight"
_DIED = "whoever ran it died without a word"


def resume_chain(
    run: str | None,
    *,
    approved: bool,
    on_start: Callable[[RunFolder], None],
    watch: Watch,
) -> tuple[RunFolder, Outcome, str]:
    """Go on with a run.

    **Runs on:** operator; the stages on the target. **Changes:** the run folder, and what approved plans
    say.

    Args:
        run: a run id or folder; None = the latest one that is not at its end.
        approved: whether every plan is approved as shown.
        on_start: told of the run folder.
        watch: told of every stage's begin, place and end, and of what is kept or done again and why.

    Raises:
        ParameterError: there is no such run, or it cannot be resumed; nothing was touched.
        PreconditionFailed: another run holds this target.
    """
    folder = RunFolder.open(runs_root(), run) if run else latest_unfinished(runs_root())
    target = _target_of(folder)
    reuse = _Reuse(folder, target, watch)
    return carry_out(
        lambda: _taken_up(folder),
        target,
        target_file=folder.asked.target_file,
        planning=False,
        apply=approved,
        on_start=on_start,
        watch=watch,
        reuse=reuse,
    )


def latest_unfinished(root: Path) -> RunFolder:
    """The newest run that was asked to recover and has not. **Changes:** nothing.

    Raises:
        ParameterError: there is none.
    """
    for path in sorted(root.glob("*/run.json"), reverse=True):
        folder = RunFolder(path.parent)
        try:
            unfinished = folder.asked.mode == "run" and folder.outcome is not Outcome.RECOVERED
        except ParameterError:  # of another version: not ours to go on with
            continue
        if unfinished:
            return folder
    raise ParameterError(
        f"No run in {root} waits to be resumed.", hint="`recover status` lists the runs."
    )


def _target_of(folder: RunFolder) -> str:
    """The run's target as its notebooks were given it, proven to be the one the run began with."""
    asked = folder.asked
    if asked.mode != "run":
        what = {"plan": "was only a plan", "step": "goes notebook by notebook"}.get(asked.mode, "")
        raise ParameterError(
            f"The run {asked.run_id} {what or 'is of another kind'}; there is nothing to resume.",
            hint=f"Start one: recover run {asked.target_name}",
        )
    if folder.outcome is Outcome.RECOVERED:
        raise ParameterError(
            f"The run {asked.run_id} has recovered; there is nothing to resume.",
            hint=f"To see whether that still holds, start a new run: recover run {asked.target_name}",
        )
    name = asked.target_name
    named = name in target_names() and str(find_target(name)) == asked.target_file
    target = name if named else asked.target_file
    if load_target(target).content_hash != asked.target_hash:
        raise ParameterError(
            f"{asked.target_file} has changed since the run {asked.run_id} began.",
            hint="What it has found holds for the old one only: start a new run.",
        )
    return target


def _taken_up(folder: RunFolder) -> RunFolder:
    """Close, and name, what a dead runner left open. **Changes:** the journal."""
    running = [r.name for r in folder.stage_records() if r.state is StageState.RUNNING]
    told: list[JsonValue] = [*running]
    folder.journal.append("run_resumed", left_running=told, left_open=len(_open_changes(folder)))
    _close_left_open(folder, running, by="resume")
    return folder


def close_dead_run(folder: RunFolder) -> bool:
    """Write the end of a run whose runner died without a word, if it is such a run.

    **Runs on:** operator. **Changes:** journal, report and seal, and then only of a run that has no
    end and whose runner is gone: what was going on is interrupted, what was being changed is unknown.

    Returns:
        Whether it was one.
    """
    if folder.asked.mode != "run" or folder.outcome is not None:
        return False
    if not runner_is_gone(folder.asked):
        return False
    running = [r.name for r in folder.stage_records() if r.state is StageState.RUNNING]
    _close_left_open(folder, running, by="status")
    outcome, summary = Outcome.INTERRUPTED, f"{_DIED}; found out later."
    folder.journal.append("run_ended", outcome=outcome.value, summary=summary, by="status")
    finish_record(folder)
    return True


def _close_left_open(folder: RunFolder, running: list[str], *, by: str) -> None:
    changes = _open_changes(folder)
    for stage, change in changes:
        folder.journal.append("change", stage=stage, phase="unknown", change=change, error=_DIED)
    for stage in running:
        folder.journal.append(
            "stage_ended",
            stage=stage,
            state=StageState.INTERRUPTED.value,
            elapsed_s=None,
            summary=f"{_DIED}; {len(changes)} changes were begun and not ended",
            verdict=None,
            by=by,
        )


def _open_changes(folder: RunFolder) -> list[tuple[str, dict[str, Any]]]:
    """Changes that were begun, and nobody has said how they ended."""
    begun: dict[tuple[str, str, str], dict[str, Any]] = {}
    for event in folder.journal.events():
        if event["event"] == "change":
            change = event["change"]
            key = (event["stage"], change["what"], change["where"])
            if event["phase"] == "begins":
                begun[key] = change
            else:
                begun.pop(key, None)
    return [(stage, change) for (stage, _, _), change in begun.items()]


class _Reuse:
    """Asked before each stage whether what it has done before still counts.

    Args:
        folder: the run.
        target: as the notebooks are given it.
        watch: told of the answer.
    """

    def __init__(self, folder: RunFolder, target: str, watch: Watch) -> None:
        self._folder = folder
        self._target = target
        self._watch = watch
        self._ran: list[str] = []  # stages that were run again

    def __call__(self, stage: str) -> bool:
        record = self._folder.stage_record(stage)
        why = "" if record.state is StageState.PENDING else self._why_again(stage, record.state)
        if record.state is not StageState.PENDING and not why:
            self._folder.journal.append("stage_reused", stage=stage)
            self._watch(StageEvent("reused", stage, record=record))
            return True
        self._ran.append(stage)
        if why:
            self._folder.journal.append("stage_again", stage=stage, why=why)
            self._watch(StageEvent("again", stage, why=why))
        return False

    def _why_again(self, stage: str, state: StageState) -> str:
        if stage == ALWAYS_AGAIN or STAGES[stage].always:
            return "it is always run again"
        if state is not StageState.PASSED:
            return f"it was {state.value}"
        changed = [ran for ran in self._ran if _has_changed(self._folder.evidence(ran))]
        if changed:
            return f"{changed[0]} has changed the target since"
        try:
            return self._differs(stage) or _no_longer_holds(self._folder, self._target, stage)
        except RunbookError as error:
            return f"whether it still holds could not be found out: {error.what}"

    def _differs(self, stage: str) -> str:
        """What of the runbook or its parameters is not as it was."""
        started = [
            event
            for event in self._folder.journal.events()
            if event["event"] == "stage_started" and event["stage"] == stage
        ]
        binding = bind(stage, target=self._target, run=str(self._folder.path), say=_silent)
        if started[-1]["notebook_sha256"] != binding.notebook_sha256():
            return "its notebook has changed since"
        if _parameters(self._folder.notebook(stage)).get("target") != self._target:
            return "it was run with other parameters"
        return ""


def _has_changed(evidence: Mapping[str, Any] | None) -> bool:
    """Whether a stage has, or may have, changed the target."""
    plan = (evidence or {}).get("plan") or {}
    return bool(plan.get("changes"))


def _parameters(notebook: Path) -> dict[str, Any]:
    """What an executed notebook was given."""
    try:
        found = nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]
    except (OSError, ValueError):
        return {}
    return dict(found.metadata.get("papermill", {}).get("parameters", {}))


def _no_longer_holds(folder: RunFolder, target: str, stage: str) -> str:
    """What a fresh look finds that is not as the stage left it; empty when all is."""
    binding = bind(stage, target=target, run=str(folder.path), say=_silent)
    evidence = folder.evidence(stage)
    if evidence is None:
        return "its evidence is gone"
    try:
        binding.refuse_wrong_target()
        facts = binding.room.look(binding.work)
        plan = binding.room.plan(binding.work, facts)
    finally:
        binding.container.close()
    if plan.changes:
        first = plan.changes[0]
        return f"it is not as it was left: {first.what}: {first.where} ({plan.why})"
    now = {**evidence, "facts": facts, "plan": plan.model_dump(mode="json")}
    verdict = binding.judge(now, binding.target)
    if verdict.status.good:
        return ""
    deciding = verdict.deciding
    return f"{deciding.name}: {deciding.meaning}" if deciding else "nothing is known of it"


def _silent(_text: str, _fraction: float | None) -> None:
    """Nobody watches a look that takes a moment."""
