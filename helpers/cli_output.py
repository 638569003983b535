"""What the command line prints while things go on and when they have ended."""

from __future__ import annotations

import json
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from helpers.book.chain import StageEvent, run_chain, stages_through
from helpers.book.live import read_live
from helpers.book.rooms import STAGES
from helpers.errors import ParameterError
from helpers.plan import Plan
from helpers.record.outcome import EXIT_CODES
from helpers.record.run_folder import Outcome, RunFolder, StageRecord, StageState
from helpers.record.wording import value_text
from helpers.target import DEFAULT_SANDBOX_ROOT
from helpers.verdict import Check

_SYMBOLS = {
    StageState.PASSED: ("✓", "green"),
    StageState.FAILED: ("✗", "red"),
    StageState.UNKNOWN: ("?", "yellow"),
    StageState.SKIPPED: ("·", "dim"),
    StageState.NEEDS_APPROVAL: ("!", "yellow"),
    StageState.INTERRUPTED: ("■", "yellow"),
    StageState.PENDING: ("·", "dim"),
    StageState.RUNNING: ("…", "cyan"),
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
    if mode == "plan" or outcome is Outcome.NEEDS_APPROVAL:
        print_plans(console, folder)
    colour = _COLOURS.get(outcome, "yellow")
    # Escaped: what is said may hold brackets, which would be taken for markup.
    console.print(f"\n[bold {colour}]{outcome.value.upper()}[/]  {escape(why)}", soft_wrap=True)
    console.print(f"report  {folder.path / 'report.html'}", soft_wrap=True)
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
    again = f"{program()} run {shlex.quote(target)} --yes"
    if outcome is Outcome.RECOVERED:
        return ""
    if outcome is Outcome.PLANNED:
        waiting = [r for r in folder.stage_records() if r.state is StageState.NEEDS_APPROVAL]
        return f"{again}   (makes the changes above)" if waiting else again
    if outcome is Outcome.NEEDS_APPROVAL:
        return f"{again}   (or step through it in JupyterLab)"
    if outcome is Outcome.INTERRUPTED:
        return f"{again}   (begins again; what is already in order is left alone)"
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
    return "not ended, or its runner died without a word"


def _record_line(record: StageRecord) -> Text:
    symbol, colour = _SYMBOLS[record.state]
    seconds = f"{record.elapsed_s:6.1f} s" if record.elapsed_s is not None else " " * 8
    line = f"{symbol} {record.name:<16} {record.state.value:<15} {seconds}  {record.summary}"
    return Text(line, style=colour)


def create_sandbox(console: Console, root: Path | None, faults: Sequence[str]) -> None:
    """Make the sandbox, a line for each step."""
    place = (root or DEFAULT_SANDBOX_ROOT).resolve()
    console.print(f"[bold]sandbox[/bold] in {place}", soft_wrap=True)
    from helpers.sandbox.create import create

    made = create(
        place, faults, lambda text: console.print(f"  {text}", markup=False, soft_wrap=True)
    )
    broken = ", ".join(made.faults) or "nothing"
    console.print(f"broken: {broken}", soft_wrap=True)
    following = f"{program()} run {shlex.quote(str(made.target))} --yes"
    console.print(f"next    {following}", soft_wrap=True, markup=False)


def destroy_sandbox(console: Console, root: Path | None) -> None:
    """Remove the sandbox."""
    from helpers.sandbox.destroy import destroy

    place = (root or DEFAULT_SANDBOX_ROOT).resolve()
    destroy(place)
    console.print(f"removed {place}", soft_wrap=True)


def show_sandbox(console: Console, root: Path | None, *, as_json: bool) -> None:
    """What the sandbox is, and what is broken in it now."""
    from helpers.sandbox.create import describe

    found = describe((root or DEFAULT_SANDBOX_ROOT).resolve())
    if as_json:
        console.print_json(json.dumps(found))
        return
    table = Table(show_header=False, box=None)
    for name in ("root", "target", "state", "made_at"):
        table.add_row(name.replace("_", " "), str(found[name]))
    table.add_row("broken on purpose", _listed(found["faults"]) or "nothing")
    broken_now = found["broken_now"]
    if isinstance(broken_now, dict):
        for name, said in broken_now.items():
            table.add_row(f"{name} now", _listed(said) or "as declared")
    console.print(table, soft_wrap=True)


def _listed(values: object) -> str:
    return "; ".join(map(str, values)) if isinstance(values, list) else str(values or "")
