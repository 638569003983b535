"""What the command line says of a run's record when it is checked or put away."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from helpers.book.binding import runs_root
from helpers.record.archive import archive as write_archive
from helpers.record.run_folder import RunFolder
from helpers.record.seal import verify as compare

_LIMITS = (
    "A seal shows that a file is not what it was. It does not show who changed it or when, and an "
    "unsigned one can be made anew by whoever can write to the folder."
)


def verify(console: Console, run: str, allowed_signers: Path | None) -> int:
    """Compare a run with its seal and print what came of it. Returns the exit code."""
    folder = RunFolder.open(runs_root(), run)
    found = compare(folder, allowed_signers)
    for difference in found.differences:
        console.print(f"✗ {difference}", style="red", markup=False, soft_wrap=True)
    for said in found.since:
        console.print(f"· {said}", markup=False, soft_wrap=True)
    mark = {True: "✓", False: "✗", None: "·"}[found.signed]
    console.print(f"{mark} {found.signature}", markup=False, soft_wrap=True)
    word = "✓ as it was sealed" if found.whole else "✗ NOT as it was sealed"
    console.print(f"{word}: {folder.path}", markup=False, soft_wrap=True)
    console.print(_LIMITS, style="dim", soft_wrap=True)
    return 0 if found.whole else 1


def archive(console: Console, run: str, to: Path) -> None:
    """Put a run away in one file and print where it is."""
    path = write_archive(RunFolder.open(runs_root(), run), to.resolve())
    console.print(f"{path}  {path.stat().st_size / 2**20:.1f} MiB", soft_wrap=True)
