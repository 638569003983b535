"""What belongs together in one stage of one run: target, container, run folder, room and judge.

Opening a binding checks everything that can be checked before anything is touched. This room must not know
what a stage does.
"""

from __future__ import annotations

import getpass
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from helpers.book.identity import refuse_wrong_target
from helpers.book.processes import runner_is_gone
from helpers.book.rooms import STAGES, Find, Judge, StageKind
from helpers.errors import ParameterError
from helpers.plan import Change
from helpers.reach.command import CommandResult
from helpers.reach.container import Container
from helpers.reach.opening import open_container
from helpers.record.atomic import write_atomic
from helpers.record.redact import redactor
from helpers.record.run_folder import RunFolder
from helpers.recover.work import Room, Work
from helpers.target import Target, find_target, load_target

PROJECT = Path(__file__).resolve().parents[2]
RUNBOOKS = PROJECT / "runbooks"
RUNS_VARIABLE = "RECOVER_RUNS"
BATCH_VARIABLE = "RECOVER_BATCH"
_LONG_ARGUMENT = 200


def runs_root() -> Path:
    """Where run folders are kept: RECOVER_RUNS, or ``runs/`` beside the runbooks. **Changes:** nothing."""
    return Path(os.environ.get(RUNS_VARIABLE) or PROJECT / "runs").resolve()


@dataclass(frozen=True)
class Binding:
    """See the module's head."""

    name: str
    kind: StageKind
    target: Target
    container: Container
    folder: RunFolder
    work: Work
    batch: bool

    @property
    def planning(self) -> bool:
        """Whether this run was asked to change and measure nothing."""
        return self.folder.asked.mode == "plan"

    @property
    def room(self) -> Room:
        """The stage's look, plan and apply."""
        return self.kind.room(self.folder)

    @property
    def judge(self) -> Judge:
        """The stage's judge."""
        return self.kind.judge

    @property
    def find(self) -> Find | None:
        """The stage's findings from facts alone, where it has any."""
        return self.kind.find

    def heading(self) -> dict[str, str]:
        """What the bind cell shows."""
        return {
            "stage": f"{self.name} — {self.kind.title}",
            "target": f"{self.target.name}: {self.target.description}",
            "container": self.container.name,
            "identity expected": f"{self.target.identity.marker} in {self.target.identity.marker_file}",
            "run": str(self.folder.path),
        }

    def refuse_wrong_target(self) -> None:
        """Refuse when it is not the declared container, or not the one this run has met before.

        **Runs on:** host and container. **Changes:** nothing there.

        Raises:
            WrongTarget: the marker, the host or the container is another.
        """
        if self.kind.reaches:
            refuse_wrong_target(self.container, self.target, self.folder)

    def empty_evidence(self) -> dict[str, Any]:
        """A stage's evidence before anything is known."""
        return {
            "schema": 1,
            "stage": self.name,
            "run_id": self.folder.asked.run_id,
            "target_hash": self.target.content_hash,
            "state": "running",
            "started_at": datetime.now(UTC).isoformat(),
            "ended_at": None,
            "facts": None,
            "findings": [],
            "plan": None,
            "plan_hash": None,
            "approval": None,
            "applied": False,
            "measured": None,
            "verdict": None,
            "error": None,
        }

    def notebook_sha256(self) -> str:
        """Hash of the runbook as it stands in ``runbooks/``."""
        return hashlib.sha256((RUNBOOKS / f"{self.name}.ipynb").read_bytes()).hexdigest()

    def next_notebook(self) -> str | None:
        """The runbook after this one; None after the last."""
        names = list(STAGES)
        after = names.index(self.name) + 1
        return f"{names[after]}.ipynb" if after < len(names) else None


def bind(
    name: str, *, target: str, run: str | None, say: Callable[[str, float | None], None]
) -> Binding:
    """Check the parameters and bring together what a stage needs.

    **Runs on:** operator. **Changes:** makes a new run folder when ``run`` is None.

    Raises:
        ParameterError: a parameter has the wrong type, the target is wrong, or the run belongs to another
            target.
    """
    _check_types(name, target, run)
    declared = load_target(target)
    if run is None:
        folder = RunFolder.create(runs_root(), asked(target, (name,), mode="step", approved=False))
    else:
        folder = RunFolder.open(runs_root(), run)
    if folder.asked.target_hash != declared.content_hash:
        raise ParameterError(
            f"The run {folder.asked.run_id} was started for another target, or the target file has changed.",
            hint="Start a new run: leave `run` at None.",
        )
    container = open_container(declared, _observer(name, folder))
    work = Work(
        container=container,
        target=declared,
        run_id=folder.asked.run_id,
        evidence_of=folder.evidence,
        keep=_keeper(folder),
        say=say,
        on_change=_change_recorder(name, folder),
        runner_is_gone=runner_is_gone,
    )
    batch = os.environ.get(BATCH_VARIABLE) == "1"
    return Binding(name, STAGES[name], declared, container, folder, work, batch)


