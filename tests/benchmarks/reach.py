"""How fast a container behind a Proxmox host is reached, side by side with what people use
otherwise.

    python tests/benchmarks/reach.py [--repeat 10] [--ansible PATH/TO/ansible-playbook]

On the test bed of ``tests/testbed`` (root on Linux): real sshd, real LXC, a stand-in for pct that
starts faster than the real one, which favours whoever calls it often. Every round runs every
contender once; medians count. The table is printed and, with the machine's facts, written to
``results/reach.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT))

from rich.console import Console  # noqa: E402  # the path above comes first
from rich.table import Table  # noqa: E402

from helpers.reach.command import Command  # noqa: E402
from helpers.reach.deploy import File, deploy  # noqa: E402
from helpers.reach.pct import PctContainer  # noqa: E402
from helpers.reach.quoting import Meant  # noqa: E402
from helpers.reach.ssh import Host  # noqa: E402
from helpers.reach.ssh_settings import resolve  # noqa: E402
from tests.testbed import Bed, faults  # noqa: E402

VMID = 100
LARGE_BYTES = 200_000_000
SMALL_FILES, SMALL_BYTES = 200, 4_000
_VERY_SLOW_S = 60.0
RESULTS = Path(__file__).resolve().parent / "results" / "reach.json"
Contender = Callable[[], None]


@dataclass(frozen=True)
class Case:
    """One thing to do, everybody who can do it, and what is to be reached.

    Attributes:
        goals: contender -> how much longer than ours it must take at least; None = no goal.
        between: run before each contender, not timed.
    """

    name: str
    ours: str
    contenders: dict[str, Contender]
    goals: dict[str, float]
    between: Contender


@contextmanager
def ground() -> Iterator[tuple[Bed, PctContainer, Path]]:
    """A bed with one container, connected, and a folder with the files to deploy."""
    folder = Path(tempfile.mkdtemp(prefix="bed-", dir="/var/tmp"))
    bed = Bed.make(folder / "bed")
    folder.chmod(0o755)
    bed.host.put_pct_in_sbin()  # Ansible's connection calls it by that name
    bed.add_container(VMID)
    bed.start(VMID)
    host = Host(resolve("pve", config=bed.host.ssh_config))
    meant = Meant(f"ct{VMID}", "/etc/machine-id", bed.machine_id(VMID))
    container = PctContainer("bench", host, VMID, meant=meant)
    files = folder / "files"
    (files / "small").mkdir(parents=True)
    (files / "large").write_bytes(os.urandom(LARGE_BYTES))
    for number in range(SMALL_FILES):
        (files / "small" / f"{number}.py").write_bytes(os.urandom(SMALL_BYTES))
    try:
        container.run(Command(("true",), purpose="connect", changes=True))
        yield bed, container, files
    finally:
        host.close()
        bed.stop()
        shutil.rmtree(folder)


def command_case(bed: Bed, container: PctContainer) -> Case:
    """One small command."""
    config = str(bed.host.ssh_config)
    socket = str(bed.folder / "master")
    master = ["ssh", "-F", config, "-M", "-S", socket, "-f", "-N", "pve"]
    subprocess.run(master, check=True)
    line = f"pct exec {VMID} -- true"
    return Case(
        "a command",
        "ours",
        {
            "ours": lambda: _fine(container.run(Command(("true",), purpose="measure")).ok),
            "fresh ssh": lambda: _run("ssh", "-F", config, "pve", line),
            "ControlMaster": lambda: _run("ssh", "-F", config, "-S", socket, "pve", line),
        },
        {"fresh ssh": 1 / 0.3, "ControlMaster": 1.0},
        lambda: None,
    )


def large_case(bed: Bed, container: PctContainer, files: Path) -> Case:
    """One file of 200 MB; ours also hashes it at every hop, syncs it and renames it."""
    data = (files / "large").read_bytes()
    config, place = str(bed.host.ssh_config), f"{bed.folder}/on-host"
    push = f"pct push {VMID} {place} /srv/large && rm {place}"

    def by_hand() -> None:
        _run("scp", "-q", "-F", config, str(files / "large"), f"pve:{place}")
        _run("ssh", "-F", config, "pve", push)

    return Case(
        f"{LARGE_BYTES // 1_000_000} MB",
        "ours",
        {
            "ours": lambda: _deployed(container, [File("/srv/large", data)], "stream"),
            "ours, through pct push": lambda: _deployed(
                container, [File("/srv/large", data)], "push"
            ),
            "scp + pct push": by_hand,
        },
        {"scp + pct push": 0.9},
        lambda: _clean(bed),
    )


def small_case(bed: Bed, container: PctContainer, files: Path) -> Case:
    """200 small files into one folder."""
    listed = [File(f"/srv/{p.name}", p.read_bytes()) for p in (files / "small").iterdir()]
    config, place = str(bed.host.ssh_config), f"{bed.folder}/on-host"
    loop = f'for f in {place}/*; do pct push {VMID} "$f" "/srv/${{f##*/}}"; done; rm -r {place}'

    def by_hand() -> None:
        _run("scp", "-q", "-r", "-F", config, str(files / "small"), f"pve:{place}")
        _run("ssh", "-F", config, "pve", loop)

    return Case(
        f"{SMALL_FILES} files of {SMALL_BYTES // 1000} kB",
        "ours",
        {"ours": lambda: _deployed(container, listed, "stream"), "scp + pct push": by_hand},
        {"scp + pct push": 10.0},
        lambda: _clean(bed),
    )


def add_ansible(cases: list[Case], playbook: Path, bed: Bed, files: Path) -> None:
    """The same by Ansible's connection through pct, where Ansible is at hand."""
    folder = bed.folder / "ansible"
    folder.mkdir()
    variables = {
        "ansible_connection": "community.proxmox.proxmox_pct_remote",
        "ansible_host": bed.host.address,
        "ansible_port": bed.host.port,
        "ansible_user": "root",
        "ansible_ssh_private_key_file": str(bed.host.keys / "client"),
        "ansible_paramiko_host_key_checking": False,
        "ansible_python_interpreter": "/usr/bin/python3",
        "proxmox_vmid": VMID,
    }
    inventory = {"all": {"hosts": {"container": variables}}}
    (folder / "inventory.json").write_text(json.dumps(inventory))
    for case, source in zip(cases[1:], (f"{files}/large", f"{files}/small/"), strict=True):
        copy = {"ansible.builtin.copy": {"src": source, "dest": "/srv/"}}
        play = [{"hosts": "all", "gather_facts": False, "tasks": [copy]}]
        path = folder / f"{len(source)}.json"
        path.write_text(json.dumps(play))
        argv = (str(playbook), "-i", str(folder / "inventory.json"), str(path))
        case.contenders["Ansible"] = partial(_run, *argv)
    cases[2].goals["Ansible"] = 10.0


