"""What is wrong with a training environment, said from preflight's facts.

Symptoms are findings for people: they stop nothing, for the next stages repair what they name.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from helpers.judge import packages
from helpers.judge.reading import at, holds, items, none_of, number, text
from helpers.target import Target
from helpers.verdict import Check, Status

# A single slow step is no symptom: the median of the last values is taken.
_LAST_VALUES = 10


def symptoms(facts: Mapping[str, Any], target: Target) -> list[Check]:
    """Name what is wrong. In a healthy environment every one of them passes.

    **Runs on:** operator. **Changes:** nothing.
    """
    return [
        _runs(facts),
        packages.forbidden(at(facts, "venv", "packages"), target.environment),
        _versions(facts, target),
        _extra(facts),
        _scripts(facts),
        _guards(facts),
        _cache(facts),
        _throughput(facts, target),
        _errors_in_log(facts),
    ]


def _runs(facts: object) -> Check:
    venv = at(facts, "venv")
    there, error = at(venv, "exists"), text(venv, "python", "error")
    version = text(venv, "python", "version")
    return holds(
        "environment there and running",
        False if there is False or error else None if version is None else True,
        measured="there is none" if there is False else error or version,
        expected="its Python starts",
        source="environment.venv in the target",
        meaning="Training cannot start at all.",
    )


def _versions(facts: object, target: Target) -> Check:
    installed = packages.versions(at(facts, "venv", "packages"))
    checks = packages.declared(at(facts, "venv", "packages"), target.environment)
    wrong = [
        f"{check.name.removeprefix('package ')}: {check.measured} (declared: {check.expected})"
        for check in checks
        if check.status is Status.FAIL
    ]
    return none_of(
        "declared versions",
        None if installed is None else wrong,
        expected=", ".join(target.environment.packages),
        source="environment.packages in the target",
        meaning="Versions have drifted: another torch or numpy was pulled in, or one is gone.",
    )


def _extra(facts: object) -> Check:
    return none_of(
        "nothing beyond the declared",
        at(facts, "packages", "comparison", "extra"),
        expected="the declared packages and what they need",
        source="environment.packages in the target, and the packages' own metadata",
        meaning="Something was installed that no declared package needs.",
        otherwise=Status.DEGRADED,
    )


def _scripts(facts: object) -> Check:
    committed = {
        text(f, "path"): text(f, "sha256") for f in items(at(facts, "repository", "files")) or []
    }
    deployed = items(at(facts, "scripts", "files"))
    wrong = [
        f"{at(f, 'path')}: {'differs' if at(f, 'exists') else 'missing'}"
        for f in deployed or []
        if text(f, "path") in committed and text(f, "sha256") != committed[text(f, "path")]
    ]
    return none_of(
        "scripts as committed",
        None if deployed is None or not committed else wrong,
        expected=f"the files of commit {str(at(facts, 'repository', 'commit'))[:12]}",
        source="the git object at the declared ref",
        meaning="What runs is not what was committed. Stage 20 shows the difference.",
    )


def _guards(facts: object) -> Check:
    deployed, beside = (
        items(at(facts, "scripts", "files")),
        items(at(facts, "scripts", "undeclared")),
    )
    lines = [
        f"{at(f, 'path')}:{at(hit, 'line')}: {at(hit, 'text')}"
        for f in [*(deployed or []), *(beside or [])]
        for hit in items(at(f, "tampering")) or []
    ]
    return none_of(
        "torch's guards left alone",
        None if deployed is None else lines,
        expected="no script overrides torch's tracing checks",
        source="rule: a muted check turns a crash into a silent crawl",
        meaning="Somebody silenced the check that reports the compile race. Threads fall back to"
        " eager code: several times slower, and far more memory.",
    )


def _cache(facts: object) -> Check:
    cache = at(facts, "cache")
    scripts = items(at(facts, "scripts", "files")) or []
    changed = max(filter(None, (text(f, "mtime") for f in scripts)), default=None)
    newest, size_bytes = text(cache, "newest"), number(cache, "bytes") or 0
    size = f"{at(cache, 'files')} files, {size_bytes / 1024**2:.1f} MiB"
    known = number(cache, "files") is not None
    right, found, meaning, otherwise = True, size, "", Status.DEGRADED
    if at(cache, "exists") is False or at(cache, "files") == 0:
        right, found, otherwise = False, "none", Status.FAIL
        meaning = "Cold: every thread compiles at its first step, all of them at once."
    elif not at(cache, "kinds", "fxgraph", "files"):
        right, found = False, f"{size}, no compiled graphs in it"
        meaning = "Partial: what is missing is compiled at the first step."
    elif newest and changed and newest < changed:
        right, found = False, f"{size}, older than the scripts"
        meaning = "Made by other scripts: what has changed is compiled at the first step."
    return holds(
        "compile cache warm",
        right if known else None,
        measured=found if known else None,
        expected="compiled graphs, newer than the scripts",
        source="cache.directory in the target",
        meaning=meaning if known else "It was not looked at.",
        otherwise=otherwise,
    )


def _throughput(facts: object, target: Target) -> Check:
    """The last throughput in the log as a ratio of the baseline, or of the log's own best."""
    logged = items(at(facts, "training_log", "tok_per_s")) or []
    values = [value for value in map(number, logged) if value is not None]
    written, made = text(facts, "training_log", "mtime"), text(facts, "packages", "created_at")
    before = bool(written and made and written < made)
    baselines = items(at(facts, "baselines")) or []
    # What a log says is what the clock saw; a baseline's other number is corrected for other work.
    seen = (number(b, "as_measured_tok_per_s") or number(b, "tok_per_s") for b in baselines)
    known = [rate for rate in seen if rate]
    if known:
        reference, source = known[-1], "the baseline of this device"
    else:
        reference, source = max(values, default=0), "the training log's best: there is no baseline"
    last = statistics.median(values[-_LAST_VALUES:]) if values else None
    ratio = None if last is None or not reference or before else last / reference
    if ratio is not None:
        meaning = "Training crawls."
    elif before:
        meaning = "The log is older than the environment: it says nothing about this one."
    else:
        meaning = "Training has not written any throughput yet."
    rule = target.benchmark
    return holds(
        "training throughput",
        None if ratio is None else ratio >= rule.tolerance_ratio,
        measured=None if ratio is None else f"{last:.0f} tok/s: {ratio:.0%} of {reference:.0f}",
        expected=f"at least {rule.tolerance_ratio:.0%} of what it is compared with",
        source=source,
        meaning=meaning,
        otherwise=Status.FAIL if (ratio or 0) < rule.failed_ratio else Status.DEGRADED,
    )


def _errors_in_log(facts: object) -> Check:
    log = at(facts, "training_log")
    return none_of(
        "no errors in the training log",
        [] if at(log, "exists") is False else at(log, "error_lines"),
        expected="no line with an error",
        source="the training log",
        meaning="The last errors that training reported.",
    )
