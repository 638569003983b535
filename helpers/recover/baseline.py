"""Baselines: what training reached in a healthy environment, kept on the operator's machine.

A baseline belongs to devices, a torch build, the *committed* code of the workload and what is run
of it. The code's hash is taken from git at the declared ref and never from the container: a changed
file that is deployed there must be compared with the baseline of the code that it replaced, and
must not silently find another one, or none. It covers every declared Python source, since any of
them may take part in a step. This room must not know how a comparison is judged.

A file ``<key>.json``::

    {schema, device, torch_build, workload_sha256, roles_hash,
     tok_per_s: median of the samples,
     samples_tok_per_s: [..] in bins, in order, see ``workload.free_core_series``,
     measured: {free_cores: whether they are corrected for other work, bin_s, window_s,
                mean_tok_per_s, step_s: median of the counted role's steps,
                counted_role, load, memory, first_steps_s, compile},
     recorded_at: UTC, source: who or what measured it}
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import statistics
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from helpers.errors import ParameterError, PreconditionFailed
from helpers.reach.container import Container
from helpers.recover import workload
from helpers.recover.git_objects import find_commit, read_files, sha256_at
from helpers.recover.work import Json
from helpers.target import Target

SCHEMA = 1
_SHORT = 12


class Baseline(BaseModel):
    """One baseline file; see the module's head."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    schema_version: int = Field(default=SCHEMA, alias="schema")
    device: str
    torch_build: str
    workload_sha256: str
    roles_hash: str
    tok_per_s: float
    samples_tok_per_s: tuple[float, ...]
    measured: dict[str, JsonValue]
    recorded_at: str
    source: str

    @property
    def key(self) -> str:
        """Name of its file without the ending."""
        return key(self.device, self.torch_build, self.workload_sha256, self.roles_hash)


def key(device: str, torch_build: str, workload_sha256: str, roles_hash: str) -> str:
    """The name under which a baseline is kept. **Changes:** nothing."""
    slug = re.sub(r"[^a-z0-9]+", "-", f"{device} torch {torch_build}".lower()).strip("-")
    return f"{slug}-{workload_sha256[:_SHORT]}-{roles_hash[:_SHORT]}"


def committed_code(target: Target) -> dict[str, str]:
    """SHA-256 of every declared Python source, as the declared ref holds it.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        PreconditionFailed: the repository, the ref or a file is missing.
    """
    files = read_files(target.sources, find_commit(target.sources))
    return {f.declared.path: f.sha256 for f in files if f.declared.path.endswith(".py")}


def code_hash(code: dict[str, str]) -> str:
    """One hash for all of ``committed_code``. **Changes:** nothing."""
    lines = "".join(f"{sha256}  {path}\n" for path, sha256 in sorted(code.items()))
    return hashlib.sha256(lines.encode()).hexdigest()


def find(target: Target, device: str, torch_build: str) -> tuple[Baseline | None, str]:
    """The baseline for a device and a torch build, and where it lies or why there is none.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        ParameterError: there is a file and it is not a baseline of this schema.
        PreconditionFailed: the committed code cannot be read.
    """
    folder = Path(target.benchmark.baselines)
    wanted = (device, torch_build, code_hash(committed_code(target)), workload.roles_hash(target))
    path = folder / f"{key(*wanted)}.json"
    if path.is_file():
        return _read(path), str(path)
    known = sorted(p.stem for p in folder.glob("*.json")) if folder.is_dir() else []
    said = f"there are: {', '.join(known)}" if known else "that folder holds none"
    return None, f"no {path.name} in {folder}; {said}"


def read(path: Path) -> Baseline | str:
    """A baseline file, or in words why it is none. **Runs on:** operator. **Changes:** nothing."""
    try:
        return _read(path)
    except ParameterError as error:
        return error.what


