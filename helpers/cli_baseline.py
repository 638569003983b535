"""``recover baseline``: record what healthy training reaches, and look at what is kept."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(help="What healthy training reaches, to compare with.", no_args_is_help=True)
_console = Console(highlight=False)

_Target = Annotated[str, typer.Argument(help="A name in runbooks/targets, or a target file.")]


@app.command()
def record(
    target: _Target,
    source: Annotated[
        str, typer.Option("--source", help="Why it is known to be healthy, in your own words.")
    ],
) -> None:
    """Measure training now and keep it as the baseline. Only where it is known to be healthy."""
    from helpers.book.baselines import record_baseline
    from helpers.book.progress import Progress

    line = Progress("baseline")
    with line.phase("baseline recorded"):
        found, path = record_baseline(target, source, line.say)
    _console.print(f"{found.tok_per_s:,.0f} tok/s on {found.device}, torch {found.torch_build}")
    _console.print(f"kept as {path}", soft_wrap=True)


@app.command("list")
def list_them(target: _Target) -> None:
    """Show a target's baselines."""
    from helpers.book.baselines import kept_baselines

    folder, kept = kept_baselines(target)
    table = Table("tok/s", "device", "torch", "recorded", "source", "file", box=None)
    for path, found in kept:
        if isinstance(found, str):
            table.add_row("?", "", "", "", found, path.name)
        else:
            rate, when = f"{found.tok_per_s:,.0f}", found.recorded_at
            table.add_row(rate, found.device, found.torch_build, when, found.source, path.name)
    _console.print(table if table.row_count else f"No baseline in {folder}.", soft_wrap=True)
