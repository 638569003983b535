"""Torch's tracing flag and what guards it: how it stands, who replaced it, what a race left behind.

Up to torch 2.13 the flag is one for the process, and while it is up ``nn.Module`` is patched.  All
is only read here; torch stays as it is.  Sent along with the payloads that need it.  Python 3.9 and
newer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import FrameType, ModuleType
from typing import Any, Callable

FLAG = "_is_fx_tracing_flag"
COMPILING = "_is_compiling_flag"
# What keeps a thread from calling compiled functions while another one traces; by module.
GUARDS = (
    ("torch.fx._symbolic_trace", "is_fx_symbolic_tracing"),
    ("torch.compiler", "_compile_session_context"),
)


class Tracing:
    """Made before any of training's code runs, so that it knows torch as it was shipped."""

    def __init__(self, torch: ModuleType) -> None:
        import torch.fx._symbolic_trace as symbolic

        self._torch, self._symbolic = torch, symbolic
        self._shipped = {name: getattr(torch.nn.Module, name) for name in _PATCHED}
        self.looks = self.up = 0

    @property
    def process_wide(self) -> bool:
        """Whether this torch has one flag for all threads."""
        return isinstance(getattr(self._symbolic, FLAG, None), bool)

    def look(self) -> None:
        """Look at the flag once and count it."""
        self.looks += 1
        self.up += bool(self._flag())

    def residue(self) -> dict[str, Any]:
        """State that nothing may leave behind once no thread traces any more; null = not there."""
        module = self._torch.nn.Module
        return {
            "fx_flag_stuck": self._flag(),
            "compiling_flag_stuck": getattr(self._torch.compiler, COMPILING, None),
            **{
                f"module{name}patched": getattr(module, name) is not shipped
                for name, shipped in self._shipped.items()
            },
        }

    def guards(self) -> dict[str, Any]:
        """Which of torch's own functions somebody has replaced, and whether the check still speaks.

        torch's settings may be each thread's own: ask in the thread that matters.
        """
        import torch._dynamo.config as config

        return {
            "error_on_nested_fx_trace": getattr(config, "error_on_nested_fx_trace", None),
            "replaced": list(self._replaced()),
        }

    def _flag(self) -> bool | None:
        return getattr(self._symbolic, FLAG) if self.process_wide else None

    def _replaced(self) -> Iterator[dict[str, str]]:
        home = os.path.dirname(str(self._torch.__file__))
        for module, name in GUARDS:
            found = getattr(sys.modules.get(module), name, None)
            code = getattr(getattr(found, "__wrapped__", found), "__code__", None)
            if code is not None and not code.co_filename.startswith(home):
                yield {"name": f"{module}.{name}", "by": code.co_filename}


_PATCHED = ("__call__", "__getattr__")


def module_calls(torch: ModuleType, step: Callable[[], int]) -> int:
    """Take a step and count the modules that Python enters: compiled hardly any, eager each one."""
    entered, count = torch.nn.Module._call_impl.__code__, 0

    def see(frame: FrameType, event: str, _argument: object) -> None:
        nonlocal count
        count += event == "call" and frame.f_code is entered

    sys.setprofile(see)
    try:
        step()
    finally:
        sys.setprofile(None)
    return count


def over_limit(torch: ModuleType) -> int:
    """Compilations given up because one function had been compiled too often."""
    return sum(
        "limit" in f"{metric.fail_type} {metric.fail_reason}".lower()
        for metric in torch._dynamo.utils.get_compilation_metrics()
        if metric.fail_type
    )
