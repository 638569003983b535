"""A stage acts alone on its container, and a whole run does: who takes the lock, and when.

A chain holds the lock from its first stage to its last and tells its kernels; a stage that is stepped
through by hand or executed by papermill alone holds it while it acts. Looking and planning take none.
This room must not know what a lock is made of.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from helpers.book.binding import Binding
from helpers.record.journal import Journal
from helpers.record.run_folder import Asked, RunFolder
from helpers.recover.container_lock import Held, container_key, hold, holder
from helpers.target import Target

HELD_VARIABLE = "RECOVER_LOCK_HELD"  # in the kernels of a chain: the run that holds the lock


@contextmanager
def alone(binding: Binding) -> Iterator[None]:
    """Hold the container's lock, unless the chain that this stage belongs to holds it.

    **Runs on:** operator. **Changes:** the lock; the journal, when a dead holder left it.

    Raises:
        PreconditionFailed: somebody else holds it, who is named; nothing was touched.
    """
    if not binding.kind.reaches or _chain_holds(binding):
        yield
        return
    run_id = binding.folder.asked.run_id
    with hold(container_key(binding.target), name=binding.target.name, run_id=run_id) as held:
        _note_dead_holder(binding.folder.journal, held)
        yield


def _chain_holds(binding: Binding) -> bool:
    """Only a chain's own kernels are told: a notebook opened beside it in the same run is not."""
    run_id = binding.folder.asked.run_id
    if os.environ.get(HELD_VARIABLE) != run_id:
        return False
    who = holder(container_key(binding.target))
    return who is not None and who.run_id == run_id


@contextmanager
def whole_run(target: Target) -> Iterator[Held]:
    """Hold the container's lock for a run whose folder is still to be made.

    **Runs on:** operator. **Changes:** the lock.

    Raises:
        PreconditionFailed: somebody else holds it, who is named; nothing was touched.
    """
    with hold(container_key(target), name=target.name, run_id=None) as held:
        yield held


def runner_is_gone(asked: Asked) -> bool:
    """Whether it is certain that nothing executes this run any more. **Changes:** nothing.

    A chain holds its container from before its run folder is made until after the run's end is
    written. Of another operator's run, or one on another machine, nothing can be said from here.
    """
    if asked.operator != getpass.getuser():
        return False
    try:
        who = holder(container_key(Target.model_validate(asked.target)))
    except ValidationError:  # a target of another version of this package
        return False
    if who is None or who.run_id not in (None, asked.run_id):
        return True
    return who.machine == socket.gethostname() and not who.lives


def name_run(held: Held, folder: RunFolder) -> None:
    """Name the run that holds the lock. **Changes:** the lock's holder; the journal, as above."""
    held.call(folder.asked.run_id)
    _note_dead_holder(folder.journal, held)


def _note_dead_holder(journal: Journal, held: Held) -> None:
    if held.before is not None:
        journal.append("lock_taken_over", holder=held.before.model_dump(mode="json"))
