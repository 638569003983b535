"""Who used the CPU between two moments: this process, others, nobody.

A throughput measured on a busy machine says nothing about training; whoever judges it needs to
know.  In a container these figures are what the kernel shows inside it. Sent along with the
payloads that need it.  Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
HEAVY_CORES = 0.1


class Sample(NamedTuple):
    """CPU seconds used until ``at_s``, by the machine and by each process."""

    at_s: float
    busy_s: float
    stolen_s: float
    processes_s: dict[int, float]
    loadavg: list[float]


class OwnUse(NamedTuple):
    """Seconds that this process's threads ran, and that they were ready and waited for a core."""

    at_s: float
    run_s: float
    wait_s: float


def own_use() -> OwnUse | None:
    """Take a sample of this process; None = the kernel keeps no account. **Changes:** nothing."""
    run_ns = wait_ns = told = 0
    for task in Path("/proc/self/task").glob("*/schedstat"):
        try:
            ran, waited, _slices = map(int, task.read_text(encoding="utf-8").split())
        except (FileNotFoundError, ProcessLookupError):
            continue  # the thread ended meanwhile
        run_ns, wait_ns, told = run_ns + ran, wait_ns + waited, told + 1
    return OwnUse(time.perf_counter(), run_ns / 1e9, wait_ns / 1e9) if told else None


def own_cores(uses: Sequence[OwnUse], begin_s: float, end_s: float) -> dict[str, float | None]:
    """Cores that were used, and waited for, on average between two moments of ``perf_counter``."""
    if len(uses) < 2:
        return {"own_cores": None, "own_wait_cores": None}
    begin, end = _at(uses, begin_s), _at(uses, end_s)
    return {
        "own_cores": round((end.run_s - begin.run_s) / (end_s - begin_s), 4),
        "own_wait_cores": round((end.wait_s - begin.wait_s) / (end_s - begin_s), 4),
    }


def _at(uses: Sequence[OwnUse], at_s: float) -> OwnUse:
    """The account at a moment between two samples."""
    after = next((i for i in range(1, len(uses)) if uses[i].at_s >= at_s), len(uses) - 1)
    one, two = uses[after - 1], uses[after]
    share = (at_s - one.at_s) / (two.at_s - one.at_s)
    return OwnUse(
        at_s,
        one.run_s + share * (two.run_s - one.run_s),
        one.wait_s + share * (two.wait_s - one.wait_s),
    )


def cpu_model() -> str | None:
    """The CPU's name as the kernel tells it. **Changes:** nothing."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^(?:model name|Hardware|CPU part)\s*:\s*(.+)$", text, re.M)
    return found.group(1) if found else None


def sample() -> Sample:
    """Take a sample now. **Changes:** nothing."""
    first = Path("/proc/stat").read_text(encoding="utf-8").splitlines()[0]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, first.split()[1:9])
    processes = {
        int(p.name): used for p in Path("/proc").glob("[0-9]*") if (used := _used_s(p)) is not None
    }
    busy = user + nice + system + irq + softirq
    return Sample(
        time.monotonic(), busy / TICKS_PER_S, steal / TICKS_PER_S, processes, list(os.getloadavg())
    )


def _used_s(process: Path) -> float | None:
    try:
        fields = (
            (process / "stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
    except (FileNotFoundError, ProcessLookupError):
        return None
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def between(before: Sample, after: Sample) -> dict[str, Any]:
    """Cores in use on average from one sample to the next; 1.0 is one core all the time."""
    seconds = after.at_s - before.at_s
    used = {
        pid: (total - before.processes_s.get(pid, 0.0)) / seconds
        for pid, total in after.processes_s.items()
    }
    own = used.pop(os.getpid(), 0.0)
    machine = (after.busy_s - before.busy_s) / seconds
    heavy = sorted((pid for pid in used if used[pid] >= HEAVY_CORES), key=lambda pid: -used[pid])[
        :5
    ]
    return {
        "cores": len(os.sched_getaffinity(0)),
        "machine_cores": round(machine, 3),
        "own_cores": round(own, 3),
        "other_cores": round(max(0.0, machine - own), 3),
        "stolen_cores": round((after.stolen_s - before.stolen_s) / seconds, 3),
        "loadavg_before": before.loadavg,
        "loadavg_after": after.loadavg,
        "heaviest_others": [
            {"pid": pid, "command": _command(pid), "cores": round(used[pid], 3)} for pid in heavy
        ],
    }


def _command(pid: int) -> str | None:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "backslashreplace")
    except (FileNotFoundError, ProcessLookupError):
        return None  # it ended meanwhile
    return words.replace("\0", " ").strip()[:300]
