"""Small workloads for tests, with the same contract as the training repository's."""

from __future__ import annotations

from pathlib import Path

# Real training steps, compiled; small enough to compile in seconds.
COMPILED = """
import torch
from torch import nn


def build(device, role, shape):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 32)).to(device)
    x = torch.randn(shape["batch"], 32, device=device)
    compiled = torch.compile(model, dynamic=False)

    def draft():
        compiled(x).square().mean().backward()
        model.zero_grad(set_to_none=True)
        return shape["batch"]

    def look():
        with torch.no_grad():
            compiled(x)
        return shape["batch"]

    return draft if role == "drafter" else look
"""
# The same without the compiler, paced, so that the throughput is known beforehand.
PACED = """
import time


def build(device, role, shape):
    def step():
        time.sleep(shape["seconds"])
        return shape["tokens"]

    return step
"""


def write(folder: Path, text: str) -> str:
    """Write a workload file and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "workload.py").write_text(text)
    return str(folder / "workload.py")
