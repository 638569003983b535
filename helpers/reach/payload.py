"""Send a payload to the container, run it with the container's Python, read its one JSON document.

The payload's source travels over standard input and no file is left behind, so that a look that changes
nothing really changes nothing. This room knows the protocol of ``payloads/`` and nothing of what they
measure.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from helpers.errors import Changed, PayloadBroken, PayloadError
from helpers.reach.as_job import run_as_job
from helpers.reach.command import Command, CommandResult
from helpers.reach.container import Container
from helpers.reach.job import JobPlace

PAYLOADS_FOLDER = Path(__file__).resolve().parents[1] / "payloads"
# The payload ends itself at its deadline and still prints its document; the command's own deadline comes
# later and is the backstop for a payload that cannot.
_BACKSTOP_S = 20.0

OnProgress = Callable[[dict[str, Any]], None]


class PayloadDocument(BaseModel):
    """What a payload's last line of output says. ``measured`` is raw; null in it means not measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    payload: str
    schema_version: int = Field(alias="schema")
    params: dict[str, JsonValue]
    started_at: str
    elapsed_s: float
    measured: dict[str, JsonValue]
    errors: list[dict[str, JsonValue]]


def payload_hash(payload: str) -> str:
    """SHA-256 of a payload's source and of what travels with it. **Changes:** nothing."""
    digest = hashlib.sha256()
    for name, source in sorted(_sources(payload).items()):
        digest.update(f"{name}\n{source}".encode())
    return digest.hexdigest()


def run_payload(
    container: Container,
    payload: str,
    params: Mapping[str, JsonValue],
    *,
    python: str,
    purpose: str,
    env: Mapping[str, str] | None = None,
    deadline_s: float = 120.0,
    changes: bool = False,
    on_progress: OnProgress | None = None,
    job: JobPlace | None = None,
) -> PayloadDocument:
    """Run a payload in the container and return its document.

    **Runs on:** container. **Changes:** what the payload changes; inventory-like payloads change nothing.

    Args:
        container: where it runs.
        payload: name of the file in ``payloads/`` without its ending.
        params: passed on as JSON.
        python: the Python that runs it, a path or a name in the container.
        purpose: what it is for, in words.
        env: variables for it.
        deadline_s: when it must end itself.
        changes: whether it may change the container.
        on_progress: called with each progress record.
        job: run it as the job of this place, which survives the loss of the connection and is
            waited for by whoever starts it again.

    Returns:
        The document. Exit code 1 with a document is returned too: what could not be measured is in
        ``errors``.

    Raises:
        PayloadError: the payload refused its parameters.
        PayloadBroken: no document came back, whatever the exit code said.
        CommandTimedOut, OutcomeUnknown, CommandFailed: as ``Container.run``.
    """
    sources = _sources(payload)
    request = {
        "files": sources,
        "sha256": {n: hashlib.sha256(s.encode()).hexdigest() for n, s in sources.items()},
        "run": f"{payload}.py",
        "params": {**params, "deadline_s": deadline_s},
    }
    command = Command(
        argv=(python, "-B", "-c", (PAYLOADS_FOLDER / "bootstrap.py").read_text(encoding="utf-8")),
        purpose=purpose,
        env=dict(env or {}),
        stdin=json.dumps(request).encode(),
        timeout_s=deadline_s + _BACKSTOP_S,
        changes=changes,
    )
    reader = _progress_reader(on_progress)
    if job is None:
        result = container.run(command, on_stderr=reader)
    else:
        result = run_as_job(container, command, job, on_stderr=reader)
    document = _document(payload, result, "unknown" if changes else "no")
    if result.returncode == 2:
        raise PayloadError(
            f"The payload {payload} refused its parameters: {document.errors}.",
            result=result,
            hint="This is a mistake in the runbook, not in the machine: report it.",
        )
    return document


def _sources(payload: str) -> dict[str, str]:
    """The payload's file and the files of ``payloads/`` that it imports, by name."""
    found: dict[str, str] = {}
    waiting = [payload]
    while waiting:
        name = waiting.pop()
        source = (PAYLOADS_FOLDER / f"{name}.py").read_text(encoding="utf-8")
        found[f"{name}.py"] = source
        waiting += [i for i in _imported(source) if f"{i}.py" not in found]
    return found


def _imported(source: str) -> list[str]:
    names: list[str] = []
    for statement in ast.walk(ast.parse(source)):
        if isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            names.append(statement.module)
        elif isinstance(statement, ast.Import):
            names += [alias.name for alias in statement.names]
    return [name for name in names if (PAYLOADS_FOLDER / f"{name}.py").is_file()]


def _document(payload: str, result: CommandResult, changed: Changed) -> PayloadDocument:
    lines = result.stdout.rstrip().splitlines()
    try:
        return PayloadDocument.model_validate_json(lines[-1])
    except (IndexError, ValidationError) as error:
        raise PayloadBroken(
            f"The payload {payload} ended (exit code {result.returncode}) without its JSON document.",
            result=result,
            hint="Nothing it did is known to be measured. Read its last lines below and run the stage again.",
            changed=changed,
        ) from error


def _progress_reader(on_progress: OnProgress | None) -> Callable[[bytes], None]:
    held = bytearray()

    def read(data: bytes) -> None:
        held.extend(data)
        *lines, rest = bytes(held).split(b"\n")
        held[:] = rest
        for line in lines:
            if on_progress is not None and line.startswith(b'{"progress"'):
                on_progress(json.loads(line)["progress"])

    return read
