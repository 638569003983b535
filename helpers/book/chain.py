"""The chain: stages in order, each notebook executed into the run folder, the truth kept about each.

Chain and notebooks share nothing but the run folder. This room must not know what a stage does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from helpers.book.alone import HELD_VARIABLE, name_run, whole_run
from helpers.book.binding import (
    BATCH_VARIABLE,
    RUNBOOKS,
    RUNS_VARIABLE,
    asked,
    parameters_of,
    runs_root,
)
from helpers.book.execution import Execution, Progress, execute
from helpers.book.kernels import drop_prestarted
from helpers.book.parameters import check_parameters
from helpers.book.rooms import STAGES
from helpers.book.signals import signals_interrupt
from helpers.errors import ParameterError, PreconditionFailed
from helpers.record.outcome import outcome_of
from helpers.record.report import write_report
from helpers.record.run_folder import Outcome, RunFolder, StageRecord, StageState
from helpers.record.seal import seal
from helpers.recover.container_lock import Held
from helpers.target import load_target, target_names

CELL_TIMEOUT_S = 3600
_log = logging.getLogger(__name__)
_GOES_ON = (StageState.PASSED, StageState.SKIPPED)


@dataclass(frozen=True)
class StageEvent:
    """What the chain tells whoever watches: a stage begins, is somewhere, or has ended.

    When a run is resumed also: what a stage did before still counts ("reused"), or why it does not
    ("again").
    """

    kind: Literal["begins", "at", "ended", "reused", "again"]
    stage: str
    progress: Progress | None = None
    record: StageRecord | None = None
    why: str = ""


Watch = Callable[[StageEvent], None]


def stages_through(last: str | None) -> tuple[str, ...]:
    """The stages up to and including ``last``; all when it is None. The report always comes along.

    Raises:
        ParameterError: there is no such stage.
    """
    names = list(STAGES)
    if last is None:
        return tuple(names)
    matching = [n for n in names if last in (n, n.partition("_")[0], n.partition("_")[2])]
    if not matching:
        raise ParameterError(f"There is no stage {last!r}.", hint=f"Stages: {', '.join(names)}.")
    upto = names[: names.index(matching[0]) + 1]
    return (*upto, *(n for n in names if STAGES[n].always and n not in upto))


def run_chain(
    target: str,
    *,
    mode: Literal["run", "plan"],
    approved: bool,
    stages: Sequence[str],
    on_start: Callable[[RunFolder], None],
    watch: Watch,
) -> tuple[RunFolder, Outcome, str]:
    """Execute the stages' notebooks in order and say how the run ended.

    **Runs on:** operator; the stages on the target. **Changes:** the run folder, and what approved plans
    say.

    Args:
        target: a target's name or file.
        mode: "plan" changes and measures nothing and goes through every stage.
        approved: whether every plan is approved as shown.
        stages: their names, in order.
        on_start: told of the run folder as soon as it exists.
        watch: told of every stage's begin, place and end.

    Returns:
        The run folder, its outcome and the sentence that says why.

    Raises:
        ParameterError: something asked for is wrong; nothing was touched.
        PreconditionFailed: another run holds the container.
    """
    question = asked(target, tuple(stages), mode=mode, approved=approved)
    if target not in target_names():  # a path: notebooks run in another folder than this process
        target = question["target_file"]
    for stage in stages:
        check_parameters(_source(stage), parameters_of(stage, target, Path(), apply=approved))
    return carry_out(
        lambda: RunFolder.create(runs_root(), question),
        target,
        target_file=question["target_file"],
        planning=mode == "plan",
        apply=approved and mode == "run",
        on_start=on_start,
        watch=watch,
    )


def carry_out(
    open_folder: Callable[[], RunFolder],
    target: str,
    *,
    target_file: str,
    planning: bool,
    apply: bool,
    on_start: Callable[[RunFolder], None],
    watch: Watch,
    reuse: Callable[[str], bool] = lambda _stage: False,
) -> tuple[RunFolder, Outcome, str]:
    """Hold the target, execute a run's stages, and write down how it ended, whatever happens.

    **Runs on:** operator; the stages on the target. **Changes:** as ``run_chain``.

    Args:
        open_folder: makes or opens the run's folder; called once the target is held.
        target: as the notebooks are given it.
        target_file: declares the container that is held.
        planning: a plan touches nothing and holds nothing.
        apply: whether plans are approved.
        on_start: told of the run folder.
        watch: as for ``run_chain``.
        reuse: asked before each stage whether what it has done before still counts.

    Raises:
        PreconditionFailed: another run holds this target.
    """
    with _only_run(target_file, planning=planning) as held, signals_interrupt():
        folder = open_folder()
        if held is not None:
            name_run(held, folder)
        on_start(folder)
        mode = folder.asked.mode
        between = False
        try:
            _execute_all(folder, target, apply, watch, reuse)
        except KeyboardInterrupt:
            between = True  # while a notebook runs, a signal ends its stage and does not come here
            raise
        finally:
            drop_prestarted()
            outcome, summary = outcome_of(mode, folder.stage_records())
            if between:
                outcome, summary = Outcome.INTERRUPTED, "Interrupted between two stages."
            folder.journal.append("run_ended", outcome=outcome.value, summary=summary)
            finish_record(folder)
    return folder, outcome, summary


def finish_record(folder: RunFolder) -> None:
    """Write the report of a run that has ended, and seal all of it.

    **Runs on:** operator. **Changes:** the run folder.
    """
    _report(folder)
    _seal(folder)


def _report(folder: RunFolder) -> None:
    """Write the report; that it cannot be written changes nothing of how the run ended."""
    try:
        write_report(folder)
    except (
        Exception
    ):  # whatever a renderer or the disk says; it is said aloud, and can be made again
        _log.exception("the report could not be written; `recover report` makes it again")


def _seal(folder: RunFolder) -> None:
    """Seal the record; that it cannot be sealed changes nothing of how the run ended."""
    try:
        seal(folder)
    except OSError:  # a full disk, a folder that has become read-only
        _log.exception(
            "the record could not be sealed; `recover verify` will say that it has no seal"
        )


def _execute_all(
    folder: RunFolder, target: str, apply: bool, watch: Watch, reuse: Callable[[str], bool]
) -> None:
    stages = folder.asked.stages
    planning = folder.asked.mode == "plan"
    stopped = False
    for index, stage in enumerate(stages):
        if stopped and not STAGES[stage].always:
            continue
        if not stopped and reuse(stage):
            continue
        watch(StageEvent("begins", stage))
        folder.set_notebook_aside(stage)
        execution = execute(
            _source(stage),
            folder.notebook(stage),
            parameters_of(stage, target, folder.path, apply=apply),
            on_progress=_placed(stage, watch),
            spill_folder=folder.path / "logs" / stage,
            cell_timeout_s=CELL_TIMEOUT_S,
            kernel_env={
                BATCH_VARIABLE: "1",
                RUNS_VARIABLE: str(folder.path.parent),
                HELD_VARIABLE: "" if planning else folder.asked.run_id,
            },
            prestart_next=index + 1 < len(stages),
        )
        record = _settle(folder, stage, execution)
        watch(StageEvent("ended", stage, record=record))
        if record.state is StageState.INTERRUPTED:
            return
        stopped = stopped or not _may_go_on(record, planning)


def _placed(stage: str, watch: Watch) -> Callable[[Progress], None]:
    return lambda progress: watch(StageEvent("at", stage, progress=progress))


def _may_go_on(record: StageRecord, planning: bool) -> bool:
    return record.state in _GOES_ON or (planning and record.state is StageState.NEEDS_APPROVAL)


def _settle(folder: RunFolder, stage: str, execution: Execution) -> StageRecord:
    """Close what the notebook could not close itself: a killed kernel writes no last word."""
    record = folder.stage_record(stage)
    told = record.state not in (StageState.PENDING, StageState.RUNNING)
    if execution.outcome == "completed" and told:
        return record
    if execution.outcome == "failed" and told and record.state is not StageState.PASSED:
        return record
    if execution.outcome == "interrupted" and record.state is StageState.INTERRUPTED:
        return record
    state = {
        "failed": StageState.FAILED,
        "interrupted": StageState.INTERRUPTED,
    }.get(execution.outcome, StageState.UNKNOWN)
    folder.journal.append(
        "stage_ended",
        stage=stage,
        state=state.value,
        elapsed_s=round(execution.elapsed_s, 3),
        summary=_summary(execution),
        verdict=None,
        by="chain",
    )
    return folder.stage_record(stage)


def _summary(execution: Execution) -> str:
    where = f" in cell {execution.failed_cell_tag or execution.failed_cell_index}"
    what = {
        "completed": "the notebook ended without closing its stage",
        "failed": f"{execution.ename}: {execution.evalue}",
        "interrupted": "interrupted",
        "kernel_died": "the kernel died; what it was doing may or may not have happened",
        "timed_out": f"no end after {CELL_TIMEOUT_S} s",
        "stopped_early": "the notebook ended itself before its last cell",
    }[execution.outcome]
    return what if execution.outcome in ("completed", "stopped_early") else what + where


def _source(stage: str) -> Path:
    return RUNBOOKS / f"{stage}.ipynb"


@contextmanager
def _only_run(target_file: str, *, planning: bool) -> Iterator[Held | None]:
    """One run at a time on a container; a plan touches nothing and shuts nobody out."""
    try:
        runs_root().mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PreconditionFailed(
            f"Runs cannot be kept in {runs_root()}: {error}.",
            hint="Make that folder writable, or name another one in RECOVER_RUNS.",
        ) from error
    if planning:
        yield None
        return
    with whole_run(load_target(target_file)) as held:
        yield held
