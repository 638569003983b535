"""The two models of DFlash training: a frozen target, and a drafter that proposes blocks of tokens.

A drafter makes a large language model (the *target*) faster.  Instead of asking the target for one
token after another, the drafter guesses a whole block and the target checks it in one pass.  DFlash
drafts by block diffusion: a block starts with one known token, its *anchor*; the other places hold
a mask vector, and all of them are filled in a single forward pass.  What the drafter knows about
the text before the anchor it takes from the target's own hidden states.

A training forward looks at many blocks together.  With C context positions and A anchors in a text,
its attention has A * block_size queries over C + A * block_size keys::

                  context (C)              blocks (A * block_size)
    block 0   x x x x . . . . . . .     x x x x | . . . . | . . . .     it sees what comes
    block 1   x x x x x x x . . . .     . . . . | x x x x | . . . .     before its anchor, and
    block 2   x x x x x x x x x x .     . . . . | . . . . | x x x x     the whole of itself

``draft_rule`` is that picture as a function, and FlexAttention compiles it into its kernel.  On a
CPU FlexAttention has no backward pass: with gradients the same function is written out there as a
dense mask for scaled_dot_product_attention.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.flex_attention import BlockMask

MaskRule = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
Visible = Tensor | BlockMask


@dataclass(frozen=True)
class Settings:
    """Sizes of both models and of the draft."""

    vocabulary: int = 256
    width: int = 128  # of a hidden state, in the target and in the drafter
    heads: int = 4  # width / heads must be a power of two, 16 or more
    target_layers: int = 2
    tapped_layers: tuple[int, ...] = (0, 1)  # target layers whose output the drafter gets to see
    drafter_layers: int = 2
    block_size: int = 16  # tokens of a draft block, the anchor included
    gamma: float = 7.0  # how slowly a place's weight in the loss falls, in places
    max_positions: int = 4096  # longest text that has rotary positions


def draft_rule(anchors: Tensor, context: int, block_size: int) -> MaskRule:
    """The rule of the picture above, for anchors of shape [batch, blocks]."""

    def may_see(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        block = query // block_size
        in_context = key < context
        before_anchor = key < anchors[batch, block]
        same_block = torch.where(in_context, 0, key - context) // block_size == block
        return torch.where(in_context, before_anchor, same_block)

    return may_see


def causal_rule(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """The rule of the target, which reads from left to right."""
    return key <= query


def write_out(rule: MaskRule, batch: int, queries: int, keys: int, device: torch.device) -> Visible:
    """The rule in the form that :func:`attend` needs on this device.

    It is written outside the compiled forward and handed in.  Inside, on a GPU with torch 2.11, the
    kernel misread a block mask: wrong numbers for short texts, illegal memory access for long ones.
    """
    dense = device.type == "cpu" and torch.is_grad_enabled()
    write = flex.create_mask if dense else flex.create_block_mask
    return write(rule, batch, None, queries, keys, device=device)


def attend(query: Tensor, key: Tensor, value: Tensor, visible: Visible) -> Tensor:
    """Attention over [batch, heads, places, width / heads], restricted to what is visible."""
    if isinstance(visible, BlockMask):
        return flex.flex_attention(query, key, value, block_mask=visible)
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=visible)


class View(NamedTuple):
    """What attention has to know of its queries and keys: who is visible, and where they stand."""

    visible: Visible
    at: Tensor
    seen_at: Tensor


class RotaryPositions(nn.Module):
    """Turns queries and keys by their position, so that attention depends on distances."""

    def __init__(self, head_width: int, max_positions: int) -> None:
        super().__init__()
        frequencies = 10_000.0 ** (-torch.arange(0, head_width, 2) / head_width)
        angles = torch.outer(torch.arange(max_positions), frequencies).repeat(1, 2)
        self.register_buffer("cosines", angles.cos(), persistent=False)
        self.register_buffer("sines", angles.sin(), persistent=False)

    def forward(self, heads: Tensor, positions: Tensor) -> Tensor:
        """Turn [batch, heads, places, head width] by positions [batch, places]."""
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

    def forward(self, states: Tensor, seen: Tensor, view: View) -> Tensor:
        """Let ``states`` look at what is ``seen``."""
        query = self.rotary(self._split(self.query(states)), view.at)
        key, value = self.key_value(seen).chunk(2, dim=-1)
        key = self.rotary(self._split(key), view.seen_at)
        mixed = attend(query, key, self._split(value), view.visible)
        return self.output(mixed.transpose(1, 2).flatten(2))

    def _split(self, states: Tensor) -> Tensor:
        return states.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class Layer(nn.Module):
    """One transformer layer: attention and a gated feed-forward part, each behind its norm."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        width = settings.width
        self.attention_norm = nn.RMSNorm(width)
        self.attention = Attention(settings)
        self.feed_norm = nn.RMSNorm(width)
        self.gate_up = nn.Linear(width, 4 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, states: Tensor, context: Tensor | None, view: View) -> Tensor:
        """Update ``states``; a context stands in front of them and is only looked at."""
        normed = self.attention_norm(states)
        seen = normed if context is None else torch.cat([context, normed], dim=1)
        states = states + self.attention(normed, seen, view)
        gate, up = self.gate_up(self.feed_norm(states)).chunk(2, dim=-1)
        return states + self.down(functional.silu(gate) * up)


