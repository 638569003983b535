"""Remove a sandbox, and nothing that is not one."""

from __future__ import annotations

from pathlib import Path

from helpers.errors import ParameterError
from helpers.sandbox import remote
from helpers.sandbox.folder import SandboxFolder
from helpers.sandbox.users import refuse_while_used


def destroy(root: Path, *, kept: bool = False) -> list[str]:
    """Remove the sandbox in a folder. It ends nothing that runs.

    **Runs on:** operator. **Changes:** the sandbox's own parts in ``root`` are deleted; what else
    lies there stays.

    Args:
        root: the sandbox's folder, an absolute path.
        kept: whether to remove what is kept for the next sandbox too (compile cache, baselines).

    Returns:
        The names of what was removed.

    Raises:
        ParameterError: there is no sandbox of ours; nothing was touched.
        PreconditionFailed: something uses it (each process is named), or another process is at it.
    """
    folder = SandboxFolder(root)
    if folder.note() is None:
        raise ParameterError(
            f"There is no sandbox in {root}.", hint="`recover sandbox create` makes one."
        )
    with folder.locked():
        note = folder.note()
        if note is None:
            return []  # whoever held the lock before has removed it
        if note.kind == "pct":
            remote.refuse_while_used(folder)
            remote.stop_bed(folder)
        else:
            refuse_while_used(folder.container)
        return folder.remove(note, kept=kept)
