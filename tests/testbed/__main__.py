"""``python -m tests.testbed up|down [FOLDER]``: a bed that stays until it is taken down."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from helpers.sandbox.bed.bed import Bed, default_folder
from helpers.sandbox.bed.host import missing_tools


def main() -> int:
    """Make and start a bed with container 100, or stop one; prints one JSON line."""
    parser = argparse.ArgumentParser(prog="python -m tests.testbed", description=__doc__)
    parser.add_argument("what", choices=["up", "down"])
    parser.add_argument("folder", type=Path, nargs="?", default=default_folder())
    parser.add_argument("--backend", choices=["lxc", "namespaces"])
    parser.add_argument("--unprivileged", action="store_true")
    given = parser.parse_args()
    if lacking := missing_tools():
        print(f"This machine lacks: {', '.join(lacking)}.", file=sys.stderr)
        return 1
    if given.what == "down":
        Bed(given.folder).stop()
        return 0
    bed = Bed.make(given.folder, backend=given.backend)
    bed.add_container(100, unprivileged=given.unprivileged)
    bed.start(100)
    shown = {"ssh_config": str(bed.host.ssh_config), "host": "pve", "vmid": 100}
    print(json.dumps({**shown, "hostname": "ct100", "machine_id": bed.machine_id(100)}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
