"""A target: one container, how to reach it, and everything declared about it."""

from helpers.target.declared import (
    DEFAULT_SANDBOX_ROOT,
    Benchmark,
    Cache,
    Environment,
    Identity,
    PctReach,
    Role,
    SandboxReach,
    SourceFile,
    Sources,
    Target,
    Torch,
    Training,
    Workload,
)
from helpers.target.loading import TARGETS_FOLDER, find_target, load_target, target_names

__all__ = [
    "DEFAULT_SANDBOX_ROOT",
    "TARGETS_FOLDER",
    "Benchmark",
    "Cache",
    "Environment",
    "Identity",
    "PctReach",
    "Role",
    "SandboxReach",
    "SourceFile",
    "Sources",
    "Target",
    "Torch",
    "Training",
    "Workload",
    "find_target",
    "load_target",
    "target_names",
]