def _read(path: Path) -> Baseline:
    try:
        baseline = Baseline.model_validate_json(path.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise ParameterError(
            f"{path} is not a baseline: {error}",
            hint="Rename it, and record a baseline anew in a healthy environment.",
        ) from error
    if baseline.schema_version != SCHEMA or baseline.key != path.stem:
        raise ParameterError(
            f"{path} is a baseline for something else: by its content, {baseline.key}.",
            hint="Give it its own name back; a baseline is never moved to another key.",
        )
    return baseline


def measure_baseline(
    container: Container,
    target: Target,
    say: workload.Say,
    *,
    source: str = "a healthy environment",
) -> Baseline:
    """Measure what training reaches now, to compare later measurements with.

    Call it only where the environment is known to be healthy.

    **Runs on:** container. **Changes:** nothing.

    Args:
        container: the way to the container.
        target: what is declared of it; its ``benchmark.seconds`` are measured.
        say: shows progress: what is going on, and how far.
        source: who or what vouches for the environment's health, in words.

    Raises:
        PreconditionFailed: a thread failed, something was compiled meanwhile, or devices are
            unnamed.
        PayloadBroken, CommandTimedOut, OutcomeUnknown: as ``run_payload``.
    """
    code = committed_code(target)
    document = workload.run_benchmark(container, target, say, purpose="measure a baseline")
    measured: dict[str, Any] = document.measured
    ran: Any = measured_code(measured, target)
    problems = _problems(measured, list(document.errors), ran)
    device = measured_device(measured)
    if problems or device is None:
        raise PreconditionFailed(
            f"No baseline was recorded: {'; '.join(problems) or 'the devices have no name'}.",
            hint="A baseline needs a healthy, warm environment: mend that, then measure again.",
        )
    series, corrected = workload.free_core_series(measured)
    samples = tuple(float(one["tok_per_s"]) for one in series)
    return Baseline(
        device=device,
        torch_build=str(measured["torch"]["version"]),
        workload_sha256=code_hash(code),
        roles_hash=workload.roles_hash(target),
        tok_per_s=statistics.median(samples),
        samples_tok_per_s=samples,
        measured={"free_cores": corrected, **_kept(measured)},
        recorded_at=datetime.now(UTC).isoformat(timespec="seconds"),
        source=f"measured by the payload benchmark in {source}",
    )


def measured_device(measured: dict[str, Any]) -> str | None:
    """The measured devices, as a baseline names them. **Changes:** nothing."""
    load = measured.get("load") or {}
    return workload.device_text(measured.get("devices") or {}, load.get("cores"))


def _problems(measured: dict[str, Any], errors: list[Json], ran: list[Json]) -> list[str]:
    found = [
        f"{error.get('where')}: {str(error.get('message')).splitlines()[0]}" for error in errors
    ]
    if measured.get("phase") != "done":
        return [*found, f"it came as far as {measured.get('phase')}"]
    compiled = (measured["compile"]["window"] or {}).get("compilations")
    if compiled != 0:
        why = (measured["compile"].get("reasons") or {}).get("recompilations") or ["no reason kept"]
        found.append(
            f"{compiled} graphs were compiled while tokens were counted ({'; '.join(why)})"
        )
    found += [
        f"{one['path']} in the container is not the committed one"
        for one in ran
        if one["ran"] is None or one["ran"] != one["committed"]
    ]
    if not measured.get("series"):
        found.append("no whole bin was measured")
    return found


def measured_code(measured: dict[str, Any], target: Target) -> list[JsonValue]:
    """Every file that was loaded from the workload's folder, beside what the commit holds.

    **Runs on:** operator. **Changes:** nothing.

    Returns:
        ``path`` in the container, ``ran``: its SHA-256 there (None = not known), ``committed``: at
        the declared ref (None = the commit has no such file).

    Raises:
        PreconditionFailed: the repository or the ref is missing.
    """
    ran: dict[str, str | None] = measured.get("files") or {}
    if not ran:
        return []
    commit, deployed = find_commit(target.sources), f"{target.sources.deploy_to}/"
    found: list[JsonValue] = []
    for name, sha256 in ran.items():
        path = posixpath.normpath(posixpath.join(posixpath.dirname(target.workload.file), name))
        inside = path.startswith(deployed)
        committed = (
            sha256_at(target.sources, commit, path.removeprefix(deployed)) if inside else None
        )
        found.append({"path": path, "ran": sha256, "committed": committed})
    return found


def _kept(measured: dict[str, Any]) -> dict[str, JsonValue]:
    series = measured["series"]
    steps = [
        t["step_s"]["median"] for t in measured["threads"] if t["step_s"] and _counted(t, measured)
    ]
    return {
        "bin_s": series[1]["t_s"] - series[0]["t_s"] if len(series) > 1 else measured["window_s"],
        "step_s": max(steps, default=None),
        "mean_tok_per_s": measured["tok_per_s"],
        **{
            name: measured.get(name)
            for name in ("window_s", "counted_role", "load", "memory", "first_steps_s", "compile")
        },
    }


def _counted(thread: dict[str, Any], measured: dict[str, Any]) -> bool:
    return bool(thread["role"] == measured["counted_role"])


def store(baseline: Baseline, folder: Path) -> Path:
    """Keep a baseline; one that is there under the same key is set aside, not overwritten.

    **Runs on:** operator. **Changes:** ``folder/<key>.json``.

    Returns:
        The file's path.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{baseline.key}.json"
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    part.write_text(baseline.model_dump_json(by_alias=True, indent=1), encoding="utf-8")
    if path.exists():
        stamp = re.sub(r"[^0-9T]", "", datetime.now(UTC).isoformat(timespec="microseconds"))
        path.rename(path.with_name(f"{path.name}.set-aside-{stamp}"))
    part.replace(path)
    return path
