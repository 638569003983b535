"""Subcommands that look at a container or change its state."""

from __future__ import annotations

import sys

from .backend import Backend, Bed
from .options import Arguments, Die
from .store import ConfigLock, load, save, vmids
from .worker import in_worker


def status(bed: Bed, backend: Backend, given: Arguments) -> None:
    """``running`` or ``stopped``; a lock only with --verbose."""
    vmid = given.vmid
    config = load(vmid)
    state = "running" if backend.running(vmid) else "stopped"
    if not given.flag("verbose"):
        print(f"status: {state}")
        return
    shown: dict[str, object] = dict.fromkeys(
        ("disk", "diskread", "diskwrite", "mem", "netin", "netout", "swap", "uptime"), 0
    )
    shown.update(
        cpus=config.get("cores", "1"),
        maxdisk=8 << 30,
        maxmem=int(config.get("memory", "512")) << 20,
        maxswap=int(config.get("swap", "0")) << 20,
        name=config.hostname,
        status=state,
        type="lxc",
        vmid=vmid,
    )
    if state == "running":
        shown["pid"] = backend.pid(vmid)
    if config.get("lock"):
        shown["lock"] = config.get("lock")
    for name in sorted(shown):
        print(f"{name}: {shown[name]}")


def show_list(bed: Bed, backend: Backend, given: Arguments) -> None:
    """The containers of this node; nothing at all when there is none."""
    found = vmids()
    row = "%-10s %-10s %-12s %-20s"
    if found:
        print(row % ("VMID", "Status", "Lock", "Name"))
    for vmid in found:
        config = load(vmid)
        state = "running" if backend.running(vmid) else "stopped"
        print(row % (vmid, state, config.get("lock"), config.hostname))


def show_config(bed: Bed, backend: Backend, given: Arguments) -> None:
    """A section of the configuration file."""
    config = load(given.vmid)
    name = given.text("snapshot")
    if name and name not in config.snapshots:
        raise Die(f"snapshot '{name}' does not exist")
    print((config.snapshots[name] if name else config).text(), end="")


def start(bed: Bed, backend: Backend, given: Arguments) -> None:
    """Start it unless a lock forbids that."""
    vmid = given.vmid
    if backend.running(vmid):
        raise Die(f"CT {vmid} already running")

    def work() -> None:
        with _lock(bed, vmid):
            config = load(vmid)
            if not given.flag("skiplock") and config.get("lock") != "mounted":
                config.refuse_locked()
            backend.start(vmid, config, bed.shape(vmid))

    end_as(in_worker(work))


def stop(bed: Bed, backend: Backend, given: Arguments) -> None:
    """Kill it unless a lock forbids that."""
    _stop(bed, backend, given, kill=True)


def shutdown(bed: Bed, backend: Backend, given: Arguments) -> None:
    """Ask it to end."""
    _stop(bed, backend, given, kill=given.flag("forceStop"))


def _stop(bed: Bed, backend: Backend, given: Arguments, *, kill: bool) -> None:
    vmid = given.vmid
    if not backend.running(vmid):
        raise Die(f"CT {vmid} not running")

    def work() -> None:
        with _lock(bed, vmid):
            if not given.flag("skiplock"):
                load(vmid).refuse_locked()
            if backend.stop(vmid, kill=kill, timeout_s=float(given.text("timeout") or 60)):
                raise Die("command 'lxc-stop' failed")

    end_as(in_worker(work))


def reboot(bed: Bed, backend: Backend, given: Arguments) -> None:
    """Stop it and start it again."""
    vmid = given.vmid
    if not backend.running(vmid):
        raise Die(f"VM {vmid} not running")

    def work() -> None:
        backend.stop(vmid, kill=True)
        backend.start(vmid, load(vmid), bed.shape(vmid))

    end_as(in_worker(work))


def unlock(bed: Bed, backend: Backend, given: Arguments) -> None:
    """Take a lock away, whoever holds it."""
    with _lock(bed, given.vmid):
        config = load(given.vmid)
        if not config.settings.pop("lock", None):
            raise Die("no lock found trying to remove anylock")
        save(given.vmid, config)


def _lock(bed: Bed, vmid: str) -> ConfigLock:
    return ConfigLock(f"{bed.folder}/run/lock/lxc", vmid, bed.lock_timeout_s)


def end_as(fine: bool) -> None:
    """A task's end decides the exit code, its message has been printed."""
    sys.exit(0 if fine else 255)