def measure(case: Case, repeat: int) -> dict[str, list[float]]:
    """Seconds of each contender; every round starts with another one, who is very slow runs once."""
    names = list(case.contenders)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(repeat):
        turn = round_ % len(names)
        for name in names[turn:] + names[:turn]:
            if taken[name] and taken[name][0] > _VERY_SLOW_S:
                continue
            case.between()
            start = time.perf_counter()
            case.contenders[name]()
            taken[name].append(time.perf_counter() - start)
    return taken


def report(case: Case, taken: dict[str, list[float]]) -> dict[str, object]:
    """Print one case and return its figures."""
    medians_s = {name: statistics.median(values) for name, values in taken.items()}
    table = Table("who", "median", "spread", "rounds", "times ours", "goal", title=case.name)
    reached = {}
    for name, median_s in medians_s.items():
        ratio = median_s / medians_s[case.ours]
        goal = case.goals.get(name)
        if goal is not None:
            reached[name] = ratio >= goal
        shown = "" if goal is None else f">= {goal:.2f}: {'yes' if reached[name] else 'NO'}"
        spread = f"{min(taken[name]):.3f} to {max(taken[name]):.3f} s"
        rounds = str(len(taken[name]))
        table.add_row(name, f"{median_s:.3f} s", spread, rounds, f"{ratio:.2f}", shown)
    Console().print(table)
    goals = {
        name: {"at_least": goal, "reached": reached[name]} for name, goal in case.goals.items()
    }
    return {"medians_s": medians_s, "seconds": taken, "times_ours_goals": goals}


def machine_facts(bed: Bed) -> dict[str, object]:
    """What the figures depend on."""
    told = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=True).stderr
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "kernel": ".".join(platform.release().split(".")[:2]),
        "python": platform.python_version(),
        "paramiko": version("paramiko"),
        "openssh": told.split(",")[0],
        "containers": bed.backend,
        "load_average": os.getloadavg(),
    }


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def _fine(ok: bool) -> None:
    if not ok:
        raise RuntimeError("the command failed")


def _deployed(container: PctContainer, files: list[File], way: str) -> None:
    done = deploy(container, files, way="push" if way == "push" else "stream")
    _fine(len(done.written) == len(files))


def _clean(bed: Bed) -> None:
    faults.inside(bed, VMID, "bash", "-c", "rm -rf /srv && mkdir /srv && sync")


def main() -> int:
    """Measure everything; exit code 1 when a goal was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--ansible", type=Path, help="an ansible-playbook with community.proxmox")
    given = parser.parse_args()
    with ground() as (bed, container, files):
        cases = [
            command_case(bed, container),
            large_case(bed, container, files),
            small_case(bed, container, files),
        ]
        if given.ansible:
            add_ansible(cases, given.ansible, bed, files)
        document: dict[str, object] = {"machine": machine_facts(bed), "repeat": given.repeat}
        missed = False
        for case in cases:
            figures = report(case, measure(case, given.repeat))
            missed = missed or not all(
                g["reached"]
                for g in figures["times_ours_goals"].values()  # type: ignore[attr-defined]
            )
            document[case.name] = figures
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(document, indent=2) + "\n")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
