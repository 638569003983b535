"""Opening a stage from a notebook: parameters checked, run folder found or made, progress shown."""

from __future__ import annotations

from pathlib import Path

from helpers.book.binding import bind
from helpers.book.live import write_live
from helpers.book.progress import Progress
from helpers.book.stage import Stage
from helpers.errors import ParameterError


def open_stage(name: str, *, target: str, run: str | None, apply: bool) -> Stage:
    """Open one stage of a run.

    **Runs on:** operator. **Changes:** makes a new run folder when ``run`` is None; nothing else.

    Args:
        name: the stage, for instance ``20_sources``.
        target: a name in ``runbooks/targets`` or the path of a target file.
        run: the run folder to work in, by id or path; None = a new one.
        apply: True approves the plan as it will be shown; False only looks and plans.

    Returns:
        The stage; the notebook's further cells call it.

    Raises:
        ParameterError: a parameter is wrong; nothing was touched.
    """
    if not isinstance(apply, bool):
        raise ParameterError(
            f"The parameter apply must be True or False, not {apply!r}.",
            hint="Correct it in the parameters cell or on the command line.",
        )
    line = Progress(name)
    watched: list[Path] = []  # filled once the run folder is known

    def say(what: str, fraction: float | None = None) -> None:
        line.say(what, fraction)
        for folder in watched:
            write_live(folder, what)

    binding = bind(name, target=target, run=run, say=say)
    watched.append(binding.folder.path)
    return Stage(binding, apply=apply, live=line)
