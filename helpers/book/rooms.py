"""The stages in order: for each its room, its judge, and what people call it.

The one list that notebooks, chain and command line share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from helpers.book.report_room import ReportRoom
from helpers.judge import benchmark as judge_benchmark
from helpers.judge import environment as judge_environment
from helpers.judge import preflight as judge_preflight
from helpers.judge import report as judge_report
from helpers.judge import sources as judge_sources
from helpers.judge import threads as judge_threads
from helpers.judge import verify_torch as judge_verify_torch
from helpers.judge import warm_cache as judge_warm_cache
from helpers.record.run_folder import RunFolder
from helpers.recover import (
    benchmark,
    environment,
    preflight,
    sources,
    threads,
    verify_torch,
    warm_cache,
)
from helpers.recover.work import Json, Room
from helpers.target import Target
from helpers.verdict import Check, Verdict

Judge = Callable[[Mapping[str, Any], Target], Verdict]
Find = Callable[[Json, Target], list[Check]]


@dataclass(frozen=True)
class StageKind:
    """What a stage consists of.

    Attributes:
        title: what it does, in a few words.
        room: gives the room's look, plan and apply for a run folder.
        judge: evidence and target in, verdict out.
        always: whether it also runs after an earlier stage has stopped the chain.
        reaches: whether it goes to the container at all.
        find: what is wrong, from the facts alone.
        headline: the check that is quoted when the stage has passed.
    """

    title: str
    room: Callable[[RunFolder], Room]
    judge: Judge
    always: bool = False
    reaches: bool = True
    find: Find | None = None
    headline: str = ""


def _room(module: object) -> Callable[[RunFolder], Room]:
    """A module with look, plan and apply is a room whatever the run."""
    return lambda _folder: cast("Room", module)


STAGES: dict[str, StageKind] = {
    "00_preflight": StageKind(
        "reach the container and name the symptom",
        _room(preflight),
        judge_preflight.judge,
        find=judge_preflight.symptoms,
    ),
    "10_environment": StageKind(
        "rebuild the environment beside the old one",
        _room(environment),
        judge_environment.judge,
        find=judge_environment.findings,
    ),
    "20_sources": StageKind("put the committed scripts back", _room(sources), judge_sources.judge),
    "30_verify_torch": StageKind(
        "prove torch: right build, devices, numbers", _room(verify_torch), judge_verify_torch.judge
    ),
    "40_warm_cache": StageKind(
        "warm the compile cache and prove it", _room(warm_cache), judge_warm_cache.judge
    ),
    "50_threads": StageKind(
        "start training's threads: do they race?",
        _room(threads),
        judge_threads.judge,
        headline="thread start",
    ),
    "60_benchmark": StageKind(
        "measure throughput against the baseline",
        _room(benchmark),
        judge_benchmark.judge,
        headline="throughput",
    ),
    "90_report": StageKind(
        "write the report", ReportRoom, judge_report.judge, always=True, reaches=False
    ),
}
