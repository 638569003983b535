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


# Training steps of four layers that tell their loss. The compiler's backend is a real one that is
# quick; {extra} is what goes wrong.
TOLD = """
import contextlib
import threading
import time

import torch
import torch._dynamo
import torch.compiler
from torch import nn

{extra}

def build(device, role, shape):
    torch.manual_seed(0)
    layers = [nn.Linear(16, 16) for _ in range(4)]
    model = nn.Sequential(*layers).to(device)
    x = torch.randn(shape["batch"], 16, device=device)
    compiled = torch.compile(model, dynamic=False, backend=BACKEND)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        before_call()
        loss = compiled(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step.loss = loss.item
        return shape["batch"]

    return step
"""
FINE = TOLD.format(extra='BACKEND = "aot_eager"\n\n\ndef before_call():\n    pass\n')
# The backend traces for half a second, as a large model does: the window into which the others run.
_TRACING = """
class Slow(nn.Module):
    def forward(self, x):
        time.sleep(0.5)
        return x + 1


def BACKEND(graph, inputs):
    torch.fx.symbolic_trace(Slow())
    return graph.forward


def before_call():
    pass
"""
# 2.11's behaviour towards threads, on a torch 2.13 that hides its flag while a thread compiles.
_AS_211 = """
@contextlib.contextmanager
def say_nothing():
    yield


torch.compiler._compile_session_context = say_nothing
"""
TRACING = TOLD.format(extra=_TRACING)
RACING = TOLD.format(extra=_TRACING + _AS_211)
# Two threads trace at once, and the second one to begin puts back the flag as the first one had set
# it: torch's flag stays up for ever. With the check muted all compiled functions then run eager.
MUTED = TOLD.format(
    extra="""
from torch.fx.experimental.proxy_tensor import make_fx

BACKEND = "aot_eager"
traced = threading.local()
both = threading.Barrier(2)


def slow(x):
    time.sleep(0.6)
    return x + 1


def before_call():
    torch._dynamo.config.error_on_nested_fx_trace = False
    if threading.current_thread() is threading.main_thread() or hasattr(traced, "once"):
        return
    traced.once = True
    time.sleep(0.3 * both.wait())
    with contextlib.suppress(AssertionError):  # of the one whose patch the other one took away
        make_fx(slow)(torch.ones(1))
    both.wait()
"""
)
# Each thread holds what the other one waits for.
DEADLOCKED = TOLD.format(
    extra="""
BACKEND = "aot_eager"
locks = [threading.Lock(), threading.Lock()]
order = {}


def before_call():
    if threading.current_thread() is threading.main_thread():
        return
    mine = order.setdefault(threading.get_ident(), len(order)) % 2
    with locks[mine]:
        time.sleep(1.0)
        with locks[1 - mine]:
            pass
"""
)
# What should be each thread's own is shared: the loss depends on how many steps all have taken.
SHARED = TOLD.format(
    extra="""
BACKEND = "aot_eager"
taken = []


def before_call():
    taken.append(1)
"""
).replace("compiled(x).square().mean()", "compiled(x).square().mean() * (1 + len(taken) / 10)")
DYING = TOLD.format(
    extra='import os\n\nBACKEND = "aot_eager"\n\n\ndef before_call():\n'
    "    if threading.current_thread() is not threading.main_thread():\n"
    "        os.kill(os.getpid(), 11)\n"
)
