"""The record that a compile cache carries when it has been proven warm, and whether it still fits.

``recover-warm.json`` lies inside the cache's folder, so that it goes wherever the cache goes. It
names all that decides whether a cached graph is found again; when any of it has changed, the cache
is cold for this training, whatever is in it. This room must not know how a cache is warmed.

The record::

    {schema, key: {torch, python, files: {path: sha256}, roles: hash, devices: {device: name}},
     files, bytes: of the cache without this record, cold: [{role, device, shape, first_step_s}],
     proven_at, run_id}
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from helpers.errors import CommandFailed
from helpers.recover import workload
from helpers.recover.work import Json, Work
from helpers.target import Target

RECORD_NAME = "recover-warm.json"
SCHEMA = 1
_SAID = {
    "torch": "torch is another build",
    "python": "Python is another version",
    "files": "the training scripts are others",
    "roles": "roles, devices, shapes or torch threads are declared differently",
    "devices": "the devices are others",
}


def path(target: Target) -> str:
    """Where the record lies in the container. **Changes:** nothing."""
    return f"{target.cache.directory}/{RECORD_NAME}"


def read(work: Work) -> tuple[Json | None, int, str | None]:
    """The record, its size in bytes, and what is wrong with it when it cannot be read.

    **Runs on:** container. **Changes:** nothing.
    """
    try:
        data = work.container.read(path(work.target))
    except CommandFailed as error:
        return None, 0, error.what
    if data is None:
        return None, 0, None
    try:
        record = json.loads(data)
    except ValueError as error:
        return None, len(data), f"it is not JSON: {error}"
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        return None, len(data), f"it is not a record of schema {SCHEMA}"
    return record, len(data), None


def key(work: Work, found: Mapping[str, Any]) -> Json:
    """All that decides whether a cached graph is found again, as it is now; None = not known.

    **Runs on:** container. **Changes:** nothing.

    Args:
        work: the stage's surroundings.
        found: the inventory's sections machine, venv and scripts.
    """
    venv, machine, scripts = (found.get(s) or {} for s in ("venv", "machine", "scripts"))
    torch = next((p["version"] for p in venv.get("packages") or [] if p["name"] == "torch"), None)
    files: Json = {
        str(file["path"]): file.get("sha256")
        for file in scripts.get("files") or []
        if str(file["path"]).endswith(".py")
    }
    own = work.container.read(work.target.workload.file)
    files[work.target.workload.file] = None if own is None else hashlib.sha256(own).hexdigest()
    names: Any = workload.device_names(work.target, machine)
    return {
        "torch": torch,
        "python": (venv.get("python") or {}).get("version"),
        "files": files,
        "roles": workload.roles_hash(work.target),
        "devices": names,
    }


def misfits(record: Json | None, now: Mapping[str, Any], cache: Mapping[str, Any]) -> Iterator[str]:
    """Why the cache is not known to be warm for what is there now; none when the record fits.

    More files than were recorded are no misfit: training adds what it compiles, and nothing is ever
    replaced.

    Args:
        record: what the cache says of itself.
        now: the key as it is now.
        cache: ``files`` and ``bytes`` of the cache without its record.
    """
    if record is None:
        yield "it carries no record of having been proven warm"
        return
    then: Any = record.get("key") or {}
    for part, said in _SAID.items():
        if _unknown(now.get(part)):
            yield f"it is not known whether it fits ({part} could not be read)"
        elif then.get(part) != now.get(part):
            yield said
    for name in ("files", "bytes"):
        recorded: Any = record.get(name)
        there = cache.get(name)
        if recorded is None or there is None or there < recorded:
            yield f"it holds {there} {name}, {recorded} were recorded"


def _unknown(value: object) -> bool:
    return value is None or (isinstance(value, dict) and None in value.values())


def make(
    now: Json, proof: Mapping[str, Any], cold: list[Json], *, proven_at: str, run_id: str
) -> Json:
    """The record of a cache that has just been proven warm. **Changes:** nothing.

    Args:
        now: the key.
        proof: ``totals`` of the proving process.
        cold: first steps of the process that warmed it.
        proven_at: when the proving process was started, UTC.
        run_id: the run that proved it.
    """
    after = proof["cache_after"]
    return {
        "schema": SCHEMA,
        "key": now,
        "files": after["files"],
        "bytes": after["bytes"],
        "cold": [*cold],
        "proven_at": proven_at,
        "run_id": run_id,
    }
