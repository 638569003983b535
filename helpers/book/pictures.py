"""What is worth looking at in each stage: which of its facts, which table, which plot.

Pure choices over evidence; what is not there is shown as not measured. This room must not know how
anything was found.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import JsonValue

from helpers.book import panel
from helpers.book.diff import diff_view
from helpers.book.view import View
from helpers.errors import ParameterError
from helpers.judge.starts import classify
from helpers.judge.threads import THREE_LINES
from helpers.record.measured import first_steps_plot, throughput_plot
from helpers.record.reading import read_run
from helpers.record.run_folder import RunFolder

Evidence = Mapping[str, Any]


def facts(stage: str, evidence: Evidence) -> View:
    """The facts of a stage that a reader wants first. **Changes:** nothing."""
    found = evidence["facts"]
    chosen = _FACTS[stage](found) if stage in _FACTS else found
    return panel.facts_view("What was found", chosen)


def measured(stage: str, evidence: Evidence) -> View:
    """What a stage did and measured, in a few lines. **Changes:** nothing."""
    found = evidence["measured"] or {}
    chosen = _MEASURED[stage](found) if stage in _MEASURED else found
    done = len((evidence["plan"] or {}).get("changes", []))
    said = f"{done} change{'s' * (done != 1)} made" if done else "Measured; nothing was changed"
    return panel.facts_view(said, chosen)


def show(stage: str, picture: str, evidence: Evidence, folder: RunFolder) -> View:
    """One thing of a stage by name. **Changes:** nothing.

    Raises:
        ParameterError: the stage has no such picture; the nearest name is in the hint.
    """
    known = _PICTURES.get(stage, {})
    if picture not in known:
        near = difflib.get_close_matches(picture, known, n=1)
        hint = f"Did you mean {near[0]}?" if near else f"There are: {', '.join(known) or 'none'}."
        raise ParameterError(f"Stage {stage} has no picture called {picture!r}.", hint=hint)
    return known[picture](evidence, folder)


def _at(value: Any, *path: str | int) -> Any:
    """A value deep inside JSON; None when any part of the path is not there."""
    for part in path:
        try:
            value = value[part]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _preflight_facts(found: Any) -> dict[str, Any]:
    log = _at(found, "training_log", "tok_per_s") or []
    return {
        "identity marker": _at(found, "machine", "marker"),
        "host name": _at(found, "machine", "hostname"),
        "processor": _at(found, "machine", "cpu_model"),
        "cores": _at(found, "machine", "cores"),
        "free disk (bytes)": _at(found, "machine", "disk", 0, "free_bytes"),
        "environment": _at(found, "venv", "path"),
        "packages in it": len(_at(found, "venv", "packages") or []),
        "compile cache (files)": _at(found, "cache", "files"),
        "compile cache (bytes)": _at(found, "cache", "bytes"),
        "last throughput in the log (tok/s)": log[-1] if log else None,
    }


def _environment_facts(found: Any) -> dict[str, Any]:
    return {
        "environment": _at(found, "venv", "path"),
        "its Python": _at(found, "venv", "python", "version"),
        "packages": len(_at(found, "venv", "packages") or []),
        "size (bytes)": _at(found, "venv", "bytes"),
        "python3 -m venv would work": _at(found, "venv_module", "works"),
        "because": _at(found, "venv_module", "why"),
        "uv": _at(found, "uv", "path"),
        "processes running from it": len(_at(found, "venv", "processes") or []),
        "rebuild because": _at(found, "rebuild_because"),
        "set aside, not to the end": [
            _at(one, "path") for one in _at(found, "venv", "unfinished") or []
        ],
    }


def _environment_measured(found: Any) -> dict[str, Any]:
    return {
        "packages now": len(_at(found, "venv", "packages") or []),
        "torch came from": _at(found, "install", "torch_file"),
        "old environment": _at(found, "old", "path"),
    }


def _sources_facts(found: Any) -> dict[str, Any]:
    return {
        "repository": _at(found, "repository"),
        "ref": _at(found, "ref"),
        "commit": _at(found, "commit"),
        "committed on": _at(found, "author_date"),
        "uncommitted, not used": _at(found, "dirty_files"),
    }


def _sources_measured(found: Any) -> dict[str, Any]:
    return {"commit": _at(found, "commit"), "replaced": _at(found, "replaced")}


def _warm_cache_measured(found: Any) -> dict[str, Any]:
    counters = _at(found, "prove", "totals", "counters")
    return {
        "found in the cache by the second process": _at(counters, "fxgraph_cache_hit"),
        "missed by it": _at(counters, "fxgraph_cache_miss"),
        "graph breaks": _at(counters, "graph_breaks"),
        "cache (files)": _at(found, "prove", "totals", "cache_after", "files"),
        "cache (bytes)": _at(found, "prove", "totals", "cache_after", "bytes"),
    }


def _threads_measured(found: Any) -> dict[str, Any]:
    bare, warmed = _at(found, "bare") or [], _at(found, "prewarmed") or []
    return {
        "processes started as training does": len(bare),
        "processes warmed by one thread first": len(warmed),
        "threads in each": len(_at(bare, 0, "threads") or []),
        "torch": _at(bare, 0, "torch", "version"),
        "compared with the serial run of": _at(found, "serial_from"),
        "longest a start may take (s)": _at(found, "deadline_s"),
    }


def _benchmark_facts(found: Any) -> dict[str, Any]:
    return {
        "baseline_tok_per_s": _at(found, "expected", "tok_per_s"),
        "measured on": _at(found, "expected", "recorded_at"),
        "device": _at(found, "device"),
        "torch": _at(found, "torch"),
    }


def _benchmark_measured(found: Any) -> dict[str, Any]:
    return {
        "as_measured_tok_per_s": _at(found, "tok_per_s"),
        "window_s": _at(found, "window_s"),
        "threads": len(_at(found, "threads") or []),
        "cores taken by other programs": _at(found, "load", "other_cores"),
        "corrected for them": bool(_at(found, "free_cores")),
        "compilations in the window": _at(found, "compile", "window", "compilations"),
    }


def _packages(evidence: Evidence, folder: RunFolder) -> View:
    before = _versions(_at(evidence, "facts", "venv", "packages"))
    after = _versions(_at(evidence, "measured", "venv", "packages"))
    rows: list[list[JsonValue]] = []
    for name in sorted(before.keys() | after.keys()):
        now = after.get(name, "gone") if after else "as before"
        if now != before.get(name) or not after:
            rows.append([name, before.get(name, "not there"), now])
    title = "Packages that differ" if after else "Packages"
    return panel.table_view(title, ["package", "before", "now"], rows)


def _versions(packages: Any) -> dict[str, str]:
    return {str(p["name"]): str(p["version"]) for p in packages or []}


def _diff(evidence: Evidence, folder: RunFolder) -> View:
    kept = sorted((folder.path / "evidence").glob("20_sources.*.diff"))
    text = "\n".join(path.read_text(encoding="utf-8") for path in kept)
    if not text.strip():
        return panel.note_view("Nothing: the deployed files are the committed ones.")
    return diff_view("Deployed → committed", text)


def _devices(evidence: Evidence, folder: RunFolder) -> View:
    rows: list[list[JsonValue]] = []
    for device in _at(evidence, "measured", "devices") or []:
        name = f"{device['device']} ({device['name']})"
        for product in device["matmul"] or []:
            error = product["max_relative_error"]
            rows.append([name, f"matrix product, {product['dtype']}", error, product["seconds"]])
        compiled = device["compiled"] or {}
        for part, error in (compiled.get("max_relative_error") or {}).items():
            rows.append([name, f"compiled function, {part}", error, compiled.get("compile_s")])
    if not rows:
        return panel.note_view("Nothing was computed on any device.")
    return panel.table_view(
        "Computed against float64", ["device", "what", "largest relative error", "seconds"], rows
    )


def _cold_vs_warm(evidence: Evidence, folder: RunFolder) -> View:
    from helpers.book.plots import first_steps_view  # loads matplotlib

    picture = first_steps_plot(read_run(folder))
    return first_steps_view(picture) if picture else panel.note_view("No first step was measured.")


def _starts(evidence: Evidence, folder: RunFolder) -> View:
    measured = evidence["measured"] or {}
    rows: list[list[JsonValue]] = []
    for how, said in (("bare", "as training does"), ("prewarmed", "warmed first")):
        for number, start in enumerate(_at(measured, how) or [], 1):
            kind, why = classify(start, _at(measured, "serial"))
            looks, up = (_at(start, "tracing", part) for part in ("looks", "up"))
            traced = f"{up / looks:.0%}" if looks else None
            seconds, rate = _at(start, "first_steps_s"), _at(start, "tok_per_s")
            rows.append([f"{said}, {number}", kind, seconds, rate, traced, why or "–"])
    if not rows:
        return panel.note_view("Nothing was started.")
    titles = ["start", "what became of it", "first steps (s)", "tok/s", "traced meanwhile", "why"]
    return panel.table_view("Every process", titles, rows)


def _remedy(evidence: Evidence, folder: RunFolder) -> View:
    if not _at(evidence, "measured", "prewarmed"):
        return panel.note_view("The remedy was not needed.")
    lines: list[list[JsonValue]] = [[line] for line in THREE_LINES]
    return panel.table_view(
        "Beside helpers/payloads/prewarm.py, before the threads start", ["three lines"], lines
    )


def _throughput(evidence: Evidence, folder: RunFolder) -> View:
    from helpers.book.plots import throughput_view  # loads matplotlib

    picture = throughput_plot(read_run(folder))
    return throughput_view(picture) if picture else panel.note_view("No throughput was measured.")


_FACTS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "00_preflight": _preflight_facts,
    "10_environment": _environment_facts,
    "20_sources": _sources_facts,
    "60_benchmark": _benchmark_facts,
}
_MEASURED: dict[str, Callable[[Any], dict[str, Any]]] = {
    "10_environment": _environment_measured,
    "20_sources": _sources_measured,
    "40_warm_cache": _warm_cache_measured,
    "50_threads": _threads_measured,
    "60_benchmark": _benchmark_measured,
}
_PICTURES: dict[str, dict[str, Callable[[Evidence, RunFolder], View]]] = {
    "10_environment": {"packages": _packages},
    "20_sources": {"diff": _diff},
    "30_verify_torch": {"devices": _devices},
    "40_warm_cache": {"cold_vs_warm": _cold_vs_warm},
    "50_threads": {"starts": _starts, "remedy": _remedy},
    "60_benchmark": {"throughput": _throughput},
}
