"""A sandbox whose container lies behind a host: made on a bed of this machine, for trying that way.

The bed is a stand-in for a Proxmox host and not one; what runs on it is real: sshd, LXC, and in the
container everything that a sandbox has. This room must not know how an environment is built or
broken.
"""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import uv
import yaml

from helpers.errors import ParameterError, PreconditionFailed
from helpers.recover.container_lock import container_key, hold
from helpers.sandbox.bed.bed import Bed
from helpers.sandbox.bed.host import NODE, missing_tools
from helpers.sandbox.folder import SandboxFolder
from helpers.sandbox.users import refuse_while_occupied
from helpers.target import DEFAULT_SANDBOX_ROOT, load_target

DEFAULT_ROOT = DEFAULT_SANDBOX_ROOT.with_name("sandbox-pct")
VMID = 100
# LXC names a socket by the container's folder, and Linux limits that name to 107 bytes.
_LONGEST_ROOT = 70
_UV_CACHE = "/root/.cache/uv"
_PIP_CONF = Path("root/.config/pip/pip.conf")
_NETWORK = ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "ssl_cert_file")


def refuse_without_means() -> None:
    """Refuse where no bed can be made, and name all that is missing.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        PreconditionFailed: a program, or the right to use it, is missing.
    """
    if lacking := missing_tools():
        raise PreconditionFailed(
            f"A container behind a host cannot be made here; missing: {', '.join(lacking)}.",
            hint="On Debian, as root: apt-get install openssh-server lxc iproute2 procps. Without the "
            "remote way: recover sandbox create",
        )


def refuse_a_long_path(root: Path) -> None:
    """Refuse a folder in which LXC could not start. **Runs on:** operator. **Changes:** nothing.

    Raises:
        ParameterError: its path is too long.
    """
    if len(str(root)) > _LONGEST_ROOT:
        raise ParameterError(
            f"The path {root} is too long: LXC takes at most {_LONGEST_ROOT} characters.",
            hint="Give a shorter one with --root.",
        )


def make_bed(folder: SandboxFolder) -> Bed:
    """Make and start a host with one container.

    Packages get in as they would on this machine: the settings of its pip go into the container's,
    files that they name are copied and folders shown read-only, and it shares uv's cache and the
    network.

    **Runs on:** operator. **Changes:** the folder ``bed``; sshd on loopback and a container run.
    """
    bed = Bed.make(folder.bed)
    settings = _pip_settings(os.environ)
    cache = _uv_cache()
    cache.mkdir(parents=True, exist_ok=True)
    named = sorted(set(_local_sources(settings)))
    shown = [(str(cache), _UV_CACHE, "rw")]
    shown += [(str(path), str(path), "ro") for path in named if path.is_dir()]
    bed.add_container(VMID, binds=shown)
    for path in named:
        if path.is_file():  # constraints, certificates
            copy = outside(folder, str(path))
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    conf = bed.rootfs(VMID) / _PIP_CONF
    conf.parent.mkdir(parents=True)
    with conf.open("w", encoding="utf-8") as file:
        conf.chmod(0o600)  # an index may be named with its password
        settings.write(file)
    try:
        bed.start(VMID)
    except RuntimeError as error:
        raise PreconditionFailed(
            f"The bed does not start: {error}",
            hint=f"Look at the logs in {folder.bed / 'log'}, mend that, and create the sandbox again.",
            changed="yes",
        ) from error
    return bed


def refuse_while_used(folder: SandboxFolder) -> None:
    """Refuse when anything runs in the container. **Runs on:** operator. **Changes:** nothing.

    Raises:
        PreconditionFailed: something does.
    """
    refuse_while_occupied(Bed(folder.bed), VMID)


def outside(folder: SandboxFolder, path: str) -> Path:
    """Where a path of the container lies on this machine. **Changes:** nothing."""
    return Bed(folder.bed).rootfs(VMID) / path.lstrip("/")


