"""A target: one container, how to reach it, and everything declared about it.

Loaded from YAML, checked completely before anything is touched, and frozen. This room knows nothing of
connections, runs or stages. Paths in a target are paths as the container sees them, except
``sources.repository`` and ``benchmark.baselines``, which lie on the operator's machine. In a target of kind
``sandbox``, ``{root}`` stands for the sandbox's folder and ``{python}`` for this Python's version (3.x).
"""

from __future__ import annotations

import difflib
import hashlib
import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import platformdirs
import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, model_validator

from helpers.errors import ParameterError

TARGETS_FOLDER = Path(__file__).resolve().parents[1] / "runbooks" / "targets"
DEFAULT_SANDBOX_ROOT = (
    Path(platformdirs.user_data_dir("recover-runbooks", appauthor=False)) / "sandbox"
)

AbsolutePath = Annotated[str, Field(pattern=r"^/")]


class _Declared(BaseModel):
    """Every part of a target: frozen, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SandboxReach(_Declared):
    """The container is a folder of this machine."""

    kind: Literal["sandbox"]
    root: str = Field(default=str(DEFAULT_SANDBOX_ROOT), description="the sandbox's folder")


class PctReach(_Declared):
    """The container lives on a Proxmox host: reached by ssh, entered by pct."""

    kind: Literal["pct"]
    host: str = Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]*$", description="alias or address, as ssh knows it"
    )
    user: str | None = Field(default=None, description="None = as the ssh configuration says")
    port: int | None = Field(default=None, ge=1, le=65535, description="None = as ssh says")
    ssh_config: str | None = Field(default=None, description="None = ~/.ssh/config")
    vmid: int = Field(ge=100, le=999_999_999)
    hostname: str = Field(description="what the container calls itself")
    environment: dict[str, str] = Field(
        default_factory=dict, description="variables of every command in the container; no secrets"
    )
    staging: AbsolutePath = Field(
        default="/var/lib/recover-runbooks",
        description="folder in the container for jobs and files on their way",
    )


class Identity(_Declared):
    """What proves that the container reached is the one meant."""

    marker_file: AbsolutePath = Field(
        description="a file in the container, for instance /etc/machine-id"
    )
    marker: str = Field(description="the file's exact content, white space at the ends aside")


class Environment(_Declared):
    """The Python environment that training runs in."""

    venv: AbsolutePath
    python: str = Field(pattern=r"^3\.\d+$", description="version of Python, for instance 3.11")
    packages: tuple[str, ...] = Field(
        min_length=1, description="requirements to install, nothing else"
    )
    forbidden: tuple[str, ...] = Field(
        default=(), description="distributions that must not be there"
    )
    torch_index: str | None = Field(
        default=None,
        description="an index asked for torch when the machine's own sources lack the build",
    )


class SourceFile(_Declared):
    """One file of the training repository, and the hashes it must have where they are known."""

    path: str = Field(
        pattern=r"^[^/].*", description="relative to the repository and to the deploy folder"
    )
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    md5: str | None = Field(default=None, pattern=r"^[0-9a-f]{32}$")
    mode: str = Field(default="0644", pattern=r"^0[0-7]{3}$")


class Sources(_Declared):
    """Where the training scripts come from and where they go."""

    repository: AbsolutePath = Field(description="a git repository on the operator's machine")
    ref: str = "HEAD"
    deploy_to: AbsolutePath
    files: tuple[SourceFile, ...] = Field(min_length=1)


class Torch(_Declared):
    """What torch in the container must say of itself. None = not declared, not checked."""

    version: str = Field(
        description="torch.__version__, local part included, for instance 2.11.0+cu128"
    )
    cuda: str | None = Field(default=None, description="torch.version.cuda; None = a CPU build")
    available: bool = Field(description="torch.cuda.is_available()")
    device_count: int = Field(ge=0, description="torch.cuda.device_count()")
    git_version: str | None = None


class Role(_Declared):
    """A kind of thread in training: one thread for each entry of ``devices``."""

    name: str
    devices: tuple[str, ...] = Field(min_length=1)
    shapes: tuple[dict[str, JsonValue], ...] = Field(min_length=1)


class Workload(_Declared):
    """The training step behind the contract ``build(device, role, shape) -> step``."""

    file: AbsolutePath
    roles: tuple[Role, ...] = Field(min_length=1)
    torch_threads: int = Field(
        default=1, ge=1, description="torch.set_num_threads in the container"
    )


class Cache(_Declared):
    """The compile cache (TORCHINDUCTOR_CACHE_DIR)."""

    directory: AbsolutePath


class Benchmark(_Declared):
    """A short throughput measurement and the rule that judges it."""

    seconds: float = Field(default=15.0, gt=0, le=300)
    tolerance_ratio: float = Field(
        default=0.9, gt=0, le=1, description="recovered means at least this share of the baseline"
    )
    failed_ratio: float = Field(
        default=0.4,
        gt=0,
        lt=1,
        description="below this share of the baseline training has not come back",
    )
    baselines: AbsolutePath = Field(
        description="folder of baseline files on the operator's machine"
    )

    @model_validator(mode="after")
    def _ordered(self) -> Benchmark:
        if self.failed_ratio >= self.tolerance_ratio:
            raise ValueError("failed_ratio must be below tolerance_ratio")
        return self


class Training(_Declared):
    """How training is started and where it writes."""

    start_script: AbsolutePath
    log: AbsolutePath
    throughput_pattern: str = Field(description="regular expression with a group called tok_per_s")


class Target(_Declared):
    """Host, container and everything declared about it."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$")
    description: str = ""
    reach: SandboxReach | PctReach = Field(discriminator="kind")
    identity: Identity
    environment: Environment
    sources: Sources
    torch: Torch
    workload: Workload
    cache: Cache
    benchmark: Benchmark
    training: Training

    @property
    def content_hash(self) -> str:
        """SHA-256 over everything declared: two runs with the same hash had the same target."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def target_names() -> list[str]:
    """Names of the target files in ``runbooks/targets``. **Changes:** nothing."""
    return sorted(p.stem for p in TARGETS_FOLDER.glob("*.yaml"))


def find_target(name: str) -> Path:
    """The file of a target given by name or by path.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        ParameterError: there is no such file; the nearest name is in the hint.
    """
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = Path(name).expanduser().resolve()
        if path.is_file():
            return path
        raise ParameterError(
            f"There is no target file {path}.", hint="Give the path of a target's YAML file."
        )
    path = TARGETS_FOLDER / f"{name}.yaml"
    if path.is_file():
        return path
    near = difflib.get_close_matches(name, target_names(), n=1)
    hint = f"Did you mean {near[0]}?" if near else f"Known targets: {', '.join(target_names())}."
    raise ParameterError(f"There is no target called {name!r}.", hint=hint)


def load_target(name: str) -> Target:
    """Load and check a target, given by name or by path.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        ParameterError: the file is missing, is not YAML, or declares something wrong; every wrong field
            is named.
    """
    path = find_target(name)
    hint = f"Correct {path} and start again."
    try:
        raw = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path.name} is not readable YAML: {error}", hint=hint) from error
    if not isinstance(raw, dict):
        raise ParameterError(f"{path.name} must be a mapping of fields.", hint=hint)
    try:
        return Target.model_validate(_expand(raw, _placeholders(raw)))
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc']))}: {_complaint(e)}" for e in error.errors()]
        raise ParameterError(
            f"{path.name} declares something wrong:\n" + "\n".join(lines), hint=hint
        ) from error


def _complaint(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown field"
    return f"{error['msg']} (got {error['input']!r})"


def _placeholders(raw: dict[str, Any]) -> dict[str, str]:
    reach = raw.get("reach")
    given = reach.get("root") if isinstance(reach, dict) else None
    root = Path(given).expanduser().resolve() if isinstance(given, str) else DEFAULT_SANDBOX_ROOT
    return {"{root}": str(root), "{python}": f"{sys.version_info.major}.{sys.version_info.minor}"}


def _expand(value: Any, placeholders: dict[str, str]) -> Any:
    if isinstance(value, str):
        for placeholder, meaning in placeholders.items():
            value = value.replace(placeholder, meaning)
        return value
    if isinstance(value, list):
        return [_expand(item, placeholders) for item in value]
    if isinstance(value, dict):
        return {key: _expand(item, placeholders) for key, item in value.items()}
    return value