class Target(nn.Module):
    """The frozen language model: it reads the tokens and lends the drafter its hidden states."""

    def __init__(self, settings: Settings, seed: int = 0) -> None:
        super().__init__()
        self.tapped = settings.tapped_layers
        self.embedding = nn.Embedding(settings.vocabulary, settings.width)
        self.layers = nn.ModuleList(Layer(settings) for _ in range(settings.target_layers))
        initialise(self, seed)
        self.requires_grad_(False)

    def visible(self, tokens: Tensor) -> Visible:
        """The mask for these tokens' shape."""
        return write_out(causal_rule, *tokens.shape, tokens.shape[1], tokens.device)

    def forward(self, tokens: Tensor, visible: Visible) -> Tensor:
        """Hidden states of the tapped layers, side by side: [batch, context, taps * width]."""
        at = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        seen = View(visible, at, at)
        states, tapped = self.embedding(tokens), []
        for number, layer in enumerate(self.layers):
            states = layer(states, None, seen)
            if number in self.tapped:
                tapped.append(states)
        return torch.cat(tapped, dim=-1)


class Drafter(nn.Module):
    """The model in training: it fills a block from its anchor and the target's hidden states."""

    def __init__(self, settings: Settings, seed: int = 1) -> None:
        super().__init__()
        self.block_size, self.gamma = settings.block_size, settings.gamma
        width = settings.width
        self.embedding = nn.Embedding(settings.vocabulary, width)
        self.mask = nn.Parameter(torch.empty(1, width))
        self.fuse = nn.Linear(len(settings.tapped_layers) * width, width, bias=False)
        self.fuse_norm = nn.RMSNorm(width)
        self.layers = nn.ModuleList(Layer(settings) for _ in range(settings.drafter_layers))
        self.head_norm = nn.RMSNorm(width)
        self.head = nn.Linear(width, settings.vocabulary, bias=False)
        initialise(self, seed)

    def visible(self, tokens: Tensor, anchors: Tensor) -> Visible:
        """The mask for these anchors."""
        (batch, context), drafted = tokens.shape, anchors.shape[1] * self.block_size
        rule = draft_rule(anchors, context, self.block_size)
        return write_out(rule, batch, drafted, context + drafted, tokens.device)

    def forward(
        self, tokens: Tensor, hidden: Tensor, anchors: Tensor, visible: Visible
    ) -> tuple[Tensor, Tensor]:
        """Loss and accuracy of one batch.

        Args:
            tokens: [batch, context] token ids.
            hidden: [batch, context, taps * width] hidden states of the target for these tokens.
            anchors: [batch, blocks] positions at which a block starts; a whole block must fit.
            visible: what :meth:`visible` says of the same tokens and anchors.
        """
        logits = self.draft(tokens, hidden, anchors, visible)
        wanted = tokens.gather(1, self.places(anchors).flatten(1)).view(logits.shape[:-1])
        return block_loss(logits, wanted, self.gamma)

    def places(self, anchors: Tensor) -> Tensor:
        """Positions of every place of every block: [batch, blocks, block_size]."""
        return anchors.unsqueeze(-1) + torch.arange(self.block_size, device=anchors.device)

    def draft(self, tokens: Tensor, hidden: Tensor, anchors: Tensor, visible: Visible) -> Tensor:
        """Logits for every place of every block: [batch, blocks, block_size, vocabulary]."""
        at = self.places(anchors).flatten(1)
        context_at = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        seen = View(visible, at, torch.cat([context_at, at], dim=1))
        anchor_states = self.embedding(tokens.gather(1, anchors)).unsqueeze(2)
        masks = self.mask.expand(*anchors.shape, self.block_size - 1, -1)
        states = torch.cat([anchor_states, masks], dim=2).flatten(1, 2)
        context = self.fuse_norm(self.fuse(hidden).float())
        for layer in self.layers:
            states = layer(states, context, seen)
        return self.head(self.head_norm(states)).unflatten(1, (-1, self.block_size))


