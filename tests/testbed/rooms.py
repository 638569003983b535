"""A stage's surroundings for tests of a single room: a real container, a target, a memory."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from helpers.plan import Change
from helpers.reach.container import Container
from helpers.reach.local import LocalContainer
from helpers.recover.work import Work
from helpers.target import Target

RUN_ID = "20261130T081203Z-test-7f3a"


def make_target(root: Path, **parts: dict) -> Target:
    """A target below ``root``; ``parts`` replace single fields of its sections."""
    declared = {
        "name": "test",
        "reach": {"kind": "sandbox", "root": str(root)},
        "identity": {"marker_file": f"{root}/machine-id", "marker": "it-is-me"},
        "environment": {
            "venv": f"{root}/venv",
            "python": f"{sys.version_info.major}.{sys.version_info.minor}",
            "packages": ["tool-a==2.0", "tool-b"],
            "forbidden": ["intruder"],
        },
        "sources": {
            "repository": f"{root}/repository",
            "deploy_to": f"{root}/training",
            "files": [{"path": "model.py"}],
        },
        "torch": {"version": "2.13.0+cpu", "available": False, "device_count": 0},
        "workload": {
            "file": f"{root}/training/workload.py",
            "roles": [{"name": "target", "devices": ["cpu"], "shapes": [{"batch": 2}]}],
        },
        "cache": {"directory": f"{root}/cache"},
        "benchmark": {"baselines": f"{root}/baselines", "tolerance_ratio": 0.8},
        "training": {
            "start_script": f"{root}/training/start.sh",
            "log": f"{root}/training.log",
            "throughput_pattern": r"tok_per_s=(?P<tok_per_s>[0-9.]+)",
        },
    }
    for section, fields in parts.items():
        declared[section] = {**declared[section], **fields}
    return Target.model_validate(declared)


@dataclass
class Surroundings:
    """What a room said, kept and changed."""

    target: Target
    container: Container = field(default_factory=lambda: LocalContainer("test"))
    run_id: str = RUN_ID
    kept: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    events: list[tuple[str, str, str | None]] = field(default_factory=list)

    @property
    def work(self) -> Work:
        return Work(
            container=self.container,
            target=self.target,
            run_id=self.run_id,
            evidence_of=lambda _stage: None,
            keep=lambda name, content: self.kept.update({name: content}),
            say=lambda text, _fraction: self.said.append(text),
            on_change=self._on_change,
        )

    def _on_change(self, phase: str, change: Change, error: str | None) -> None:
        self.events.append((phase, change.what, error))

    def phases(self) -> list[tuple[str, str]]:
        return [(phase, what) for phase, what, _ in self.events]


def tree(root: Path) -> dict[str, str]:
    """Mode, time and content of everything below a folder: two equal trees were not told apart."""
    found = {}
    for path in sorted(root.rglob("*")):
        facts = path.lstat()
        if path.is_symlink():
            content = f"-> {path.readlink()}"
        else:
            content = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        when = "" if content == "folder" else facts.st_mtime_ns
        found[str(path.relative_to(root))] = f"{facts.st_mode:o} {when} {content}"
    return found


class SmallWrites(LocalContainer):
    """A container in which no file can grow beyond a limit: writing fails as on a full disk."""

    limit_kib = 256

    def _execute(self, command, on_stdout, on_stderr):
        # SIGXFSZ is ignored: a write that is too long fails with an error, as on a full disk.
        script = f"trap '' XFSZ; ulimit -f {self.limit_kib}; exec \"$@\""
        return super()._execute(
            replace(command, argv=("bash", "-c", script, "small", *command.argv)),
            on_stdout,
            on_stderr,
        )


@contextmanager
def small_disk(folder: Path, size_mib: int) -> Iterator[Container]:
    """Make ``folder`` a small disk of its own where that is allowed; else only files stay small."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={size_mib}m,mode=0755"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "testbed", folder], capture_output=True
    )
    try:
        yield LocalContainer("test") if mounted.returncode == 0 else SmallWrites("test")
    finally:
        if mounted.returncode == 0:
            subprocess.run(["umount", folder], check=True)