def asked(target: str, stages: tuple[str, ...], *, mode: str, approved: bool) -> dict[str, Any]:
    """The fields of ``run.json`` for a run on this machine. **Runs on:** operator. **Changes:** nothing."""
    declared = load_target(target)
    return {
        "mode": mode,
        "approved": approved,
        "target_name": declared.name,
        "target_file": str(find_target(target)),
        "target_hash": declared.content_hash,
        "target": declared.model_dump(mode="json"),
        "stages": stages,
        "operator": getpass.getuser(),
        "versions": _versions(),
        "runbooks_commit": _runbooks_commit(),
    }


def _check_types(name: str, target: object, run: object) -> None:
    if name not in STAGES:
        raise ParameterError(f"There is no stage {name!r}.", hint=f"Stages: {', '.join(STAGES)}.")
    if not isinstance(target, str):
        raise _wrong_type("target", "a text", target)
    if not (run is None or isinstance(run, str)):
        raise _wrong_type("run", "a text or None", run)


def _wrong_type(parameter: str, wanted: str, value: object) -> ParameterError:
    return ParameterError(
        f"The parameter {parameter} must be {wanted}, not {value!r}.",
        hint="Correct it in the parameters cell or on the command line.",
    )


def _versions() -> dict[str, str]:
    names = ("recover-runbooks", "papermill", "nbclient", "ipykernel", "uv")
    return {"python": sys.version.split()[0], **{name: version(name) for name in names}}


def _runbooks_commit() -> str | None:
    done = subprocess.run(
        ["git", "-C", str(PROJECT), "describe", "--always", "--dirty", "--abbrev=40"],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() if done.returncode == 0 else None


def _keeper(folder: RunFolder) -> Callable[[str, str], None]:
    def keep(name: str, content: str) -> None:
        write_atomic(folder.path / "evidence" / name, content)

    return keep


def _change_recorder(stage: str, folder: RunFolder) -> Callable[[str, Change, str | None], None]:
    def record(phase: str, change: Change, error: str | None) -> None:
        folder.journal.append(
            "change", stage=stage, phase=phase, change=change.model_dump(mode="json"), error=error
        )

    return record


def _observer(stage: str, folder: RunFolder) -> Callable[[CommandResult], None]:
    """Journal every command, its whole output in a file of its own."""

    def observe(result: CommandResult) -> None:
        logs = folder.path / "logs" / stage
        logs.mkdir(exist_ok=True)
        purpose = redactor().text(result.command.purpose).lower()
        slug = re.sub(r"[^a-z0-9]+", "-", purpose)[:40].strip("-")
        path = logs / f"{len(list(logs.iterdir())):03d}-{slug}.log"
        whole = b"--- stdout\n" + result.stdout + b"\n--- stderr\n" + result.stderr
        path.write_bytes(redactor().clean(whole))
        folder.journal.append(
            "command",
            stage=stage,
            where=result.where,
            purpose=result.command.purpose,
            argv=[_shortened(argument, result.command.secrets) for argument in result.command.argv],
            end=result.end,
            returncode=result.returncode,
            started_at=result.started_at,
            elapsed_s=round(result.elapsed_s, 3),
            log=str(path.relative_to(folder.path)),
            log_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        )

    return observe


def _shortened(argument: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        argument = argument.replace(secret, "***")
    if len(argument) <= _LONG_ARGUMENT:
        return argument
    digest = hashlib.sha256(argument.encode()).hexdigest()
    return f"<{len(argument)} characters, sha256 {digest[:16]}>"


def parameters_of(stage: str, target: str, run: Path, *, apply: bool) -> Mapping[str, Any]:
    """The parameters that the chain hands to a stage's notebook. **Changes:** nothing."""
    return {"target": target, "run": str(run), "apply": apply}
