"""Judge of stage 30: is this the torch that the target declares, and does it compute right?

Tolerances, all relative to the largest value of a float64 reference:

- *matrix product* of side n: ``2·eps(accumulator)·sqrt(n) + 2·eps(dtype)``. Rounding errors of n
  additions are as good as independent, so they grow with sqrt(n) (Higham and Mary, "A new approach
  to probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019); the second term is the
  rounding of the result itself, twice, because a kernel may add up two partial results. bfloat16 is
  accumulated in float32. When torch itself says that float32 products may be computed with less
  (``float32_matmul_precision``), eps is that of TF32 or bfloat16 and the check says so.
- *compiled function*: ``2·eps(float32)·480``. 480 is the number of additions in a row: 96 and 128
  in the two products, 128 in the softmax, 128 in the sum. The bound is linear, the classical worst
  case (Higham, "Accuracy and Stability of Numerical Algorithms", 2002, section 3.1), because the
  softmax's gradient cancels and the errors that are left are no longer independent: 3.0e-6 was
  measured on a CPU and 3.1e-6 on an H200, just under the rule with sqrt. A kernel that is wrong is
  off by parts in a hundred or more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from helpers.target import Target
from helpers.verdict import Check, Status, Verdict, equal, verdict

_EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "bfloat16": 2.0**-7, "tf32": 2.0**-10}
_ACCUMULATOR = {"float64": "float64", "float32": "float32", "bfloat16": "float32"}
_PRECISION = {"highest": "float32", "high": "tf32", "medium": "bfloat16"}
_ADDITIONS_IN_COMPILED = 480
_DEFAULT_SIZE = 256
_DTYPES = ("float32", "float64", "bfloat16")
_ENDED_EARLY = ("watchdog", "signal", "measure", "document")
_RULE = "rounding errors: see the head of helpers/judge/verify_torch.py"


def judge(evidence: Mapping[str, Any], target: Target) -> Verdict:
    """Judge what torch says of itself and what its devices computed.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        evidence: of stage 30; ``measured`` may be None, then only the installed version is judged.
        target: what is declared.
    """
    facts, measured = evidence.get("facts") or {}, evidence.get("measured") or {}
    if measured.get("imported") is False:
        return verdict([_not_imported(measured)])
    checks = [*_build(facts, measured, target), *_devices(measured, target)]
    return verdict([*checks, *_cut_short(measured), *_all_devices(measured)])


def _cut_short(measured: Mapping[str, Any]) -> Iterator[Check]:
    """What ended the measurement before its end: what was not reached is not known to be right."""
    ended = [e for e in measured.get("errors") or [] if (e or {}).get("where") in _ENDED_EARLY]
    for error in ended[:1]:
        why = f"{error.get('type')}: {error.get('message')}"
        yield _unknown("measured to the end", "no deadline, no signal", f"It was not: {why}")


def _all_devices(measured: Mapping[str, Any]) -> Iterator[Check]:
    count = measured.get("device_count")
    found = [device for device in measured.get("devices") or [] if (device or {}).get("device")]
    if measured.get("available") and isinstance(count, int) and len(found) < count:
        said = f"{len(found)} of {count} devices computed; the others are not known."
        yield _unknown("every device", f"{count} devices", said)


def _not_imported(measured: Mapping[str, Any]) -> Check:
    why = measured.get("import_error") or "no reason was given"
    return Check(
        name="import torch",
        status=Status.FAIL,
        measured=why,
        expected="no error",
        source="the environment's own Python",
        meaning=f"torch cannot be imported: {why}",
    )


def _build(
    facts: Mapping[str, Any], measured: Mapping[str, Any], target: Target
) -> Iterator[Check]:
    declared = target.torch
    version = measured.get("version")
    yield equal(
        "torch version",
        version if version is not None else facts.get("torch"),
        declared.version,
        source="target: torch.version",
        meaning="Another build of torch is installed, or none: run stage 10 again.",
    )
    yield _optional("torch CUDA", measured, "cuda", declared.cuda, "torch.cuda")
    if declared.git_version is not None:
        yield equal(
            "torch git version",
            measured.get("git_version"),
            declared.git_version,
            source="target: torch.git_version",
            meaning="The version is right and the build is not: it comes from another commit.",
        )
    yield equal(
        "CUDA available",
        measured.get("available"),
        declared.available,
        source="target: torch.available",
        meaning="torch does not see the GPUs as declared: look at the driver and the devices.",
    )
    yield equal(
        "device count",
        measured.get("device_count"),
        declared.device_count,
        source="target: torch.device_count",
        meaning="Devices are missing or hidden: look at CUDA_VISIBLE_DEVICES and the devices.",
    )
    yield _python(measured, target)


def _optional(
    name: str, measured: Mapping[str, Any], key: str, expected: str | None, field: str
) -> Check:
    """Compare a value that may rightly be None: a CPU build has no CUDA."""
    found = measured.get(key)
    known = bool(measured.get("imported"))
    status = Status.UNKNOWN if not known else Status.PASS if found == expected else Status.FAIL
    return Check(
        name=name,
        status=status,
        measured=found if found is not None or not known else "none (a CPU build)",
        expected=expected or "none (a CPU build)",
        source=f"target: {field}",
        meaning=""
        if status is Status.PASS
        else "torch was built for another CUDA: run stage 10 again.",
    )


def _python(measured: Mapping[str, Any], target: Target) -> Check:
    words = str((measured.get("python") or {}).get("version") or "").split()
    short = ".".join(words[0].split(".")[:2]) if words else None
    return equal(
        "Python version",
        short,
        target.environment.python,
        source="target: environment.python",
        meaning="The environment was built with another Python: run stage 10 again.",
    )


def _devices(measured: Mapping[str, Any], target: Target) -> Iterator[Check]:
    devices = [device or {} for device in measured.get("devices") or []]
    if not devices:
        yield _unknown(
            "devices", "a matrix product and a compiled function on each", "Nothing was computed."
        )
        return
    size = int((measured.get("params") or {}).get("matmul_size") or _DEFAULT_SIZE)
    precision = measured.get("float32_matmul_precision") or "highest"
    for device in devices:
        name = device.get("device") or "a device without a name"
        if device.get("error"):
            yield _failed(
                f"{name}", device["error"], "This device does not answer: look at the driver's log."
            )
            continue
        if device.get("arch_listed") is False:
            yield _foreign_architecture(name, device, measured)
        products = [product or {} for product in device.get("matmul") or []]
        for dtype in _DTYPES:
            done = [product for product in products if product.get("dtype") == dtype]
            yield _product(name, done[0] if done else {"dtype": dtype}, size, precision)
        yield from _compiled(name, device.get("compiled"))


def _foreign_architecture(
    name: str, device: Mapping[str, Any], measured: Mapping[str, Any]
) -> Check:
    return Check(
        name=f"{name} architecture",
        status=Status.DRIFT,
        measured=device.get("arch"),
        expected=", ".join(measured.get("arch_list") or []),
        source="torch.cuda.get_arch_list()",
        meaning="This build has no code for just this GPU and runs through an older one or PTX.",
    )


def _product(name: str, product: Mapping[str, Any], size: int, precision: str) -> Check:
    dtype = str(product.get("dtype"))
    label = f"{name} product {dtype}"
    if product.get("error"):
        return _failed(
            label, product["error"], "This device cannot multiply matrices of this dtype."
        )
    eps = _PRECISION.get(precision, "float32") if dtype == "float32" else dtype
    if eps not in _EPS:
        return _unknown(label, "a right product", "Nothing is known of this product.")
    accumulator = _EPS[_ACCUMULATOR.get(eps, eps)]
    tolerance = 2 * accumulator * math.sqrt(size) + 2 * _EPS[eps]
    lowered = f"; float32 may be computed as {eps}" if dtype == "float32" and eps != dtype else ""
    return _within(label, product.get("max_relative_error"), tolerance, _RULE + lowered)


def _compiled(name: str, compiled: Mapping[str, Any] | None) -> Iterator[Check]:
    label = f"{name} compiled"
    if not compiled:
        yield _unknown(label, "a compiled function", "No function was compiled on this device.")
        return
    if compiled.get("error"):
        yield _failed(
            label, compiled["error"], "torch.compile does not work here: is there a C++ compiler?"
        )
        return
    graphs, breaks = compiled.get("graphs"), compiled.get("graph_breaks")
    if graphs is None or breaks is None:
        yield _unknown(label, "one graph", "It is not known whether anything was compiled.")
    else:
        whole = bool(compiled.get("compiled")) and breaks == 0
        yield Check(
            name=label,
            status=Status.PASS if whole else Status.FAIL,
            measured=f"{graphs} graphs, {breaks} graph breaks",
            expected="at least one graph, no graph breaks",
            source="torch's own counters",
            meaning=""
            if whole
            else "The function ran, but not compiled: training would be slow and silent.",
        )
    errors = compiled.get("max_relative_error") or {}
    tolerance = 2 * _EPS["float32"] * _ADDITIONS_IN_COMPILED
    for part in ("value", "gradient_x", "gradient_weight"):
        yield _within(
            f"{name} compiled {part.replace('_', ' ')}", errors.get(part), tolerance, _RULE
        )


def _within(name: str, error: float | None, tolerance: float, source: str) -> Check:
    if error is None:
        return _unknown(name, f"at most {tolerance:.1e}", "The result was not compared.")
    good = error <= tolerance
    return Check(
        name=name,
        status=Status.PASS if good else Status.FAIL,
        measured=error,
        expected=f"at most {tolerance:.1e} of the largest value",
        source=source,
        meaning=""
        if good
        else "This device computes wrong numbers: take it out before training goes on.",
    )


def _failed(name: str, error: object, meaning: str) -> Check:
    return Check(
        name=name,
        status=Status.FAIL,
        measured=str(error),
        expected="no error",
        source="the payload verify_torch",
        meaning=f"{meaning} {error}",
    )


def _unknown(name: str, expected: str, meaning: str) -> Check:
    return Check(name=name, status=Status.UNKNOWN, expected=expected, source=_RULE, meaning=meaning)
