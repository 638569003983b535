"""Baselines of a target: recorded where a person vouches that training is healthy, and looked at.

The one measurement that belongs to no run. This room must not know how a baseline is measured.
"""

from __future__ import annotations

import getpass
from pathlib import Path

from helpers.book.alone import whole_run
from helpers.book.identity import refuse_another_marker
from helpers.reach.opening import open_container
from helpers.recover import baseline
from helpers.recover.workload import Say
from helpers.target import find_target, load_target


def record_baseline(target: str, source: str, say: Say) -> tuple[baseline.Baseline, Path]:
    """Measure what training reaches now and keep it as the baseline of this target.

    **Runs on:** container, read only. **Changes:** a file in the target's ``benchmark.baselines``; one
    that is there for the same devices, torch and code is set aside.

    Args:
        target: a target's name or file.
        source: who or what vouches that training is healthy, in words.
        say: shows progress.

    Raises:
        ParameterError: the target is wrong.
        WrongTarget, TargetError: the declared container is not reached.
        PreconditionFailed: another run holds the container, or what runs there is not healthy: a thread
            failed, the code is not the committed one, or graphs were compiled meanwhile.
    """
    declared = load_target(str(find_target(target)))
    container = open_container(declared)
    try:
        refuse_another_marker(container, declared)
        with whole_run(declared):
            said = f"{source}, said by {getpass.getuser()}"
            found = baseline.measure_baseline(container, declared, say, source=said)
    finally:
        container.close()
    return found, baseline.store(found, Path(declared.benchmark.baselines))


def kept_baselines(target: str) -> tuple[Path, list[tuple[Path, baseline.Baseline | str]]]:
    """The folder of a target's baselines, and each of them or why it cannot be read.

    **Runs on:** operator. **Changes:** nothing.
    """
    folder = Path(load_target(str(find_target(target))).benchmark.baselines)
    return folder, [(path, baseline.read(path)) for path in sorted(folder.glob("*.json"))]
