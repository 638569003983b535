"""A healthy training environment, made by the very rooms that will have to bring it back later.

The container's folder starts empty; stage 10's room builds the environment, stage 20's deploys the
scripts, stage 40's warms the compile cache, and each one's judge must agree before anything is
broken. This room must not know how things are broken.
"""

from __future__ import annotations

import posixpath
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from helpers.errors import VerificationFailed
from helpers.judge import environment as environment_judge
from helpers.judge import sources as sources_judge
from helpers.judge import warm_cache as warm_cache_judge
from helpers.reach.command import Command
from helpers.recover import baseline, benchmark, environment, sources, warm_cache
from helpers.recover.work import Json, Room
from helpers.sandbox import kept, thread_race
from helpers.sandbox.making import How, Making
from helpers.sandbox.training import train_for_a_moment
from helpers.target import Target
from helpers.verdict import Verdict

Judge = Callable[[Mapping[str, Any], Target], Verdict]

# Other programs' share of the cores above which a measurement is no measure of this machine.
_BUSY_SHARE = 0.25


def lay_out(making: Making) -> None:
    """Make the container's folders and the marker by which it is known.

    **Runs on:** container. **Changes:** the container's folder.
    """
    target, container = making.target, making.work.container
    with making.step("container", "an empty container") as outcome:
        paths = (
            posixpath.dirname(target.identity.marker_file),
            posixpath.dirname(target.training.log),
            posixpath.dirname(target.cache.directory),
            target.sources.deploy_to,
            posixpath.dirname(target.environment.venv),
        )
        container.check(
            Command(
                ("mkdir", "-p", "--", *paths), purpose="make the container's folders", changes=True
            ),
            hint="Check permissions and space where the sandbox is to be.",
        )
        marker = target.identity.marker.encode() + b"\n"
        if container.read(target.identity.marker_file) != marker:  # behind a host it has one
            container.push(marker, target.identity.marker_file, mode="0444")
        outcome.detail = f"known by {target.identity.marker_file}"


def build_environment(making: Making) -> None:
    """Build the environment with the declared packages.

    **Runs on:** container. **Changes:** the environment; uv's cache.
    """
    declared = making.target.environment
    with making.step(
        "environment", f"Python {declared.python} with {', '.join(declared.packages)}"
    ) as outcome:
        measured = _through(making, environment, environment_judge.judge)
        venv: Any = measured["venv"]
        installed: Any = measured["install"]
        size = f"{len(venv['packages'])} packages, {venv['bytes'] / 2**20:.0f} MiB"
        outcome.how, came_from = _where_from(installed["install"])
        outcome.detail = f"{size}, {came_from}"


def _where_from(install: Mapping[str, Any]) -> tuple[How, str]:
    """Whether uv had everything unpacked in its cache, and what it fetched otherwise."""
    if not any(line.startswith("Prepared ") for line in install["lines"]):
        return "reused", "all linked from uv's cache"
    fetched = install["downloaded_bytes"]
    return (
        "made",
        f"{fetched / 2**20:.0f} MiB downloaded" if fetched else "from this machine's disk",
    )


def deploy_scripts(making: Making) -> None:
    """Deploy the committed scripts.

    **Runs on:** container. **Changes:** the deploy folder.
    """
    with making.step("scripts", f"from {making.target.sources.ref} of the repository") as outcome:
        measured = _through(making, sources, sources_judge.judge)
        outcome.detail = (
            f"{len(making.target.sources.files)} files of {str(measured['commit'])[:12]}"
        )


def fill_cache(making: Making) -> None:
    """Fill the compile cache, or take the kept one, where its own record says that it fits.

    **Runs on:** container. **Changes:** the compile cache; what is kept.
    """
    work, cache = making.work, making.outside(making.target.cache.directory)
    with making.step("compile cache", "every role, device and shape, by one thread") as outcome:
        if kept.restore_cache(making.folder, cache):
            if not warm_cache.plan(work, warm_cache.look(work)).changes:
                outcome.how = "reused"
                outcome.detail = f"kept from an earlier sandbox here: {_size(cache)}"
                return
            shutil.rmtree(cache)  # a copy: stage 40 sets aside what people made, not this
        measured = _through(making, warm_cache, warm_cache_judge.judge)
        kept.keep_cache(making.folder, cache)
        steps: Any = measured["first_steps"]
        seconds = " → ".join(
            f"{sum(s[name] or 0.0 for s in steps):.1f}" for name in ("cold_s", "warm_s")
        )
        outcome.detail = f"{_size(cache)}; first steps {seconds} s; proven by a second process"


