"""Texts by which a thread's error is known, and what they mean. Pure data and one look-up."""

from __future__ import annotations

from typing import NamedTuple


class Signature(NamedTuple):
    """One known error.

    Attributes:
        text: a part of the error's text that stays the same from version to version.
        name: what people call it.
        meaning: what it means and what to do.
    """

    text: str
    name: str
    meaning: str


KNOWN = (
    Signature(
        "Detected that you are using FX to symbolically trace a dynamo-optimized function",
        "FX tracing race",
        "Two threads compiled at the same time: up to torch 2.13 one flag says for the whole "
        "process that tracing goes on. Warm every device and shape in one thread first; do not "
        "mute the check.",
    ),
    Signature(
        "CURRENT_PATCHER is None",
        "FX tracing race",
        "Two threads traced at the same time and one undid the other's patch of nn.Module. Warm "
        "every device and shape in one thread first.",
    ),
    Signature(
        "module is not installed as a submodule",
        "FX tracing race",
        "A thread ran into another thread's tracing, which patches nn.Module for the whole "
        "process; the check that would have said so is muted. Take the muting out, and warm in one "
        "thread.",
    ),
    Signature(
        "found no compiled frames",
        "shared forward",
        "Threads that call instances of one class share its list of compiled graphs, and one lost its "
        "place in it (seen with torch 2.13, fullgraph=True). Give each model a forward of its own: "
        "prewarm.py does.",
    ),
    Signature(
        "CUDA out of memory",
        "out of GPU memory",
        "Another process holds memory, or a step needs more than before (flex_attention that is "
        "not compiled needs several times as much).",
    ),
    Signature(
        "no kernel image is available",
        "torch built for other GPUs",
        "This torch build has no code for this GPU: stage 30 names the architectures that it has.",
    ),
    Signature(
        "CUDA driver version is insufficient",
        "driver too old",
        "The host's driver is older than this torch build needs: install the declared build.",
    ),
    Signature(
        "is not a valid C++ compiler",
        "no C++ compiler",
        "torch.compile needs a C++ compiler in the container, and finds none.",
    ),
    Signature(
        "InvalidCxxCompiler",
        "no C++ compiler",
        "torch.compile needs a C++ compiler in the container, and finds none.",
    ),
    Signature(
        "recompile_limit",
        "recompile limit",
        "One function was compiled too often and torch gave up on it: shapes or modules vary.",
    ),
)


def recognise(text: str) -> Signature | None:
    """The known error that a text shows; None when it is a new one. **Changes:** nothing."""
    return next((known for known in KNOWN if known.text in text), None)
