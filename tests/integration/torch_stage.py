"""A small target for the stages that need torch: its own repository, workload and compile cache.

The workload is two layers wide enough to compile and small enough to compile in seconds; what the
stages do with it is the same as with a real one.
"""

import subprocess
from dataclasses import dataclass, field

from helpers.reach.local import LocalContainer
from helpers.recover.work import Work
from helpers.target import Target, load_target

WORKLOAD = '''"""A step of a small network: forward in both roles, backward in the drafter."""

import torch
from torch import nn


def build(device, role, shape):
    torch.manual_seed(0)
    model = nn.Linear(shape["width"], shape["width"]).to(device)
    compiled = torch.compile(model, dynamic=False, fullgraph=True)
    data = torch.randn(256, shape["width"], device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        compiled(data).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        return 256

    return step
'''
PLAIN = WORKLOAD.replace(
    "compiled = torch.compile(model, dynamic=False, fullgraph=True)", "compiled = model"
)


@dataclass
class Stand:
    """A target in a folder, and what its stages told while they worked."""

    root: object
    target: Target
    changes: list = field(default_factory=list)
    said: list = field(default_factory=list)

    def work(self, run_id="20261130T000000Z-t-0001"):
        return Work(
            container=LocalContainer("tests"),
            target=self.target,
            run_id=run_id,
            evidence_of=lambda _stage: None,
            keep=lambda _name, _content: None,
            say=lambda text, fraction: self.said.append((text, fraction)),
            on_change=lambda phase, change, error: self.changes.append((phase, change.what, error)),
        )

    @property
    def cache(self):
        return self.root / "cache" / "inductor"

    def deploy(self, source):
        (self.root / "training" / "workload.py").write_text(source)


def stand(root, torch_python, *, source=WORKLOAD, roles=None, seconds=7.0, remedy="none"):
    """Make one under ``root``; the deployed workload is the committed one."""
    for folder in ("repository", "training", "cache", "baselines"):
        (root / folder).mkdir(parents=True)
    (root / "repository" / "workload.py").write_text(source)
    git = (
        "git",
        "-C",
        str(root / "repository"),
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.org",
    )
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "-m", "the workload")):
        subprocess.run([*git, *words], check=True)
    raw = load_target("sandbox").model_dump()
    raw["reach"]["root"] = str(root)
    raw["environment"]["venv"] = str(torch_python.parent.parent)
    raw["sources"] = {
        "repository": str(root / "repository"),
        "ref": "HEAD",
        "deploy_to": str(root / "training"),
        "files": [{"path": "workload.py"}],
    }
    raw["workload"] = {
        "file": str(root / "training" / "workload.py"),
        "torch_threads": 1,
        "roles": roles
        or [{"name": "drafter", "devices": ["cpu", "cpu"], "shapes": [{"width": 32}]}],
    }
    raw["threads"] = {"processes": 1, "remedy": remedy}
    raw["cache"]["directory"] = str(root / "cache" / "inductor")
    raw["benchmark"] |= {
        "baselines": str(root / "baselines"),
        "seconds": seconds,
        "tolerance_ratio": 0.5,
    }
    made = Stand(root, Target.model_validate(raw))
    made.deploy(source)
    return made
