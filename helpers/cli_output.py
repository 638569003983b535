"""What the command line prints while things go on and when they have ended."""

from __future__ import annotations

import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Literal, cast

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from helpers.book.chain import StageEvent, run_chain, stages_through
from helpers.book.live import read_live
from helpers.book.resume import close_dead_run, resume_chain
from helpers.book.rooms import STAGES
from helpers.errors import ParameterError
from helpers.plan import Plan
from helpers.record.headline import STATE_MARKS
from helpers.record.outcome import EXIT_CODES
from helpers.record.run_folder import Outcome, RunFolder, StageRecord, StageState
from helpers.record.seal import SIGNATURE, manifest_sha256
from helpers.record.wording import value_text
from helpers.verdict import Check

_TONES = {
    "good": "green",
    "bad": "red",
    "open": "yellow",
    "warn": "yellow",
    "note": "cyan",
    "quiet": "dim",
}
_COLOURS = {Outcome.RECOVERED: "green", Outcome.PLANNED: "green", Outcome.FAILED: "red"}
_PLAIN_EVERY_S = 10.0


class StageLines:
    """A live line for the stage that runs, and a lasting one for each that has ended.

    On something that is not a terminal the live line is printed now and then instead of redrawn.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=True, refresh_per_second=4, transient=True)
        self._stage = ""
        self._place = ""
        self._since = self._printed = time.monotonic()
        self._folder: RunFolder | None = None

    def start(self, folder: RunFolder) -> None:
        """Say where the record is kept."""
        self._folder = folder
        self._console.print(f"run {folder.asked.run_id} · record in {folder.path}", soft_wrap=True)
        self._live = Live(
            console=self._console,
            get_renderable=self._line,
            refresh_per_second=4,
            transient=True,
            auto_refresh=self._console.is_terminal,
        )
        if self._console.is_terminal:
            self._live.start()

    def watch(self, event: StageEvent) -> None:
        """Take in what the chain tells."""
        if event.kind == "begins":
            self._stage, self._place = event.stage, "starting its kernel"
            self._since = self._printed = time.monotonic()
            if not self._console.is_terminal:
                self._console.print(f"… {self._stage:<16} {STAGES[self._stage].title}")
        elif event.kind == "at" and event.progress is not None:
            self._place = event.progress.label
            self._print_now_and_then()
        elif event.kind == "reused" and event.record is not None:
            self._console.print(f"✓ {event.stage:<16} still holds: not run again", style="green")
        elif event.kind == "again":
            self._console.print(f"  {event.stage:<16} again: {event.why}", soft_wrap=True)
        elif event.record is not None:
            self._console.print(_record_line(event.record), soft_wrap=True)
            self._print_findings(event.stage)
            self._print_changes(event.stage)
            self._stage = ""

    def stop(self) -> None:
        """Take the live line away."""
        if self._live.is_started:
            self._live.stop()

    def _print_findings(self, stage: str) -> None:
        evidence = (self._folder.evidence(stage) if self._folder else None) or {}
        for finding in map(Check.model_validate, evidence.get("findings", [])):
            if not finding.status.good:
                line = f"    {finding.status.symbol} {finding.name}: {value_text(finding.measured)}"
                self._console.print(line, markup=False, soft_wrap=True, style="yellow")

    def _print_changes(self, stage: str) -> None:
        """What was changed, as the approved plan said it."""
        evidence = (self._folder.evidence(stage) if self._folder else None) or {}
        if evidence.get("applied"):
            for change in Plan.model_validate(evidence["plan"]).changes:
                line = f"    · {change.what}: {change.where}"
                self._console.print(line, markup=False, soft_wrap=True, style="dim")

    def _line(self) -> Text:
        if not self._stage:
            return Text("")
        said = read_live(self._folder.path) if self._folder else ""
        elapsed_s = time.monotonic() - self._since
        return Text(f"… {self._stage:<16} {elapsed_s:5.0f} s  {said or self._place}", style="cyan")

    def _print_now_and_then(self) -> None:
        if not self._console.is_terminal and time.monotonic() - self._printed > _PLAIN_EVERY_S:
            self._printed = time.monotonic()
            self._console.print(self._line(), soft_wrap=True)


def run(console: Console, target: str, mode: str, *, approved: bool, through: str | None) -> int:
    """Run the chain and print it. Returns the exit code."""
    lines = StageLines(console)
    try:
        folder, outcome, why = run_chain(
            target,
            mode=cast("Literal['run', 'plan']", mode),
            approved=approved,
            stages=stages_through(through),
            on_start=lines.start,
            watch=lines.watch,
        )
    finally:
        lines.stop()
    return _ended(console, folder, outcome, why, target)


def resume(console: Console, run: str | None, *, approved: bool) -> int:
    """Go on with a run and print it. Returns the exit code."""
    lines = StageLines(console)
    try:
        folder, outcome, why = resume_chain(
            run, approved=approved, on_start=lines.start, watch=lines.watch
        )
    finally:
        lines.stop()
    return _ended(console, folder, outcome, why, folder.asked.target_file)


def _ended(console: Console, folder: RunFolder, outcome: Outcome, why: str, target: str) -> int:
    if folder.asked.mode == "plan" or outcome is Outcome.NEEDS_APPROVAL:
        print_plans(console, folder)
    colour = _COLOURS.get(outcome, "yellow")
    # Escaped: what is said may hold brackets, which would be taken for markup.
    console.print(f"\n[bold {colour}]{outcome.value.upper()}[/]  {escape(why)}", soft_wrap=True)
    console.print(f"report  {folder.path / 'report.html'}", soft_wrap=True)
    if sealed := manifest_sha256(folder):
        signed = "signed" if (folder.path / SIGNATURE).is_file() else "not signed"
        console.print(f"seal    SHA-256 {sealed}, {signed}", soft_wrap=True)
    following = _next_step(folder, outcome, target)
    if following:
        console.print(f"next    {following}", soft_wrap=True, markup=False)
    return EXIT_CODES[outcome]


def program() -> str:
    """How this program was started, as it can be typed again from the same folder."""
    started = Path(sys.argv[0])
    if started.name != "recover":
        return "recover"
    on_path = shutil.which("recover")
    if on_path and started.exists() and started.samefile(on_path):
        return "recover"
    path = started.absolute()
    short = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return shlex.quote(str(short))


def _next_step(folder: RunFolder, outcome: Outcome, target: str) -> str:
    """What the operator does now; empty when there is nothing left to do."""
    again = f"{program()} resume {folder.asked.run_id} --yes"
    if outcome is Outcome.RECOVERED:
        return ""
    if outcome is Outcome.PLANNED:
        waiting = [r for r in folder.stage_records() if r.state is StageState.NEEDS_APPROVAL]
        again = f"{program()} run {shlex.quote(target)} --yes"
        return f"{again}   (makes the changes above)" if waiting else again
    if outcome is Outcome.NEEDS_APPROVAL:
        return f"{again}   (or step through it in JupyterLab)"
    if outcome is Outcome.INTERRUPTED:
        return f"{again}   (goes on; what is already in order is left alone)"
    errors = (folder.evidence(stage) or {} for stage in folder.asked.stages)
    hint = next((e["error"]["hint"] for e in errors if e.get("error")), "Read the report.")
    return f"{hint} Then: {again}"


def print_plans(console: Console, folder: RunFolder) -> None:
    """Every change that a run would make, with its undo."""
    for stage in folder.asked.stages:
        evidence = folder.evidence(stage)
        if not evidence or not evidence["plan"]:
            console.print(f"\n[bold]{stage}[/] no plan was made", style="yellow")
            continue
        plan = Plan.model_validate(evidence["plan"])
        console.print(f"\n[bold]{stage}[/]  {plan.why}")
        for number, change in enumerate(plan.changes, 1):
            console.print(
                f"  {number}. {change.what}: {change.where}", markup=False, soft_wrap=True
            )
            console.print(f"     {change.before} → {change.after}", markup=False, soft_wrap=True)
            console.print(f"     undo: {change.undo}", markup=False, soft_wrap=True, style="dim")


def print_run(console: Console, folder: RunFolder) -> None:
    """One run: its stages and how it ended."""
    if close_dead_run(folder):
        console.print("Its runner died without a word: what it left open has been closed.")
    word = _outcome_word(folder)
    console.print(f"[bold]{folder.asked.run_id}[/]  {word}")
    for record in folder.stage_records():
        console.print(_record_line(record), soft_wrap=True)
    problems = folder.journal.problems()
    for problem in problems:
        console.print(f"! journal: {problem}", style="red", markup=False)
    if not problems:
        count = sum(1 for _ in folder.journal.events())
        console.print(f"journal whole: each of its {count} lines follows from the line before it")
    console.print(f"record  {folder.path}", soft_wrap=True)


def print_runs(console: Console, runs_root: Path) -> None:
    """All runs, the newest last."""
    table = Table("run", "mode", "outcome", box=None)
    for path in sorted(runs_root.glob("*/run.json")):
        folder = RunFolder(path.parent)
        try:
            asked = folder.asked
        except ParameterError as error:  # one folder of another version must not hide all others
            table.add_row(path.parent.name, "?", f"unreadable: {error.what.splitlines()[0]}")
        else:
            table.add_row(asked.run_id, asked.mode, _outcome_word(folder))
    console.print(table if table.row_count else f"No runs in {runs_root}.")


def _outcome_word(folder: RunFolder) -> str:
    if folder.outcome:
        return folder.outcome.value.upper()
    if folder.asked.mode == "step":
        return "step by step"
    return "not ended: it is going on, or its runner died without a word"


def _record_line(record: StageRecord) -> Text:
    symbol, tone = STATE_MARKS[record.state]
    seconds = f"{record.elapsed_s:6.1f} s" if record.elapsed_s is not None else " " * 8
    line = f"{symbol} {record.name:<16} {record.state.value:<15} {seconds}  {record.summary}"
    return Text(line, style=_TONES[tone])
