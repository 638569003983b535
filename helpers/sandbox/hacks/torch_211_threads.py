"""EMULATION, for the sandbox only: torch 2.13 treats threads as torch 2.11 does.

The case that this sandbox imitates had torch 2.11 on GPUs.  There is no such torch for every
machine, and none of its bugs on a CPU with 2.13, so two things of 2.11 are restored here.  A real
training has no such file.

- Up to torch 2.12 nothing hid one thread's tracing from the others.  2.13 says for the whole
  process that it is compiling (pytorch #184614), which keeps other threads from the check that
  fails.  Here it does not say so.
- On a GPU with 2.11 something is traced at every start, even when every graph is in the cache: with
  a warm cache 3 of 7 processes failed.  On a CPU a graph that autograd's cache holds is not traced
  again.  Without that cache it is: each start traces, and then finds its compiled code.

From torch 2.14 on the flag is each thread's own, and nothing here brings the race back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch._functorch.config
import torch.compiler


@contextlib.contextmanager
def _say_nothing() -> Iterator[None]:
    yield


def restore() -> None:
    """Restore both, for every thread of this process."""
    torch.compiler._compile_session_context = _say_nothing
    # A plain assignment would hold in the calling thread only, since torch 2.12.
    cache = torch._functorch.config._config["enable_autograd_cache"]
    cache.env_value_force = False