def stop_bed(folder: SandboxFolder) -> None:
    """End the container and the host. **Runs on:** operator. **Changes:** they do not run any more.

    Raises:
        PreconditionFailed: a run is at work on it, or the container does not end; its files must not
            be removed under it.
    """
    if not (folder.bed / "sshd_config").exists():
        return
    with _alone(folder):
        _stop(Bed(folder.bed))


@contextmanager
def _alone(folder: SandboxFolder) -> Iterator[None]:
    """Hold the container's lock, as a run does; without a target that can be read there are no runs."""
    try:
        target = load_target(str(folder.target_file))
    except ParameterError:
        yield
        return
    with hold(container_key(target), name=target.name, run_id=None):
        yield


def _stop(bed: Bed) -> None:
    if not bed.host.running:  # what it ran may still be there: only it can say so
        bed.host.start()
    bed.stop()
    if bed.processes(VMID):
        raise PreconditionFailed(
            f"Container {VMID} of {bed.folder} does not end.",
            hint="Look at it with lxc-ls and lxc-stop; nothing of it was removed.",
        )


def declared_for(template: Mapping[str, Any], folder: SandboxFolder, bed: Bed) -> dict[str, Any]:
    """A sandbox's target file, for the container of a bed. **Changes:** nothing.

    Args:
        template: the target file of the sandbox in a folder.
        folder: where the sandbox is.
        bed: its host and container.
    """
    # What lies in the container loses the folder before it; the rest lies on this machine.
    text = yaml.safe_dump(dict(template), sort_keys=False, allow_unicode=True)
    text = text.replace("{root}/container", "").replace("{root}", str(folder.root))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    declared: dict[str, Any] = yaml.safe_load(text.replace("{python}", version))
    return {
        **declared,
        "name": "sandbox-pct",
        "description": "The sandbox in an LXC container behind sshd and a stand-in for pct.",
        "reach": {
            "kind": "pct",
            "host": NODE,
            "ssh_config": str(bed.host.ssh_config),
            "vmid": VMID,
            "hostname": f"ct{VMID}",
            "environment": _environment(os.environ),
        },
        "identity": {"marker_file": "/etc/machine-id", "marker": bed.machine_id(VMID)},
    }


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What programs in the container need to know of this machine's way to the network; no secrets."""
    wanted = {k: v for k, v in environ.items() if k.lower() in _NETWORK or k.startswith("UV_")}
    found = {k: v for k, v in wanted.items() if "@" not in v and k != "UV_CACHE_DIR"}
    python = Path(sys.base_prefix).resolve()
    if not python.is_relative_to("/usr"):  # shown in the container, and to be found there
        standard = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        found["PATH"] = f"{python}/bin:{standard}"
    return found


def _pip_settings(environ: Mapping[str, str]) -> configparser.RawConfigParser:
    """The settings of this machine's pip in one file, in pip's own order."""
    settings = configparser.RawConfigParser()
    named = environ.get("PIP_CONFIG_FILE")
    home = Path(environ.get("HOME") or Path.home())
    config = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    machine = [Path("/etc/xdg/pip/pip.conf"), Path("/etc/pip.conf")]
    own = [home / ".pip" / "pip.conf", config / "pip" / "pip.conf"]
    if named != os.devnull:
        settings.read([*machine, *([Path(named)] if named else own)], encoding="utf-8")
    if not settings.has_section("install"):
        settings.add_section("install")
    for name, value in environ.items():
        if name.startswith("PIP_") and name != "PIP_CONFIG_FILE":
            settings.set("install", name.removeprefix("PIP_").lower().replace("_", "-"), value)
    return settings


def _local_sources(settings: configparser.RawConfigParser) -> Iterator[Path]:
    """Folders and files on this machine's disk that those settings name."""
    words = (w for s in settings.sections() for _, v in settings.items(s) for w in v.split())
    for word in words:
        path = Path(unquote(word.removeprefix("file://"))).expanduser()
        always_there = any(path.is_relative_to(top) for top in ("/usr", "/opt"))
        if path.is_absolute() and path.exists() and not always_there:
            yield path


def _uv_cache() -> Path:
    asked = [uv.find_uv_bin(), "cache", "dir", "--no-config", "--offline"]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    return Path(done.stdout.strip())
