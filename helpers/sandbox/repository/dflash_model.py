"""The two models of DFlash training: a frozen target, and a drafter that proposes blocks of tokens.

A drafter makes a large language model (the *target*) faster.  Instead of asking the target for one token
after another, the drafter guesses a whole block at once and the target checks the block in one pass.  DFlash
drafts by block diffusion: a block starts with one known token, its *anchor*; the other places hold a mask
vector, and all of them are filled in a single forward pass.  What the drafter knows about the text before the
anchor it takes from the target's own hidden states.

A training forward looks at many blocks together.  With L context positions and A anchors of a sequence, its
attention has A * block_size queries over L + A * block_size keys::

                   context (L)               blocks (A * block_size)
    block 0    x x x x . . . . . . . .       x x x x | . . . . | . . . .      it sees what comes
    block 1    x x x x x x x . . . . .       . . . . | x x x x | . . . .      before its anchor, and
    block 2    x x x x x x x x x x . .       . . . . | . . . . | x x x x      the whole of itself

``draft_rule`` is that picture as a mask function.  FlexAttention compiles it into the attention kernel on a
device where it can be trained.  It has no backward pass on a CPU, so there the same function is written out as
a dense mask for scaled_dot_product_attention whenever gradients are wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import (
    BlockMask,
    create_block_mask,
    create_mask,
    flex_attention,
)

MaskRule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Visibility = Tensor | BlockMask


@dataclass(frozen=True)
class Settings:
    """Sizes of both models and of the draft.

    Attributes:
        vocabulary: number of token ids.
        width: size of a hidden state, the same in target and drafter.
        heads: attention heads; ``width / heads`` must be a power of two for FlexAttention.
        target_layers: layers of the frozen target.
        tapped_layers: the target layers whose outputs the drafter gets to see.
        drafter_layers: layers of the drafter.
        block_size: tokens of a draft block, the anchor included.
        gamma: how slowly a place's weight in the loss falls, in places.
        max_positions: longest sequence that has a rotary position.
    """

    vocabulary: int = 256
    width: int = 128
    heads: int = 4
    target_layers: int = 4
    tapped_layers: tuple[int, ...] = (1, 3)
    drafter_layers: int = 2
    block_size: int = 16
    gamma: float = 7.0
    max_positions: int = 1024


# ------------------------------------------------------------------------------------- who may see whom


def draft_rule(anchors: Tensor, context: int, block_size: int) -> MaskRule:
    """The rule of the picture above, for anchors of shape [batch, blocks]."""

    def may_see(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        block = query // block_size
        in_context = key < context
        before_anchor = key < anchors[batch, block]
        own_block = torch.where(in_context, -1, (key - context) // block_size) == block
        return (in_context & before_anchor) | own_block

    return may_see


def causal_rule(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The target reads left to right."""
    return key <= query


def needs_dense_attention(device: torch.device) -> bool:
    """Whether FlexAttention cannot do it: on a CPU it has no backward pass."""
    return device.type == "cpu" and torch.is_grad_enabled()


def visibility(
    rule: MaskRule, batch: int | None, queries: int, keys: int, device: torch.device
) -> Visibility:
    """Write the rule out in the form that :func:`attend` needs on this device."""
    if needs_dense_attention(device):
        return create_mask(rule, batch, None, queries, keys, device=device)
    return create_block_mask(rule, batch, None, queries, keys, device=device)


def attend(query: Tensor, key: Tensor, value: Tensor, visible: Visibility) -> Tensor:
    """Attention over [batch, heads, places, width / heads], restricted to what is visible."""
    if isinstance(visible, BlockMask):
        return flex_attention(query, key, value, block_mask=visible)
    return F.scaled_dot_product_attention(query, key, value, attn_mask=visible)


# ---------------------------------------------------------------------------------------------- layers


