"""Stage 30: torch in the container is the right build, on the right devices, with right numbers.

Nothing is changed. A look reads from metadata which torch is installed; the measurement imports it
with the target's own Python, multiplies matrices on every device and compiles a function there.
This room must not know which numbers are good.

Facts::

    {venv: {path, exists, python: {..}|null}, torch: installed version|null,
     packages: [{name, version}] that torch depends on, errors: [payload errors]}

Measured: what the payload ``verify_torch`` measured (see its head), and its ``params`` and
    ``errors``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from helpers.errors import PreconditionFailed
from helpers.plan import Plan
from helpers.reach.payload import run_payload
from helpers.recover.work import Json, Work
from helpers.recover.workload import venv_python

STAGE = "30_verify_torch"
MATMUL_SIZE = 256
_DEADLINE_S = 600.0
# What decides, besides torch itself, whether torch's compiled code and libraries fit together.
_RELATED = ("torch", "triton", "pytorch-triton", "nvidia-", "cuda-", "numpy")


def look(work: Work) -> Json:
    """Which Python the venv has and which torch its metadata names; torch is not imported.

    **Runs on:** container. **Changes:** nothing.
    """
    work.say("reading the environment's metadata", None)
    document = run_payload(
        work.container,
        "inventory",
        {"sections": ["venv"], "venv": work.target.environment.venv},
        python="python3",
        purpose="read which torch is installed",
    )
    venv: Any = document.measured.get("venv") or {}
    packages = [p for p in venv.get("packages") or [] if str(p["name"]).startswith(_RELATED)]
    return {
        "venv": {name: venv.get(name) for name in ("path", "exists", "python")},
        "torch": next((p["version"] for p in packages if p["name"] == "torch"), None),
        "packages": [{"name": p["name"], "version": p["version"]} for p in packages],
        "errors": list(document.errors),
    }


def plan(work: Work, facts: Json) -> Plan:
    """Never a change. **Runs on:** operator. **Changes:** nothing."""
    return Plan(
        stage=STAGE,
        measures=(
            "version, CUDA, git version and devices as torch itself tells them",
            f"a {MATMUL_SIZE}-wide matrix product on each device and dtype, against float64",
            "a compiled function on each device, forward and backward, against float64",
        ),
        why="This stage only measures.",
    )


def apply(work: Work, facts: Json, plan: Plan) -> Json:
    """Import torch with the target's Python and let each device compute.

    **Runs on:** container. **Changes:** nothing; what is compiled goes into a temporary folder.

    Raises:
        PreconditionFailed: the environment has no Python.
        PayloadBroken, CommandTimedOut, OutcomeUnknown: nothing is known to be measured.
    """
    if not (isinstance(facts["venv"], dict) and facts["venv"]["exists"]):
        raise PreconditionFailed(
            f"There is no environment at {work.target.environment.venv}.",
            hint="Run stage 10, which builds it.",
        )
    document = run_payload(
        work.container,
        "verify_torch",
        {"devices": None, "matmul_size": MATMUL_SIZE, "compile": True},
        python=venv_python(work.target),
        purpose="import torch and let every device compute",
        deadline_s=_DEADLINE_S,
        on_progress=lambda record: work.say(_said(record), None),
    )
    return {**document.measured, "params": document.params, "errors": list(document.errors)}


def _said(record: Mapping[str, Any]) -> str:
    if record.get("phase") == "device":
        return f"computing on {record.get('device')}"
    return "importing torch"