def measure_baseline(making: Making, *, races: bool = False) -> str:
    """Measure what training reaches while healthy, or take the measurement that was kept.

    **Runs on:** container. **Changes:** the baselines' folder; what is kept.

    Args:
        making: the sandbox on its way.
        races: training's own start does not get that far; it is measured warmed by one thread.

    Returns:
        The baseline's key.
    """
    work, folder = making.work, Path(making.target.benchmark.baselines)
    with making.step(
        "baseline", f"{making.target.benchmark.seconds:.0f} s of training, counted"
    ) as outcome:
        kept.restore_baselines(making.folder, folder)
        expected: Any = benchmark.look(work)["expected"]
        if expected is not None and expected["key"] is not None:
            outcome.how = "reused"
            outcome.detail = (
                f"{expected['tok_per_s']:.0f} tok/s, measured here at {expected['recorded_at']}"
            )
            return str(expected["key"])
        target = thread_race.warmed_first(making.target) if races else making.target
        found = baseline.measure_baseline(work.container, target, work.say, source="a new sandbox")
        path = baseline.store(found, folder)
        outcome.detail = f"{found.tok_per_s:.0f} tok/s on {found.device}, torch {found.torch_build}"
        load: Any = found.measured.get("load") or {}
        busy = (load.get("other_cores") or 0.0) / max(load.get("cores") or 1, 1)
        # Samples that could be corrected for other work say what a quiet machine would have said.
        if busy > _BUSY_SHARE and not found.measured.get("free_cores"):
            outcome.detail += (
                f"; not kept for later: other programs used {busy:.0%} of the cores meanwhile"
            )
        else:
            kept.keep_baseline(making.folder, path)
        return found.key


def train(making: Making, baseline_key: str, *, goes_on: bool) -> None:
    """Let training run for a moment, or take the log of the moment that was kept with the baseline.

    **Runs on:** container. **Changes:** the training log; what is kept.

    Args:
        making: the sandbox on its way.
        baseline_key: names the state that the log tells of.
        goes_on: whether training will write to this log again: a log that ends with kept lines
            would say of this environment what was true of an earlier one.
    """
    work, log = making.work, making.target.training.log
    with making.step("healthy training", "a moment of it, for its log") as outcome:
        earlier = kept.training_log(making.folder, baseline_key) if goes_on else None
        if earlier is not None:
            work.container.push(earlier, log)
            outcome.how = "reused"
            outcome.detail = f"{len(earlier.splitlines())} lines, kept with the baseline"
            return
        outcome.detail = str(train_for_a_moment(work, "healthy"))
        kept.keep_training_log(making.folder, baseline_key, work.container.read(log) or b"")


def _through(making: Making, room: Room, judge: Judge) -> Json:
    """Let a stage's room do its work here, and have its judge agree."""
    work = making.work
    facts = room.look(work)
    plan = room.plan(work, facts)
    measured = room.apply(work, facts, plan)
    evidence = {
        "facts": facts,
        "plan": plan.model_dump(mode="json"),
        "measured": measured,
        "applied": True,
    }
    found = judge(evidence, making.target)
    if not found.status.good:
        bad = found.deciding
        said = (
            f"{bad.name}: {bad.measured} (expected: {bad.expected}). {bad.meaning}"
            if bad
            else "nothing measured"
        )
        raise VerificationFailed(
            f"The sandbox did not become healthy in {plan.stage}; {said}",
            verdict=found,
            hint="Mend what the check names, then create the sandbox again: it replaces this one.",
        )
    return measured


def _size(folder: Path) -> str:
    files = [p.stat().st_size for p in folder.rglob("*") if p.is_file()]
    return f"{len(files)} files, {sum(files) / 2**20:.1f} MiB"
