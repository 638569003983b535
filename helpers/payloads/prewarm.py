"""Warm all that torch.compile will meet, in one thread, before training's threads start.

Up to torch 2.13 one flag says for the whole process that a model is being traced, and ``nn.Module``
is patched meanwhile.  A thread that calls a compiled function while another one traces dies of it,
or goes on uncompiled.  Tracing happens at first calls.  So make every first call here, one after
the other, while no other thread calls anything compiled; then nothing is left to trace.

One thing would still trace later: all instances of a class share its ``forward``, and with it
Dynamo's list of compiled graphs, which each call reorders.  A thread that looks through it
meanwhile can miss its graph and compile it anew (measured: torch 2.11 on an H200 in 2 of 20
processes, torch 2.13 on a CPU in each of 5).  So every compiled module gets a ``forward`` of its
own first, a copy: then no two threads share a list.  torch is not patched.

Drop this file beside the training script.  Where the models stand and no thread runs yet, add::

    import prewarm
    calls = [lambda w=w, b=b: w.gradients(b) for w in workers for b in batches]
    prewarm.prewarm(calls, keep=[w.model for w in workers])

``calls`` must hold everything that any thread will call, on every device and with every shape (one
batch of each), and with its backward: a graph for the backward is made at the first backward.  What
is in ``keep`` (models, optimizers, schedulers: all that has ``state_dict``) is afterwards as
before; the random number generators are as well.  A compiled plain function that several threads
call stays shared: make it a module's ``forward``, one instance for each thread.

It needs torch and nothing else, Python 3.9 and newer.
"""

from __future__ import annotations

import copy
import gc
import threading
import time
import types
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, Callable

MOST_ROUNDS = 4


def prewarm(calls: Iterable[Callable[[], Any]], keep: Sequence[Any] = ()) -> dict[str, Any]:
    """Make every call in this thread until a whole round of them compiles nothing.

    **Changes:** the compile cache where it is not warm; every compiled module gets a ``forward`` of
    its own; nothing else of what is in ``keep``.

    Args: calls: one for every device and shape of every role. keep: things with ``state_dict`` and
        ``load_state_dict`` that the calls change.

    Returns: {calls, apart: modules that got a ``forward`` of their own, rounds: [{seconds,
        compiled: graphs made or taken from the cache}], settled: whether the last round compiled
        nothing, other_threads: names of threads that run beside}.
    """
    todo, states = list(calls), [_copied(thing.state_dict()) for thing in keep]
    apart = keep_apart()
    generators, rounds = _generators(), []
    try:
        while len(rounds) < MOST_ROUNDS and (not rounds or rounds[-1]["compiled"]):
            compiled, began = _compiled(), time.perf_counter()
            for call in todo:
                call()
            seconds = time.perf_counter() - began
            rounds.append({"seconds": seconds, "compiled": _compiled() - compiled})
    finally:
        for thing, state in zip(keep, states):
            thing.load_state_dict(state)
            _forget_gradients(thing)
        for restore, state in generators:
            restore(state)
    settled = not rounds[-1]["compiled"]
    if not settled:
        warnings.warn(f"round {MOST_ROUNDS} still compiled: threads will trace", stacklevel=2)
    beside = [t.name for t in threading.enumerate() if t is not threading.current_thread()]
    return {
        "calls": len(todo),
        "apart": apart,
        "rounds": rounds,
        "settled": settled,
        "other_threads": beside,
    }


def keep_apart() -> int:
    """Give every compiled module a ``forward`` of its own; returns how many got one.

    It behaves as the class's does; only Dynamo, which keeps its graphs by code object, tells them
    apart.
    """
    from torch._dynamo.eval_frame import OptimizedModule

    compiled = [one for one in gc.get_objects() if issubclass(type(one), OptimizedModule)]
    models = {id(module._orig_mod): module._orig_mod for module in compiled}
    shared = [
        (model, type(model).forward)
        for model in models.values()
        if "forward" not in vars(model) and isinstance(type(model).forward, types.FunctionType)
    ]
    for model, known in shared:
        own = types.FunctionType(
            known.__code__.replace(),
            known.__globals__,
            known.__name__,
            known.__defaults__,
            known.__closure__,
        )
        own.__kwdefaults__, own.__qualname__ = known.__kwdefaults__, known.__qualname__
        model.forward = types.MethodType(own, model)
    return len(shared)


def _compiled() -> int:
    """Graphs that Dynamo and inductor have made or found so far, forward and backward."""
    from torch._dynamo.utils import counters

    inductor = counters["inductor"]
    kinds = ("fxgraph_cache_hit", "fxgraph_cache_miss", "fxgraph_cache_bypass")
    return int(counters["stats"]["unique_graphs"] + sum(inductor[kind] for kind in kinds))


def _copied(state: Any) -> Any:
    """A copy that shares nothing with what training changes; tensors keep their devices."""
    import torch

    if isinstance(state, torch.Tensor):
        return state.detach().clone()
    if isinstance(state, dict):
        return type(state)((name, _copied(value)) for name, value in state.items())
    if isinstance(state, (list, tuple)):
        return [_copied(value) for value in state]
    return copy.deepcopy(state)


def _generators() -> list[tuple[Callable[[Any], None], Any]]:
    """The random number generators' states, each with what puts it back."""
    import torch

    found: list[tuple[Callable[[Any], None], Any]] = [(torch.set_rng_state, torch.get_rng_state())]
    if torch.cuda.is_available():
        found.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    return found


def _forget_gradients(thing: Any) -> None:
    for parameter in getattr(thing, "parameters", tuple)():
        parameter.grad = None
