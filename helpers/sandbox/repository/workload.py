"""The workload contract: training's own steps, for whoever warms, checks or measures them.

``build(device, role, shape)`` returns ``step``; ``step()`` runs one training step of that role on
that device and returns the tokens it processed.  It does not wait for the device: synchronise
before you look at a clock.  Each thread calls a ``step`` of its own.  Its first call compiles, or
loads what the cache holds.  A drafter's ``step.loss()`` is the loss of its last step.

    role      shape                      one step                             tokens
    target    batch, context             frozen forward                       batch * context
    drafter   batch, context, anchors    forward, backward and optimizer,     batch * anchors * 16
                                         on synthetic hidden states

The shapes to warm and to measure are those that ``start_training.sh`` makes the pipeline use::

    target    {"batch": 2, "context": 192}
    drafter   {"batch": 2, "context": 192, "anchors": 16}
    drafter   {"batch": 2, "context": 192, "anchors": 8}
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from dflash_model import Settings
from dflash_roles import Batch, DrafterWorker, TargetWorker, TextStream

KEYS = {"target": {"batch", "context"}, "drafter": {"batch", "context", "anchors"}}
SEED = 0


def build(device: str, role: str, shape: Mapping[str, int]) -> Callable[[], int]:
    """A training step of ``role`` on ``device`` for batches of this shape."""
    if role not in KEYS:
        raise ValueError(f"role {role!r}: there are {', '.join(KEYS)}")
    if set(shape) != KEYS[role]:
        raise ValueError(f"shape of a {role}: needs {sorted(KEYS[role])}, has {sorted(shape)}")
    return BUILDERS[role](torch.device(device), **shape)


def build_target(device: torch.device, batch: int, context: int) -> Callable[[], int]:
    """The frozen forward on one batch of text."""
    settings = Settings()
    worker = TargetWorker(device, settings)
    tokens = TextStream(settings.vocabulary, SEED).tokens(batch, context).to(device)

    def step() -> int:
        worker.enter()
        worker.read(tokens)
        return batch * context

    return step


def build_drafter(
    device: torch.device, batch: int, context: int, anchors: int
) -> Callable[[], int]:
    """The whole training step on one batch of text with random hidden states."""
    settings = Settings()
    worker = DrafterWorker(device, settings, learning_rate=1e-3)
    text = TextStream(settings.vocabulary, SEED)
    taps = len(settings.tapped_layers)
    seeded = torch.Generator().manual_seed(SEED)
    one = Batch(
        tokens=text.tokens(batch, context),
        hidden=torch.randn(batch, context, taps * settings.width, generator=seeded),
        anchors=text.anchors(batch, context, anchors, settings.block_size),
    ).to(device)

    def step() -> int:
        worker.enter()
        step.loss = worker.step(one)[0].item
        return one.anchors.numel() * settings.block_size

    return step


BUILDERS = {"target": build_target, "drafter": build_drafter}
