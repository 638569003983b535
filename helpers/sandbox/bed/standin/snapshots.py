"""Snapshots: whole copies of the root folder here, ZFS on a real host; the same rules."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time

from .backend import Backend, Bed
from .lifecycle import end_as
from .options import Arguments, Die
from .store import Config, ConfigLock, load, save
from .worker import in_worker

_COPY = ["cp", "-a", "--reflink=auto"]


def snapshot(bed: Bed, backend: Backend, given: Arguments) -> None:
    """Take one; a running container is frozen meanwhile."""
    vmid, name = given.vmid, given.named["snapname"]
    if name in ("current", "vzdump"):
        raise Die(f"unable to use snapshot name '{name}' (reserved name)")

    def work() -> None:
        with _lock(bed, vmid):
            _begin(vmid, name, given.text("description"))
        running = backend.running(vmid)
        if running:
            backend.freeze(vmid, on=True)
        try:
            shutil.rmtree(_folder(bed, vmid, name), ignore_errors=True)
            os.makedirs(f"{bed.folder}/snapshots/{vmid}", exist_ok=True)
            copy = [*_COPY, "-x", bed.rootfs(vmid), _folder(bed, vmid, name)]
            subprocess.run(copy, check=True)
        finally:
            if running:
                backend.freeze(vmid, on=False)
        with _lock(bed, vmid):
            config = load(vmid)
            config.settings.pop("lock", None)
            config.settings["parent"] = name
            save(vmid, config)

    end_as(in_worker(work))


def _begin(vmid: str, name: str, description: str | None) -> None:
    config = load(vmid)
    config.refuse_locked()
    if name in config.snapshots:
        raise Die(f"snapshot name '{name}' already used")
    if not _possible(config):
        raise Die("snapshot feature is not available")
    taken = config.copy(without=("lock", "parent"))
    taken.settings["snaptime"] = str(int(time.time()))
    if config.get("parent"):
        taken.settings["parent"] = config.get("parent")
    if description:
        taken.settings["description"] = description
    config.snapshots[name] = taken
    config.settings["lock"] = "snapshot"
    save(vmid, config)


def _possible(config: Config) -> bool:
    """Not with a bind mount, and not on every storage."""
    mounted = any(re.match(r"mp\d+$", k) and v.startswith("/") for k, v in config.settings.items())
    return not mounted and config.get("rootfs").startswith("local-zfs:")


def delsnapshot(bed: Bed, backend: Backend, given: Arguments) -> None:
    """Remove one; those that came from it get its parent."""
    vmid, name = given.vmid, given.named["snapname"]

    def work() -> None:
        with _lock(bed, vmid):
            config = _existing(vmid, name)
            gone = config.snapshots.pop(name)
            for section in (config, *config.snapshots.values()):
                if section.get("parent") == name:
                    section.settings.pop("parent")
                    if gone.get("parent"):
                        section.settings["parent"] = gone.get("parent")
            save(vmid, config)
            shutil.rmtree(_folder(bed, vmid, name), ignore_errors=True)

    end_as(in_worker(work))


def rollback(bed: Bed, backend: Backend, given: Arguments) -> None:
    """Go back to one: a running container is killed (Config.pm:278) and left stopped."""
    vmid, name = given.vmid, given.named["snapname"]

    def work() -> None:
        with _lock(bed, vmid):
            config = _existing(vmid, name)
            if backend.running(vmid):
                backend.stop(vmid, kill=True)
            shutil.rmtree(bed.rootfs(vmid))
            subprocess.run([*_COPY, _folder(bed, vmid, name), bed.rootfs(vmid)], check=True)
            again = Config()
            again.snapshots = config.snapshots
            taken = config.snapshots[name].copy(without=("snaptime", "description", "parent"))
            again.settings, again.raw = {**taken.settings, "parent": name}, taken.raw
            save(vmid, again)
        if given.flag("start"):
            backend.start(vmid, load(vmid), bed.shape(vmid))

    end_as(in_worker(work))


def listsnapshot(bed: Bed, backend: Backend, given: Arguments) -> None:
    """The tree of snapshots, the present last."""
    config = load(given.vmid)
    sections = {name: dict(section.settings) for name, section in config.snapshots.items()}
    sections["current"] = {"parent": config.get("parent"), "description": "You are here!"}

    def taken_at(name: str) -> float:
        return float(sections[name].get("snaptime", "inf"))

    def children(parent: str | None) -> list[str]:
        names = [n for n, s in sections.items() if _parent(s, sections) == parent]
        return sorted(names, key=taken_at)

    def show(prefix: str, name: str) -> None:
        section = sections[name]
        when = taken_at(name)
        text = (section.get("description") or "no-description").splitlines()[0]
        at = "" if when == float("inf") else time.strftime("%F %T", time.localtime(when))
        print(f"{prefix} {name:<{max(30 - len(prefix), 0)}} {at:<23} {text}")
        for child in children(name):
            show(" " + prefix, child)

    for name in children(None):
        show("`->", name)


def _parent(section: dict[str, str], sections: dict[str, dict[str, str]]) -> str | None:
    parent = section.get("parent")
    return parent if parent in sections else None


def _existing(vmid: str, name: str) -> Config:
    config = load(vmid)
    if name not in config.snapshots:
        raise Die(f"snapshot '{name}' does not exist")
    config.refuse_locked()
    return config


def _folder(bed: Bed, vmid: str, name: str) -> str:
    return f"{bed.folder}/snapshots/{vmid}/{name}"


def _lock(bed: Bed, vmid: str) -> ConfigLock:
    return ConfigLock(f"{bed.folder}/run/lock/lxc", vmid, bed.lock_timeout_s)
