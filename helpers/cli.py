"""``recover``: the command line. Parses, calls one function, says what came of it.

Everything heavy is imported inside a command, so that the first line appears at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal, Optional

import typer
from rich.console import Console

from helpers import cli_baseline
from helpers.errors import RunbookError

_EXITS = """
Exit codes of `run` and `resume`: 0 recovered · 1 failed · 2 wrong use, nothing touched · 3 degraded: it
works, below the baseline or only with a remedy · 4 unknown: not measured · 5 needs approval · 130
interrupted. `plan` ends with 0.
"""

app = typer.Typer(
    help="Bring a rotted training environment back, and keep a record that can be checked later.",
    epilog=_EXITS,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
sandbox_app = typer.Typer(help="Make and break the embedded practice target.", no_args_is_help=True)
app.add_typer(sandbox_app, name="sandbox")
app.add_typer(cli_baseline.app, name="baseline")
console = Console(highlight=False)
errors = Console(stderr=True, highlight=False)

TargetArgument = Annotated[
    str, typer.Argument(help="A name in runbooks/targets, or a target file.")
]
RunArgument = Annotated[str, typer.Argument(help="A run id, a run folder, or `latest`.")]
ThroughOption = Annotated[
    Optional[str],  # noqa: UP045  # typer reads the annotation at run time and wants this form
    typer.Option(
        "--through", help="Last stage to run, for instance 30 or verify_torch; the report follows."
    ),
]


@app.command(epilog=_EXITS)
def run(
    target: TargetArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Approve every plan as it is shown.")] = False,
    through: ThroughOption = None,
) -> None:
    """Run the stages in order, prove that throughput is back, write the report."""
    _chain(target, "run", approved=yes, through=through)


@app.command()
def plan(target: TargetArgument, through: ThroughOption = None) -> None:
    """Show every change that a run would make. Changes nothing."""
    _chain(target, "plan", approved=False, through=through)


@app.command(epilog=_EXITS)
def resume(
    run: Annotated[
        str, typer.Argument(help="A run id or a run folder. Default: the latest not at its end.")
    ] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Approve every plan as it is shown.")] = False,
) -> None:
    """Go on with a run: keep what still holds, wait for what still works, do the rest again."""
    from helpers import cli_output

    raise typer.Exit(cli_output.resume(console, run or None, approved=yes))


@app.command()
def status(run: RunArgument = "") -> None:
    """Say what is known of a run; without one, list the runs."""
    from helpers import cli_output
    from helpers.book.binding import runs_root
    from helpers.record.run_folder import RunFolder

    if run:
        cli_output.print_run(console, RunFolder.open(runs_root(), run))
    else:
        cli_output.print_runs(console, runs_root())


@app.command()
def report(run: RunArgument = "latest") -> None:
    """Write a run's report again from its folder, and print where it is."""
    from helpers.book.binding import runs_root
    from helpers.record.report import write_report
    from helpers.record.run_folder import RunFolder

    console.print(str(write_report(RunFolder.open(runs_root(), run))))


@app.command()
def verify(
    run: RunArgument = "latest",
    allowed_signers: Annotated[
        Optional[Path],  # noqa: UP045  # as above
        typer.Option("--allowed-signers", help="An ssh allowed_signers file: who may have signed."),
    ] = None,
) -> None:
    """Compare a run's folder with its seal. Exit code 0 = as it was sealed, 1 = not."""
    from helpers import cli_record

    raise typer.Exit(cli_record.verify(console, run, allowed_signers))


@app.command()
def archive(
    run: RunArgument = "latest",
    to: Annotated[Path, typer.Option("--to", help="A file or a folder.")] = Path(),
) -> None:
    """Write a run's folder into one .tar.zst; the same folder always gives the same bytes."""
    from helpers import cli_record

    cli_record.archive(console, run, to)


RootOption = Annotated[
    Optional[Path],  # noqa: UP045  # as above
    typer.Option("--root", help="The sandbox's folder; the default is in your user data folder."),
]


KindOption = Annotated[
    Literal["sandbox", "pct"],
    typer.Option("--kind", help="pct: in a container behind sshd and pct (root on Linux)."),
]


@sandbox_app.command("create")
def sandbox_create(
    root: RootOption = None,
    fault: Annotated[
        Optional[list[str]],  # noqa: UP045  # as above
        typer.Option(
            "--fault",
            help="What to break; may be given several times: polluted-venv, hacked-model, cold-cache, "
            "thread-race, wrong-torch. Default: all, which is the first three.",
        ),
    ] = None,
    kind: KindOption = "sandbox",
) -> None:
    """Make a healthy training environment, measure its baseline, then break it."""
    from helpers import cli_sandbox

    cli_sandbox.create_sandbox(console, root, fault or ["all"], kind)


@sandbox_app.command("destroy")
def sandbox_destroy(root: RootOption = None, kind: KindOption = "sandbox") -> None:
    """Remove the sandbox; refuses any folder that is not one."""
    from helpers import cli_sandbox

    cli_sandbox.destroy_sandbox(console, root, kind)


@sandbox_app.command("show")
def sandbox_show(
    root: RootOption = None,
    kind: KindOption = "sandbox",
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Say where the sandbox is, what was broken in it, and what is broken now."""
    from helpers import cli_sandbox

    cli_sandbox.show_sandbox(console, root, kind, as_json=as_json)


def _chain(target: str, mode: str, *, approved: bool, through: str | None) -> None:
    console.print(f"[bold]{mode} {target}[/bold] · loading …")
    from helpers import cli_output

    raise typer.Exit(cli_output.run(console, target, mode, approved=approved, through=through))


def main() -> None:
    """Entry point: an error of ours is three sentences and exit code 2; nothing was touched then."""
    try:
        app()
    except RunbookError as error:
        errors.print(f"[red]✗[/red] {type(error).__name__}: ", end="")
        errors.print(str(error), markup=False)
        sys.exit(2)
