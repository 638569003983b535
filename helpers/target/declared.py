"""What a target declares: one container, how to reach it, and everything expected of it.

Plain data, checked completely and frozen. Paths are paths as the container sees them, except
``sources.repository`` and ``benchmark.baselines``, which lie on the operator's machine. This room knows
nothing of files, connections, runs or stages.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import platformdirs
from packaging.requirements import InvalidRequirement, Requirement
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    field_validator,
    model_validator,
)

from helpers.target.paths import AbsolutePath, below_root_or_home, plain_name

DEFAULT_SANDBOX_ROOT = (
    Path(platformdirs.user_data_dir("recover-runbooks", appauthor=False)) / "sandbox"
)


def _refuse_twice(what: str, names: Iterable[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{what} {twice[0]!r} is declared twice")


class _Declared(BaseModel):
    """Every part of a target: frozen, and unknown fields are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class SandboxReach(_Declared):
    """The container is a folder of this machine."""

    kind: Literal["sandbox"]
    root: Annotated[str, AfterValidator(below_root_or_home)] = Field(
        default=str(DEFAULT_SANDBOX_ROOT), description="the sandbox's folder, absolute or below ~/"
    )


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
        description="folder in the container for jobs",
    )


class Identity(_Declared):
    """What proves that the container reached is the one meant."""

    marker_file: AbsolutePath = Field(
        description="a file in the container, for instance /etc/machine-id"
    )
    marker: str = Field(
        min_length=1,
        pattern=r"\S",
        description="the file's exact content, white space at the ends aside",
    )


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

    @field_validator("packages")
    @classmethod
    def _requirements(cls, packages: tuple[str, ...]) -> tuple[str, ...]:
        for line in packages:
            try:
                Requirement(line)
            except InvalidRequirement as error:
                raise ValueError(f"{line!r} is no requirement: {error}") from error
        return packages

    @field_validator("torch_index")
    @classmethod
    def _without_password(cls, index: str | None) -> str | None:
        if index and "@" in index.partition("://")[2].partition("/")[0]:
            raise ValueError("holds a password: give it to pip's configuration, never to a target")
        return index


class SourceFile(_Declared):
    """One file of the training repository, and the hashes it must have where they are known."""

    path: Annotated[str, AfterValidator(plain_name)] = Field(
        description="relative to the repository and to the deploy folder"
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

    @model_validator(mode="after")
    def _once(self) -> Sources:
        _refuse_twice("files: the path", (file.path for file in self.files))
        return self


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

    name: str = Field(min_length=1)
    devices: tuple[str, ...] = Field(min_length=1)
    shapes: tuple[dict[str, JsonValue], ...] = Field(min_length=1)


class Workload(_Declared):
    """The training step behind the contract ``build(device, role, shape) -> step``."""

    file: AbsolutePath
    roles: tuple[Role, ...] = Field(min_length=1)
    torch_threads: int = Field(
        default=1, ge=1, description="torch.set_num_threads in the container"
    )
    expected_graph_breaks: int = Field(
        default=0, ge=0, description="of one role, device and shape when training is healthy"
    )

    @model_validator(mode="after")
    def _once(self) -> Workload:
        _refuse_twice("roles: the name", (role.name for role in self.roles))
        return self


class Threads(_Declared):
    """How training's threads are started, and how often that is tried."""

    processes: int = Field(
        default=5, ge=1, le=50, description="fresh processes that start training's threads"
    )
    remedy: Literal["none", "prewarm"] = Field(
        default="none",
        description="prewarm: training makes every first step in one thread before others start",
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

    @field_validator("throughput_pattern")
    @classmethod
    def _has_its_group(cls, pattern: str) -> str:
        try:
            groups = re.compile(pattern).groupindex
        except re.error as error:
            raise ValueError(f"is no regular expression: {error}") from error
        if "tok_per_s" not in groups:
            raise ValueError("has no group (?P<tok_per_s>...)")
        return pattern


class Target(_Declared):
    """Host, container and everything declared about it."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=40)  # jobs are named by it
    description: str = ""
    reach: SandboxReach | PctReach = Field(discriminator="kind")
    identity: Identity
    environment: Environment
    sources: Sources
    torch: Torch
    workload: Workload
    threads: Threads = Threads()
    cache: Cache
    benchmark: Benchmark
    training: Training

    @model_validator(mode="after")
    def _apart(self) -> Target:
        """What one stage renames must not hold what another one needs."""
        venv, cache = self.environment.venv, self.cache.directory
        renamed = {"environment.venv": venv, "cache.directory": cache}
        needed = renamed | {
            "sources.deploy_to": self.sources.deploy_to,
            "training.log": self.training.log,
            "benchmark.baselines": self.benchmark.baselines,
        }
        for name, folder in renamed.items():
            for other, path in needed.items():
                if other != name and f"{path}/".startswith(f"{folder}/"):
                    raise ValueError(f"{other} lies in {name}, which is set aside as a whole")
        return self

    @property
    def content_hash(self) -> str:
        """SHA-256 over everything declared: two runs with the same hash had the same target."""
        text = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()
