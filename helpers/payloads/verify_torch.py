"""torch in the container: the right build, the right devices, the right numbers.

Parameters (JSON):

- ``devices``: which to check, for instance ``["cuda:0"]``; null = every GPU, or the CPU when there
  is none
- ``matmul_size``: side of the square matrices (default 256)
- ``compile``: whether to compile a function too (default true)

**Changes:** nothing; what is compiled goes into a temporary folder that is removed again.

``measured``.  When torch cannot be imported ``imported`` is false, ``import_error`` says why and
the rest is null or missing; that is something seen, so the exit code is 0.  A device's trouble
stands in its own ``error`` fields and in ``errors``, and the other devices are still checked. ::

    {imported: bool, import_error: null|str, import_s, python: {version, executable, prefix},
     version_line: "2.11.0+cu128 12.8", devices_line: "True 8",
     version, cuda, hip, git_version, file: torch.__file__, debug: bool, cxx11_abi: bool,
     build_config: text,
     available: bool, device_count, arch_list: [str], cudnn_version, nccl_version: [int]|null,
     threads: {intra_op, inter_op}, float32_matmul_precision, environment: {},
     warnings: [what torch warned of],
     packages: [{name, version, file}] imported along with torch,
     devices: [{device, name, capability: [major, minor]|null, arch: "sm_90"|null,
                arch_listed: bool|null, total_bytes, free_bytes, error: null|str,
                matmul: [{dtype: float32|float64|bfloat16, max_relative_error, seconds, error}],
                compiled: null or {compiled: bool, graphs, graph_breaks, compile_s, second_call_s,
                          max_relative_error: {value, gradient_x, gradient_weight}, error}}]}

``max_relative_error`` is the largest absolute difference from a float64 reference on the CPU,
divided by the largest absolute value of that reference.  The product's reference is summed up
without a BLAS library, from the same rounded inputs; the compiled function's is the same function
in eager float64.  ``arch_listed`` says whether the build lists exactly this GPU's architecture; a
build can also run on it through an older one of the same generation or PTX.

Sent along with it: ``protocol``, ``torch_facts``, ``cpu_use``.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

import cpu_use
import torch_facts
from protocol import Param, Reporter, run

if TYPE_CHECKING:
    from torch import Tensor, dtype

SCHEMA = 1
ROWS_AT_ONCE = 16
PARAMS = {
    "devices": Param(list, None, items=str),
    "matmul_size": Param(int, 256),
    "compile": Param(bool, True),
}


def measure(params: dict[str, Any], reporter: Reporter) -> None:
    """Import torch, ask what it is, and let each device compute."""
    scratch = tempfile.mkdtemp(prefix="verify_torch-")
    reporter.at_end(lambda: shutil.rmtree(scratch, ignore_errors=True))
    # Before torch is imported: the training's own cache stays as it is.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = scratch
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    measured = reporter.measured
    measured["python"] = {
        "version": sys.version,
        "executable": sys.executable,
        "prefix": sys.prefix,
    }
    measured.update(imported=False, import_error=None, version_line=None, devices_line=None)
    reporter.progress(phase="import")
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            import torch
        except Exception as error:
            measured["import_error"] = f"{type(error).__name__}: {error}"
            reporter.error("import torch", error)
            return
        measured.update(imported=True, import_s=time.perf_counter() - started)
        describe(torch, measured)
        measured["warnings"] = [f"{w.category.__name__}: {w.message}" for w in warned]
    gpus = [f"cuda:{i}" for i in range(measured["device_count"])] if measured["available"] else []
    measured["devices"] = []
    for device in params["devices"] or gpus or ["cpu"]:
        reporter.progress(phase="device", device=device)
        check_device(torch, device, params, reporter)


def describe(torch: ModuleType, measured: dict[str, Any]) -> None:
    """What torch says of itself."""
    measured.update(torch_facts.build(torch), available=torch.cuda.is_available())
    measured["device_count"] = torch.cuda.device_count()
    # The two lines that the check by hand prints.
    measured["version_line"] = f"{torch.__version__} {torch.version.cuda}"
    measured["devices_line"] = f"{measured['available']} {measured['device_count']}"
    measured.update(
        file=torch.__file__,
        debug=torch.version.debug,
        cxx11_abi=torch.compiled_with_cxx11_abi(),
        build_config=torch.__config__.show(),
        arch_list=torch.cuda.get_arch_list(),
        cudnn_version=torch.backends.cudnn.version() if torch.version.cuda else None,
        nccl_version=list(torch.cuda.nccl.version())
        if measured["available"] and torch.version.cuda
        else None,
        threads={"intra_op": torch.get_num_threads(), "inter_op": torch.get_num_interop_threads()},
        float32_matmul_precision=torch.get_float32_matmul_precision(),
        environment=torch_facts.environment(),
        packages=_packages(),
    )


def _packages() -> list[dict[str, Any]]:
    """Packages that are imported by now, with where they came from."""
    found = []
    for name, module in sorted(sys.modules.items()):
        version, file = getattr(module, "__version__", None), getattr(module, "__file__", None)
        if "." not in name and version is not None and file and "-packages" in file:
            found.append({"name": name, "version": str(version), "file": file})
    return found


def check_device(
    torch: ModuleType, device: str, params: dict[str, Any], reporter: Reporter
) -> None:
    """One device: what it is, a matrix product, a compiled function."""
    facts: dict[str, Any] = {"device": device}
    reporter.measured["devices"].append(facts)
    facts.update(
        dict.fromkeys(
            ("name", "capability", "arch", "arch_listed", "total_bytes", "free_bytes", "error")
        )
    )
    facts.update(matmul=[], compiled=None)
    try:
        _identify(torch, device, facts)
    except Exception as error:
        facts["error"] = f"{type(error).__name__}: {error}"
        reporter.error(device, error)
        return
    for dtype in ("float32", "float64", "bfloat16"):
        entry: dict[str, Any] = {
            "dtype": dtype,
            "max_relative_error": None,
            "seconds": None,
            "error": None,
        }
        facts["matmul"].append(entry)
        try:
            multiply(torch, device, dtype, params["matmul_size"], entry)
        except Exception as error:
            entry["error"] = f"{type(error).__name__}: {error}"
            reporter.error(f"{device} matmul {dtype}", error)
    if params["compile"]:
        facts["compiled"] = {"compiled": False, "error": None}
        try:
            compile_and_compare(torch, device, facts["compiled"])
        except Exception as error:
            facts["compiled"]["error"] = f"{type(error).__name__}: {error}"
            reporter.error(f"{device} compile", error)


def _identify(torch: ModuleType, device: str, facts: dict[str, Any]) -> None:
    facts["name"] = torch_facts.device_name(torch, device, cpu_use.cpu_model())
    if device.startswith("cuda"):
        major, minor = torch.cuda.get_device_capability(device)
        free, total = torch.cuda.mem_get_info(device)
        arch = f"sm_{major}{minor}"
        listed = any(name.rstrip("af") == arch for name in torch.cuda.get_arch_list())
        facts.update(
            capability=[major, minor],
            arch=arch,
            arch_listed=listed,
            free_bytes=free,
            total_bytes=total,
        )


def multiply(torch: ModuleType, device: str, dtype: str, size: int, entry: dict[str, Any]) -> None:
    """A matrix product on the device against one summed up in float64 on the CPU."""
    generator = torch.Generator().manual_seed(0)
    left, right = (
        torch.randn(size, size, generator=generator, dtype=torch.float64).to(getattr(torch, dtype))
        for _ in range(2)
    )
    on_device = left.to(device), right.to(device)
    torch_facts.synchronize(torch, device)
    started = time.perf_counter()
    product = on_device[0] @ on_device[1]
    torch_facts.synchronize(torch, device)
    entry["seconds"] = time.perf_counter() - started
    rows = left.double().split(ROWS_AT_ONCE)
    reference = torch.cat([(some[:, :, None] * right.double()[None]).sum(dim=1) for some in rows])
    entry["max_relative_error"] = relative_error(product, reference)


def compile_and_compare(torch: ModuleType, device: str, entry: dict[str, Any]) -> None:
    """A compiled function, forward and backward, against the same in eager float64 on the CPU."""
    import torch._inductor.config as inductor

    def function(x: Tensor, weight: Tensor) -> Tensor:
        hidden = torch.nn.functional.gelu(x @ weight)
        return (hidden.softmax(dim=-1) * hidden).sum(dim=-1).square().mean()

    counters = torch_facts.CompileCounters(torch)
    torch._dynamo.reset()
    before = counters.read()
    compiled = torch.compile(function, dynamic=False)
    # Precompiled headers would be left in a folder that no variable moves.
    with inductor.patch(cpp_cache_precompile_headers=False):
        started = time.perf_counter()
        results = differentiate(torch, compiled, device, torch.float32)
        entry["compile_s"] = time.perf_counter() - started
    started = time.perf_counter()
    differentiate(torch, compiled, device, torch.float32)
    entry["second_call_s"] = time.perf_counter() - started
    done = torch_facts.difference(before, counters.read())
    entry.update(graphs=done["unique_graphs"], graph_breaks=done["graph_breaks"])
    entry["compiled"] = done["unique_graphs"] > 0
    references = differentiate(torch, function, "cpu", torch.float64)
    entry["max_relative_error"] = {
        name: relative_error(results[i], references[i])
        for i, name in enumerate(("value", "gradient_x", "gradient_weight"))
    }


def differentiate(
    torch: ModuleType, function: Callable[..., Tensor], device: str, kind: dtype
) -> list[Tensor]:
    """The function's value at fixed inputs, and its gradients there."""
    generator = torch.Generator().manual_seed(1)
    drawn = [torch.randn(*shape, generator=generator) for shape in ((64, 96), (96, 128))]
    inputs = [tensor.to(device, kind).requires_grad_() for tensor in drawn]
    value = function(*inputs)
    value.backward()
    torch_facts.synchronize(torch, device)
    return [value, *(tensor.grad for tensor in inputs)]


def relative_error(result: Tensor, reference: Tensor) -> float:
    """Largest absolute difference over the largest absolute value of the reference."""
    difference = (result.detach().to("cpu").double() - reference.detach()).abs().max()
    return float(difference / reference.detach().abs().max())


if __name__ == "__main__":
    run("verify_torch", SCHEMA, PARAMS, measure, deadline_s=600.0)
