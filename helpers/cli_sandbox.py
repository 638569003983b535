"""What the command line does about sandboxes, and prints of it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from helpers.cli_output import program
from helpers.target import DEFAULT_SANDBOX_ROOT

SandboxKind = Literal["sandbox", "pct"]


def _sandbox_root(root: Path | None, kind: SandboxKind) -> Path:
    if root is None and kind == "pct":
        from helpers.sandbox.remote import DEFAULT_ROOT

        return DEFAULT_ROOT.resolve()
    return (root or DEFAULT_SANDBOX_ROOT).resolve()


def create_sandbox(
    console: Console, root: Path | None, faults: Sequence[str], kind: SandboxKind = "sandbox"
) -> None:
    """Make the sandbox, a line for each step."""
    place = _sandbox_root(root, kind)
    console.print(f"[bold]sandbox[/bold] in {place}", soft_wrap=True)
    from helpers.sandbox.create import create

    made = create(
        place,
        faults,
        lambda text: console.print(f"  {text}", markup=False, soft_wrap=True),
        kind=kind,
    )
    broken = ", ".join(made.faults) or "nothing"
    console.print(f"broken: {broken}", soft_wrap=True)
    following = f"{program()} run {shlex.quote(str(made.target))} --yes"
    console.print(f"next    {following}", soft_wrap=True, markup=False)


def destroy_sandbox(console: Console, root: Path | None, kind: SandboxKind = "sandbox") -> None:
    """Remove the sandbox."""
    from helpers.sandbox.destroy import destroy

    place = _sandbox_root(root, kind)
    destroy(place)
    console.print(f"removed {place}", soft_wrap=True)


def show_sandbox(
    console: Console, root: Path | None, kind: SandboxKind = "sandbox", *, as_json: bool
) -> None:
    """What the sandbox is, and what is broken in it now."""
    from helpers.sandbox.create import describe

    found = describe(_sandbox_root(root, kind))
    if as_json:
        console.print_json(json.dumps(found))
        return
    table = Table(show_header=False, box=None)
    for name in ("root", "target", "kind", "state", "made_at"):
        table.add_row(name.replace("_", " "), str(found[name]))
    table.add_row("broken on purpose", _listed(found["faults"]) or "nothing")
    broken_now = found["broken_now"]
    if isinstance(broken_now, dict):
        for name, said in broken_now.items():
            table.add_row(f"{name} now", _listed(said) or "as declared")
    console.print(table, soft_wrap=True)


def _listed(values: object) -> str:
    return "; ".join(map(str, values)) if isinstance(values, list) else str(values or "")