class RotaryPositions(nn.Module):
    """Rotates queries and keys by their position, so that attention depends on distances."""

    def __init__(self, head_width: int, max_positions: int) -> None:
        super().__init__()
        frequencies = 10_000.0 ** (-torch.arange(0, head_width, 2) / head_width)
        angles = torch.outer(torch.arange(max_positions), frequencies).repeat(1, 2)
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Rotate [batch, heads, places, head width] by positions [batch, places]."""
        cosines = self.cosines[positions].unsqueeze(1)
        sines = self.sines[positions].unsqueeze(1)
        left, right = heads.chunk(2, dim=-1)
        return (heads * cosines + torch.cat([-right, left], dim=-1) * sines).to(heads.dtype)


class Attention(nn.Module):
    """Attention whose keys and values may come from more places than its queries."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.heads = settings.heads
        self.query = nn.Linear(settings.width, settings.width, bias=False)
        self.key_value = nn.Linear(settings.width, 2 * settings.width, bias=False)
        self.output = nn.Linear(settings.width, settings.width, bias=False)
        self.rotary = RotaryPositions(settings.width // settings.heads, settings.max_positions)

    def forward(
        self, states: Tensor, seen: Tensor, visible: Visibility, at: Tensor, seen_at: Tensor
    ) -> Tensor:
        """Let ``states`` at positions ``at`` look at the ``seen`` states at ``seen_at``."""
        query = self.rotary(self._split(self.query(states)), at)
        key, value = self.key_value(seen).chunk(2, dim=-1)
        key = self.rotary(self._split(key), seen_at)
        mixed = attend(query, key, self._split(value), visible)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _split(self, states: Tensor) -> Tensor:
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Layer(nn.Module):
    """One transformer layer: attention and a gated feed-forward part, each with its norm."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.width
        self.attention_norm = nn.RMSNorm(width)
        self.attention = Attention(settings)
        self.feed_norm = nn.RMSNorm(width)
        self.gate_up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(
        self,
        states: Tensor,
        context: Tensor | None,
        visible: Visibility,
        at: Tensor,
        seen_at: Tensor,
    ) -> Tensor:
        """Update ``states``; with a context they see it in front of themselves."""
        normed = self.attention_norm(states)
        seen = normed if context is None else torch.cat([context, normed], dim=1)
        states = states + self.attention(normed, seen, visible, at, seen_at)
        gate, up = self.gate_up(self.feed_norm(states)).chunk(2, dim=-1)
        return states + self.down(F.silu(gate) * up)


# ---------------------------------------------------------------------------------------------- models


class Target(nn.Module):
    """The frozen language model: it reads the tokens and lends the drafter its hidden states."""

    def __init__(self, settings: Settings, seed: int = 0) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = nn.Embedding(settings.vocabulary, settings.width)
        self.layers = nn.ModuleList(Layer(settings) for _ in range(settings.target_layers))
        initialise(self, seed)
        self.requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        """Hidden states of the tapped layers, side by side: [batch, context, taps * width]."""
        batch, context = tokens.shape
        at = torch.arange(context, device=tokens.device).expand(batch, context)
        visible = visibility(causal_rule, None, context, context, tokens.device)
        states, tapped = self.embedding(tokens), []
        for number, layer in enumerate(self.layers):
            states = layer(states, None, visible, at, at)
            if number in self.settings.tapped_layers:
                tapped.append(states)
        return torch.cat(tapped, dim=-1)


class Drafter(nn.Module):
    """The model in training: it fills a block from its anchor and the target's hidden states."""

    def __init__(self, settings: Settings, seed: int = 1) -> None:
        super().__init__()
        self.settings = settings
        width = settings.width
        self.embedding = nn.Embedding(settings.vocabulary, width)
        self.mask = nn.Parameter(torch.empty(1, width))
        self.fuse = nn.Linear(len(settings.tapped_layers) * width, width, bias=False)
        self.fuse_norm = nn.RMSNorm(width)
        self.layers = nn.ModuleList(Layer(settings) for _ in range(settings.drafter_layers))
        self.head_norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, settings.vocabulary, bias=False)
        initialise(self, seed)

    def forward(self, tokens: Tensor, hidden: Tensor, anchors: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and accuracy of one batch.

        Args:
            tokens: [batch, context] token ids.
            hidden: [batch, context, taps * width] hidden states of the target for these tokens.
            anchors: [batch, blocks] positions at which a block starts; a whole block must fit.
        """
        size = self.settings.block_size
        places = anchors.unsqueeze(-1) + torch.arange(size, device=anchors.device)
        wanted = tokens.gather(1, places.flatten(1)).unflatten(1, (-1, size))
        return block_loss(self.draft(tokens, hidden, anchors), wanted, self.settings.gamma)

    def draft(self, tokens: Tensor, hidden: Tensor, anchors: Tensor) -> Tensor:
        """Logits for every place of every block: [batch, blocks, block_size, vocabulary]."""
        batch, context = tokens.shape
        blocks, size = anchors.shape[1], self.settings.block_size
        offsets = torch.arange(size, device=tokens.device)
        at = (anchors.unsqueeze(-1) + offsets).flatten(1)
        context_at = torch.arange(context, device=tokens.device).expand(batch, context)
        seen_at = torch.cat([context_at, at], dim=1)

        known = self.embedding(tokens.gather(1, anchors)).unsqueeze(2)
        states = torch.where((offsets == 0).view(1, 1, size, 1), known, self.mask).flatten(1, 2)
        fused = self.fuse_norm(self.fuse(hidden))
        rule = draft_rule(anchors, context, size)
        visible = visibility(rule, batch, blocks * size, context + blocks * size, tokens.device)
        for layer in self.layers:
            states = layer(states, fused, visible, at, seen_at)
        return self.head(self.head_norm(states)).unflatten(1, (blocks, size))


def block_loss(logits: Tensor, wanted: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Weighted cross entropy over the drafted places, and the share of them that is right.

    A block is used up to its first wrong token, so an early place matters more: the k-th drafted
    place weighs exp(-(k - 1) / gamma).  The anchor itself is given and does not count.
    """
    drafted, wanted = logits[:, :, 1:].float(), wanted[:, :, 1:]
    weights = torch.exp(-torch.arange(wanted.shape[-1], device=wanted.device) / gamma)
    losses = F.cross_entropy(drafted.flatten(0, 2), wanted.flatten(), reduction="none")
    loss = (losses.view_as(wanted) * weights).sum() / (weights.sum() * wanted[..., 0].numel())
    return loss, (drafted.argmax(dim=-1) == wanted).float().mean()


def initialise(model: nn.Module, seed: int) -> None:
    """Give every parameter its first value from its own generator: the same in every thread."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5, generator=generator)
        else:
            nn.init.ones_(parameter)


# --------------------------------------------------------------------------------------------- compiled


def compile_target(target: Target) -> Callable[[Tensor], Tensor]:
    """The target's forward as training calls it: one graph for each shape, without gradients."""
    compiled = torch.compile(target, dynamic=False, fullgraph=True)

    def hidden_states(tokens: Tensor) -> Tensor:
        with torch.no_grad():
            return compiled(tokens)

    return hidden_states


def compile_drafter(drafter: Drafter) -> Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]:
    """The drafter's whole training forward, loss included: one graph for each shape."""
    return torch.compile(drafter, dynamic=False, fullgraph=True)
