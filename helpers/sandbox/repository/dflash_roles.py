"""What the threads of a training process work with: text, batches, and a worker for each role.

A worker is a model on one device together with the compiled callable that training calls.  The
pipeline and the workload contract both build their workers here, so that whatever warms, checks or
measures a worker does so with training's own callables.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import FunctionType, MethodType
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from dflash_model import Drafter, Settings, Target, compile_drafter, compile_target
from safetensors.torch import save_file
from torch import Tensor

Model = TypeVar("Model", Target, Drafter)
# The roles of a process share a machine's cores among themselves.  The number is also part of the
# key under which a compiled CPU graph is cached: a cache warmed with another number stays cold.
CPU_THREADS_OF_A_ROLE = 1


class Batch(NamedTuple):
    """What a target hands to a drafter; see :meth:`Drafter.forward` for the shapes."""

    tokens: Tensor
    hidden: Tensor
    anchors: Tensor

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        return Batch(*(part.to(device, non_blocking=True) for part in self))


class TextStream:
    """Endless synthetic text: every token has a usual successor, and now and then a surprise."""

    SURPRISES = 0.05

    def __init__(self, vocabulary: int, seed: int) -> None:
        self.vocabulary = vocabulary
        self.successor = np.random.default_rng(0).integers(vocabulary, size=vocabulary)
        self.random = np.random.default_rng([1, seed])

    def tokens(self, batch: int, context: int) -> Tensor:
        """The next texts: [batch, context] token ids."""
        shape = (batch, context)
        text = np.minimum(self.random.zipf(1.3, shape), self.vocabulary) - 1
        surprise = self.random.random(shape) < self.SURPRISES
        for place in range(1, context):
            usual = self.successor[text[:, place - 1]]
            text[:, place] = np.where(surprise[:, place], text[:, place], usual)
        return torch.from_numpy(text)

    def anchors(self, batch: int, context: int, number: int, block_size: int) -> Tensor:
        """Where blocks start: [batch, number] positions in order, each with room for a block."""
        room = np.arange(1, context - block_size + 1)
        rows = [self.random.choice(room, number, replace=False) for _ in range(batch)]
        return torch.from_numpy(np.sort(np.stack(rows), axis=1))


class Worker:
    """A role on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cpu":
            torch.set_num_threads(CPU_THREADS_OF_A_ROLE)

    def enter(self) -> None:
        """Make the worker's device the calling thread's own."""
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)


def with_own_forward(model: Model) -> Model:
    """The model, its forward with code of its own.

    Dynamo keeps its graphs by code, in a list that every call reorders.  Threads that share a
    class's forward share that list: one that looks through it meanwhile misses its graph, traces it
    anew, and trips over the others' tracing.
    """
    shared = type(model).forward
    model.forward = MethodType(FunctionType(shared.__code__.replace(), shared.__globals__), model)
    return model


class TargetWorker(Worker):
    """The frozen target."""

    def __init__(self, device: torch.device, settings: Settings) -> None:
        super().__init__(device)
        self.model = with_own_forward(Target(settings).to(device))
        self.hidden_states = compile_target(self.model, device)

    def read(self, tokens: Tensor) -> Tensor:
        """Hidden states for [batch, context] tokens, without waiting for the device."""
        return self.hidden_states(tokens.to(self.device))


class DrafterWorker(Worker):
    """One replica of the drafter with its optimizer."""

    def __init__(self, device: torch.device, settings: Settings, learning_rate: float) -> None:
        super().__init__(device)
        self.model = with_own_forward(Drafter(settings).to(device))
        self.loss_and_accuracy = compile_drafter(self.model, device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=learning_rate, fused=True)

    def gradients(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Forward and backward: gradients in the parameters; returns loss and accuracy."""
        self.optimizer.zero_grad(set_to_none=True)
        loss, accuracy = self.loss_and_accuracy(*batch.to(self.device))
        loss.backward()
        return loss.detach(), accuracy

    def step(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """One training step; returns loss and accuracy without waiting for the device."""
        measured = self.gradients(batch)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return measured


@torch.no_grad()
def average(replicas: Sequence[DrafterWorker]) -> None:
    """Give every replica the mean of all replicas' parameters."""
    for same in zip(*(replica.model.parameters() for replica in replicas), strict=True):
        mean = torch.stack([parameter.to(same[0].device) for parameter in same]).mean(dim=0)
        for parameter in same:
            parameter.copy_(mean)


def save_checkpoint(drafter: Drafter, path: Path, step: int) -> None:
    """Write the parameters so that ``path`` is at any moment absent, the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    save_file(drafter.state_dict(), unfinished, metadata={"step": str(step)})
    with unfinished.open("rb") as written:
        os.fsync(written.fileno())
    unfinished.replace(path)
