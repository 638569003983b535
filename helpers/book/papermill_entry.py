"""The entry point by which papermill finds our engine.

    [project.entry-points."papermill.engine"]
    runbook = "helpers.book.papermill_entry:runbook"

papermill loads its entry points while ``import papermill`` is still under way, at the very end of
``papermill.engines``. Two things follow.

- What an entry point loads must not need papermill yet, or papermill itself cannot be imported any
more. So
  ``runbook`` only stands in for the engine, and fetches it when something is asked of it.
- ``papermill.engines`` is complete by then but for this last step, and its default engine
(registered as
  None) is there already. So this module can put one of ours in the default's place, through
  papermill's own ``get_engine`` and ``register``: no ``--engine`` is needed for our notebooks.
  Every other notebook is passed on to the engine that was the default before, with papermill's own
  way of saving.

It also lets papermill's translator see that ``run: str | None = None`` declares a parameter, which
it would otherwise call unknown in a warning.

This room must not import anything heavy: everybody's ``import papermill`` pays for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from helpers.book.cells import Notebook, is_runbook

Engine = Any  # papermill asks for a class with class methods and takes whatever has them


class _Runbook:
    """Stands in for the engine class until somebody uses it."""

    def __getattr__(self, name: str) -> Callable[..., Engine]:
        from helpers.book.engine import RunbookEngine

        method: Callable[..., Engine] = getattr(RunbookEngine, name)
        return method


runbook = _Runbook()


class _Default:
    """papermill's default engine: ours for our notebooks, the one before it for all others.

    Its three methods are all that papermill asks of an engine.
    """

    def __init__(self, others: Engine) -> None:
        self._others = others

    def nb_kernel_name(self, nb: Notebook, name: str | None = None) -> str:
        """The kernel that a notebook wants."""
        return str(self._engine(nb).nb_kernel_name(nb, name))

    def nb_language(self, nb: Notebook, language: str | None = None) -> str:
        """The language that a notebook is written in."""
        return str(self._engine(nb).nb_language(nb, language))

    def execute_notebook(self, nb: Notebook, kernel_name: str, **options: object) -> Notebook:
        """Execute a notebook. The options are between papermill and the engine that is chosen."""
        return self._engine(nb).execute_notebook(nb, kernel_name, **options)

    def _engine(self, nb: Notebook) -> Engine:
        return runbook if is_runbook(nb) else self._others


def _become_default() -> None:
    # papermill.engines is not done importing itself; this name in it is.
    from papermill.engines import papermill_engines

    if not isinstance(papermill_engines.get_engine(None), _Default):
        papermill_engines.register(None, _Default(papermill_engines.get_engine(None)))


def _know_unions() -> None:
    from papermill.translators import PythonTranslator

    known = PythonTranslator.PARAMETER_PATTERN.pattern
    annotation, with_unions = r"\w[\w_\[\],\s]*", r"\w[\w_\[\],|\s]*"
    PythonTranslator.PARAMETER_PATTERN = re.compile(known.replace(annotation, with_unions))


_become_default()
_know_unions()
