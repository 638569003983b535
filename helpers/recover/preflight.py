"""Stage 00: the whole state before anybody repairs anything. It changes nothing, ever.

It gathers; it must not know what is wrong: that is named by its judge, from these facts.

Facts: the inventory's sections ``machine``, ``venv``, ``scripts``, ``cache``, ``training_log``,
``pip_settings`` and ``errors`` as the payload describes them, and ::

    {reached: {container, python3: bool},
     packages: {created_at, comparison: see requirements.compare, null = could not be compared},
     repository: {path, ref, commit|null, author_date, dirty_files, error|null, files: [{path,
     sha256}]},
     baselines: [{file, device, torch_build, tok_per_s, as_measured_tok_per_s, recorded_at}],
     device: text|null}

``baselines`` are those for this device, torch build and workload.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from helpers.errors import PreconditionFailed
from helpers.plan import Plan
from helpers.reach.command import Command
from helpers.recover.git_objects import find_commit, read_files
from helpers.recover.inventory import SYSTEM_PYTHON, look_at, look_at_packages
from helpers.recover.work import Json, Work
from helpers.recover.workload import device_names, device_text, roles_hash

STAGE = "00_preflight"
_SECTIONS = ("machine", "venv", "scripts", "cache", "training_log", "pip_settings")


def look(work: Work) -> Json:
    """Everything that the verdict and the symptoms need.

    **Runs on:** operator and container. **Changes:** nothing.

    Raises:
        CommandFailed: the container is not reached or has no Python 3.
    """
    work.say(f"reaching {work.container.name}", None)
    work.container.check(
        Command((SYSTEM_PYTHON, "-B", "-c", "pass"), purpose="reach the container"),
        hint="Check that the container runs and has python3.",
    )
    found = look_at(work, *_SECTIONS, purpose="look at everything")
    venv: Any = found["venv"]
    packages = (
        look_at_packages(work, work.target.environment.venv) if venv and venv["exists"] else None
    )
    device = _device(work, found)
    return {
        "reached": {"container": work.container.name, "python3": True},
        **found,
        "packages": _packages(packages),
        "repository": _repository(work),
        "device": device,
        "baselines": list(_baselines(work, device)),
    }


def _packages(looked_at: Json | None) -> Json:
    if looked_at is None:
        return {"created_at": None, "comparison": None}
    distributions: Any = looked_at["distributions"]
    return {"created_at": distributions["created_at"], "comparison": looked_at["comparison"]}


def _repository(work: Work) -> Json:
    """What stage 20 will need of the repository; what is wrong with it is a fact here."""
    sources = work.target.sources
    known: Json = {"path": sources.repository, "ref": sources.ref, "commit": None}
    try:
        commit = find_commit(sources)
        known.update(commit.as_json())
        committed = read_files(sources, commit)
    except PreconditionFailed as error:
        return {**known, "files": [], "error": f"{error.what} {error.hint}"}
    files: list[JsonValue] = [
        {"path": file.declared.path, "sha256": file.sha256} for file in committed
    ]
    return {**known, "files": files, "error": None}


def _device(work: Work, found: Json) -> str | None:
    machine: Any = found["machine"]
    if machine is None:
        return None
    return device_text(device_names(work.target, machine), machine["cores"])


def _baselines(work: Work, device: str | None) -> list[Json]:
    """Baselines of this device, this torch build and this workload; a damaged file is named."""
    wanted = {
        "device": device,
        "torch_build": work.target.torch.version,
        "roles_hash": roles_hash(work.target),
    }
    found: list[Json] = []
    for path in sorted(Path(work.target.benchmark.baselines).glob("*.json")):
        try:
            baseline = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            found.append({"file": path.name, "error": str(error)})
            continue
        if isinstance(baseline, dict) and all(baseline.get(k) == v for k, v in wanted.items()):
            shown = ("device", "torch_build", "tok_per_s", "recorded_at")
            seen = (baseline.get("measured") or {}).get("mean_tok_per_s")
            said = {k: baseline.get(k) for k in shown}
            found.append({"file": path.name, **said, "as_measured_tok_per_s": seen})
    return found


def plan(work: Work, facts: Json) -> Plan:
    """Nothing, ever. **Runs on:** operator. **Changes:** nothing."""
    return Plan(stage=STAGE, why="Preflight only looks.")


def apply(work: Work, facts: Json, plan: Plan) -> Json:
    """Nothing further is measured: the facts are the evidence. **Changes:** nothing."""
    return {}
