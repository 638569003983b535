"""What torch and its compiler say of themselves, in every version from 2.6 on.

Sent along with the payloads that measure with torch.  Nothing here imports torch by itself: a
payload imports it once, where a failure becomes evidence, and hands it in.  Python 3.9 and newer.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from types import ModuleType
from typing import Any

KEPT_METRICS = 100_000
TEXT_LIMIT = 300
ENVIRONMENT = ("TORCH", "TRITON", "CUDA", "PYTORCH", "OMP_", "MKL_", "NCCL_", "HIP_", "ROCR_")
SECRET_NAMES = ("TOKEN", "SECRET", "PASSWORD", "API_KEY")


def build(torch: ModuleType) -> dict[str, Any]:
    """Which torch this is: the part of a baseline's key that comes from torch."""
    return {
        "version": torch.__version__,
        "git_version": torch.version.git_version,
        "cuda": torch.version.cuda,
        "hip": getattr(torch.version, "hip", None),
    }


def environment() -> dict[str, str]:
    """The variables that change what torch does."""
    return {
        name: "***" if any(word in name for word in SECRET_NAMES) else value
        for name, value in sorted(os.environ.items())
        if name.startswith(ENVIRONMENT)
    }


def device_name(torch: ModuleType, device: str, cpu_model: str | None) -> str | None:
    """A device's name: the GPU's own, or the CPU's model."""
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else cpu_model


def synchronize(torch: ModuleType, device: str) -> None:
    """Wait until the device has done all it was given. A CPU has nothing pending."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def memory(torch: ModuleType, devices: Iterable[str]) -> dict[str, Any]:
    """Peak memory: of the process since its start, and of each GPU since it was last reset."""
    return {
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "devices": {
            device: {
                "peak_allocated_bytes": torch.cuda.max_memory_allocated(device),
                "peak_reserved_bytes": torch.cuda.max_memory_reserved(device),
            }
            for device in dict.fromkeys(devices)
            if device.startswith("cuda")
        },
    }


def reset_peaks(torch: ModuleType, devices: Iterable[str]) -> None:
    """Start counting peak GPU memory anew."""
    for device in dict.fromkeys(devices):
        if device.startswith("cuda"):
            torch.cuda.init()  # before that there is nothing to reset, which is an error
            torch.cuda.reset_peak_memory_stats(device)


class CompileCounters:
    """Counts what the compiler does; made once, before anything is compiled.

    Graphs, cache hits and misses and graph breaks are torch's own counters.  Compilations,
    recompilations and failures are counted from its compilation metrics, one for each frame and for
    each backward graph.
    """

    def __init__(self, torch: ModuleType) -> None:
        import torch._dynamo.utils as dynamo

        self._dynamo = dynamo
        dynamo.set_compilation_metrics_limit(KEPT_METRICS)

    def read(self) -> dict[str, int]:
        """Counts since the process started."""
        counters = self._dynamo.counters
        inductor, autograd = counters["inductor"], counters["aot_autograd"]
        metrics = self._dynamo.get_compilation_metrics()
        return {
            "fxgraph_cache_hit": inductor["fxgraph_cache_hit"],
            "fxgraph_cache_miss": inductor["fxgraph_cache_miss"],
            "fxgraph_cache_bypass": inductor["fxgraph_cache_bypass"],
            "aot_autograd_cache_hit": autograd["autograd_cache_hit"],
            "aot_autograd_cache_miss": autograd["autograd_cache_miss"],
            "aot_autograd_cache_bypass": autograd["autograd_cache_bypass"],
            "aot_autograd_cache_saved": autograd["autograd_cache_saved"],
            "unique_graphs": counters["stats"]["unique_graphs"],
            "graph_breaks": sum(counters["graph_break"].values()),
            "compilations": len(metrics),
            "recompilations": sum(bool(getattr(m, "recompile_reason", None)) for m in metrics),
            "failed_compilations": sum(bool(m.fail_type) for m in metrics),
        }

    def reasons(self) -> dict[str, list[str]]:
        """Why graphs broke, were compiled again or failed: ten reasons of each at most."""
        metrics = self._dynamo.get_compilation_metrics()
        return {
            "graph_breaks": _short(self._dynamo.counters["graph_break"]),
            "recompilations": _short(getattr(m, "recompile_reason", None) for m in metrics),
            "failures": _short(f"{m.fail_type}: {m.fail_reason}" for m in metrics if m.fail_type),
        }


def _short(texts: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(str(text)[:TEXT_LIMIT] for text in list(texts) if text))[:10]


def difference(before: dict[str, int], after: dict[str, int]) -> dict[str, int]:
    """What was counted from one reading to the next."""
    return {name: after[name] - before[name] for name in after}
