"""Make a sandbox: first a healthy environment and its baseline, then break it for real.

This room knows the order of the steps. It must not know how an environment is built, a cache warmed
or a fault made.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict

from helpers.sandbox import healthy, remote, thread_race
from helpers.sandbox.describe import describe, making_of
from helpers.sandbox.faults import FAULTS, chosen, write_target
from helpers.sandbox.folder import Kind, Note, SandboxFolder
from helpers.sandbox.history import make_repository
from helpers.sandbox.making import Making, Say, StepReport
from helpers.sandbox.training import train_for_a_moment
from helpers.sandbox.users import refuse_while_used
from helpers.target import DEFAULT_SANDBOX_ROOT, TARGETS_FOLDER, load_target

__all__ = ["SandboxReport", "create", "describe"]

TEMPLATE = TARGETS_FOLDER / "sandbox.yaml"
# Faults that a running training meets; it runs with them before its cache goes, so that the log
# shows them.
_SEEN_IN_TRAINING = ("polluted-venv", "hacked-model")


class SandboxReport(BaseModel):
    """What was made.

    Attributes:
        root: the sandbox's folder.
        target: what to give to ``recover run``: the plain name where that means this sandbox, else
            the path of its target file.
        faults: what was broken.
        steps: what was done, with seconds, and whether it was made or reused.
        elapsed_s: seconds from the first line to the last.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    root: str
    target: str
    faults: tuple[str, ...]
    steps: tuple[StepReport, ...]
    elapsed_s: float


def create(
    root: Path,
    faults: Sequence[str],
    say: Say,
    *,
    template: Path = TEMPLATE,
    kind: Kind = "sandbox",
) -> SandboxReport:
    """Make a sandbox in a folder; one that is there is replaced.

    **Runs on:** operator, and in the sandbox. **Changes:** the folder ``root``, and uv's and pip's
    caches.

    Args:
        root: an absolute path; new, empty, or an earlier sandbox.
        faults: names of ``faults.FAULTS``, or ``all``; none leaves the sandbox healthy.
        say: shows one line to a person.
        template: the target file to fill in.
        kind: "pct" puts the container behind a host, on a bed of this machine.

    Raises:
        ParameterError: a fault is unknown, or the folder is not for a sandbox; nothing was touched.
        PreconditionFailed: something uses the old sandbox, or git or uv is missing.
        VerificationFailed: the environment did not become healthy, so it was not broken either.
        RunbookError: a step failed; the half-made sandbox stays for a look and is replaced by the
            next one.
    """
    began_s = time.monotonic()
    say(f"making a sandbox in {root}")
    wanted = chosen(faults)
    if kind == "pct":
        remote.refuse_without_means()
        remote.refuse_a_long_path(root)
    load_target(str(template))  # refuses a template that declares something wrong
    races = thread_race.NAME in wanted
    folder = SandboxFolder(root)
    folder.note()  # refuses a folder that is none of ours before a lock file is put into it
    with folder.locked():
        _clear(folder, say)
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        note = Note(root=str(root), kind=kind, state="making", started_at=started_at, faults=wanted)
        folder.write_note(note)
        making = _laid_out(folder, template, kind, say, races=races)
        later = [name for name in wanted if name != thread_race.NAME]
        shown = [name for name in later if name in _SEEN_IN_TRAINING]
        _make_healthy(making, races=races, goes_on=bool(shown))
        _break(making, shown, [name for name in later if name not in shown])
        making.close()
        steps = tuple(step.model_dump(mode="json") for step in making.steps)
        folder.write_note(note.model_copy(update={"state": "ready", "steps": steps}))
    elapsed_s = time.monotonic() - began_s
    say(f"made in {elapsed_s:.0f} s; {_reused(making.steps)}")
    changed = {"wrong-torch", thread_race.NAME} & set(wanted)  # what the target file declares
    plain = root == DEFAULT_SANDBOX_ROOT and template == TEMPLATE and not changed
    plain = plain and kind == "sandbox"
    return SandboxReport(
        root=str(root),
        target="sandbox" if plain else str(folder.target_file),
        faults=wanted,
        steps=tuple(making.steps),
        elapsed_s=round(elapsed_s, 2),
    )


def _laid_out(
    folder: SandboxFolder, template: Path, kind: Kind, say: Say, *, races: bool
) -> Making:
    """The sandbox's target file, and for kind pct the bed that it declares."""
    declared: dict[str, Any] = yaml.safe_load(template.read_text(encoding="utf-8"))
    declared = thread_race.declare(declared) if races else declared
    steps: list[StepReport] = []
    if kind == "pct":
        began_s = time.monotonic()
        bed = remote.make_bed(folder)
        detail = f"host {bed.host.address} port {bed.host.port}, container by {bed.backend}"
        elapsed_s = round(time.monotonic() - began_s, 2)
        steps.append(StepReport(name="bed", how="made", elapsed_s=elapsed_s, detail=detail))
        say(f"✓ bed ({elapsed_s:.1f} s, made): {detail}")
        write_target(folder, remote.declared_for(declared, folder, bed))
    else:
        write_target(folder, {**declared, "reach": {"kind": "sandbox", "root": str(folder.root)}})
    making = making_of(folder, kind, say)
    making.steps += steps
    return making


def _clear(folder: SandboxFolder, say: Say) -> None:
    """Remove the sandbox that is there, unless something uses it."""
    note = folder.note()
    if note is None:
        return
    if note.kind == "pct":
        remote.refuse_while_used(folder)
        remote.stop_bed(folder)
    else:
        refuse_while_used(folder.container)
    state = {"making": "half-made", "removing": "half-removed"}.get(note.state, "old")
    removed = folder.remove(note, kept=False)
    say(f"removed the {state} sandbox of {note.started_at}: {', '.join(removed)}")


def _make_healthy(making: Making, *, races: bool, goes_on: bool) -> None:
    repository = making.folder.repository
    with making.step("repository", "the training scripts, in git") as outcome:
        outcome.detail = f"HEAD is {make_repository(repository)[:12]}"
    if races:
        with making.step(thread_race.NAME, thread_race.WHAT) as outcome:
            outcome.detail = f"HEAD is {thread_race.commit(repository)[:12]}"
    healthy.lay_out(making)
    healthy.build_environment(making)
    healthy.deploy_scripts(making)
    healthy.fill_cache(making)
    healthy.train(making, healthy.measure_baseline(making, races=races), goes_on=goes_on)


def _break(making: Making, shown: Sequence[str], others: Sequence[str]) -> None:
    for name in shown:
        _do(making, name)
    if shown:
        with making.step("broken training", "a moment of it, for its log") as outcome:
            outcome.detail = str(train_for_a_moment(making.work, "broken"))
    for name in others:
        _do(making, name)


def _do(making: Making, name: str) -> None:
    with making.step(name, FAULTS[name].what) as outcome:
        outcome.detail = FAULTS[name].breaks(making.work, making.folder)


def _reused(steps: Sequence[StepReport]) -> str:
    reused = [step.name for step in steps if step.how == "reused"]
    return (
        f"reused from an earlier one: {', '.join(reused)}" if reused else "nothing could be reused"
    )