def block_loss(logits: Tensor, wanted: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
    """Weighted cross entropy over the drafted places, and the share of them that is right.

    A draft is used up to its first wrong token, so early places matter more: the k-th drafted place
    weighs exp(-(k - 1) / gamma).  The anchor itself is given and does not count.
    """
    drafted, wanted = logits[:, :, 1:].float(), wanted[:, :, 1:]
    weights = torch.exp(-torch.arange(wanted.shape[-1], device=wanted.device) / gamma)
    losses = functional.cross_entropy(drafted.flatten(0, 2), wanted.flatten(), reduction="none")
    loss = (losses.view(wanted.shape) * weights).sum(dim=-1).mean() / weights.sum()
    return loss, (drafted.argmax(dim=-1) == wanted).float().mean()


def initialise(model: nn.Module, seed: int) -> None:
    """Give every parameter its first value from an own generator: the same in every thread."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5, generator=generator)
        else:
            nn.init.ones_(parameter)


def compile_target(target: Target, device: torch.device) -> Callable[[Tensor], Tensor]:
    """The target's forward as training calls it: compiled, without gradients."""
    forward, visible = compiled(target, device), {}

    @torch.no_grad()
    def hidden_states(tokens: Tensor) -> Tensor:
        if tokens.shape not in visible:
            visible[tokens.shape] = target.visible(tokens)
        return forward(tokens, visible[tokens.shape])

    return hidden_states


def compile_drafter(drafter: Drafter, device: torch.device) -> Callable[..., tuple[Tensor, Tensor]]:
    """The drafter's whole training forward as training calls it: compiled, loss included."""
    forward = compiled(drafter, device)

    def loss_and_accuracy(tokens: Tensor, hidden: Tensor, anchors: Tensor) -> tuple[Tensor, Tensor]:
        return forward(tokens, hidden, anchors, drafter.visible(tokens, anchors))

    return loss_and_accuracy


def compiled(model: nn.Module, device: torch.device) -> Callable[..., Any]:
    """Compile a whole forward: a graph for each shape that it meets, an error on a graph break.

    Matrix products are bfloat16 on a GPU, float32 on a CPU.  On a CPU the code between the kernels
    is C++ too: one source file a graph instead of one a kernel, which halves the time to compile.
    """
    # The code of a forward is one for all devices, and each device and shape is an entry there.
    torch._dynamo.config.recompile_limit = 64
    on_cpu = device.type == "cpu"
    forward = torch.compile(model, fullgraph=True, dynamic=False, options={"cpp_wrapper": on_cpu})
    return torch.autocast(device.type, torch.bfloat16, enabled=not on_cpu)(forward)
