"""The read-only look that several stages share: the payload ``inventory``, and the packages.

It knows what the payloads are asked and nothing of what their answers mean for a stage.
"""

from __future__ import annotations

from typing import Any

from pydantic import JsonValue

from helpers.reach.payload import run_payload
from helpers.recover.requirements import compare
from helpers.recover.work import Json, Work

SYSTEM_PYTHON = "python3"


def look_at(work: Work, *sections: str, purpose: str) -> Json:
    """Sections of the inventory; one that could not be looked at is None, its reason in ``errors``.

    **Runs on:** container. **Changes:** nothing.
    """
    target = work.target
    params: dict[str, JsonValue] = {
        "sections": list(sections),
        "marker_file": target.identity.marker_file,
        "disk_paths": [target.environment.venv, target.sources.deploy_to, target.cache.directory],
        "venv": target.environment.venv,
        "deploy_to": target.sources.deploy_to,
        "files": [file.path for file in target.sources.files],
        "cache": target.cache.directory,
        "log": target.training.log,
        "throughput_pattern": target.training.throughput_pattern,
    }

    def tell(progress: dict[str, Any]) -> None:
        work.say(f"looking at: {progress.get('section', '')}", None)

    document = run_payload(
        work.container, "inventory", params, python=SYSTEM_PYTHON, purpose=purpose, on_progress=tell
    )
    return {**dict.fromkeys(sections), **document.measured, "errors": list(document.errors)}


def look_at_packages(work: Work, venv: str) -> Json:
    """The packages of an environment with what they need, held against the declaration.

    **Runs on:** container. **Changes:** nothing.

    Returns:
        ``distributions``: what the payload measured. ``comparison``: see ``requirements.compare``;
        None when there is no environment or its Python does not answer, for then nothing can be
        said.
    """
    document = run_payload(
        work.container,
        "distributions",
        {"venv": venv},
        python=SYSTEM_PYTHON,
        purpose="read what the installed packages are and need",
    )
    measured: dict[str, Any] = document.measured
    declared = work.target.environment
    markers = measured.get("marker_environment")
    found = measured.get("distributions")
    return {
        "distributions": measured,
        "comparison": compare(found or (), markers, declared.packages, declared.forbidden)
        if markers
        else None,
        "errors": list(document.errors),
    }
