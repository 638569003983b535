"""Root folders: a container's, which borrows this machine's ``/usr``, and the host's own ``/etc``.

This room knows files and owners, and nothing of what runs in them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

UNPRIVILEGED_ROOT = 100000
# What programs need of /etc and what does not say who the machine is.
_BORROWED = (
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "alternatives",
    "ssl",
    "nsswitch.conf",
    "pip.conf",
    "debian_version",
    "localtime",
    "resolv.conf",
    "mime.types",
    "login.defs",
    "pam.d",
    "security",
    "shells",
    "lxc",
    "os-release",
)
_FOLDERS = (
    "root",
    "tmp",
    "proc",
    "sys",
    "dev",
    "run",
    "etc",
    "usr",
    "var/tmp",
    "var/log",
    "var/lib",
    "opt",
    "home/trainer",
    "mnt",
    "srv",
)
# Ends at once when it is told to, as a container's init should.
_INIT = "#!/bin/bash\ntrap 'exit 0' TERM PWR INT\nwhile :; do sleep 3600 & wait $!; done\n"
_PASSWD = """\
root:x:0:0:root:/root:/bin/bash
trainer:x:1000:1000::/home/trainer:/bin/bash
messagebus:x:100:107::/nonexistent:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/:/usr/sbin/nologin
"""
_GROUP = "root:x:0:\ntty:x:5:\ntrainer:x:1000:\nmessagebus:x:107:\nnogroup:x:65534:\n"
_HOST_PASSWD = """\
root:x:0:0:root:/root:/bin/bash
sshd:x:101:65534::/run/sshd:/usr/sbin/nologin
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
"""


def borrow_etc(etc: Path) -> None:
    """Copy what programs need of this machine's /etc. **Changes:** ``etc``."""
    etc.mkdir(parents=True, exist_ok=True)
    for name in _BORROWED:
        source = Path("/etc", name)
        if source.is_dir():
            shutil.copytree(source, etc / name, symlinks=True, dirs_exist_ok=True)
        elif source.exists():
            shutil.copy2(source, etc / name)


def make_host_etc(etc: Path, node: str) -> None:
    """The /etc of the bed's host: its name, its users, Proxmox's folder. **Changes:** ``etc``."""
    borrow_etc(etc)
    (etc / "hostname").write_text(node + "\n")
    (etc / "hosts").write_text(f"127.0.0.1 localhost {node}\n")
    (etc / "passwd").write_text(_HOST_PASSWD)
    (etc / "shadow").write_text("root:*:19000:0:99999:7:::\n")  # without it root counts as locked
    (etc / "group").write_text("root:x:0:\nsshd:x:101:\ntty:x:5:\nnogroup:x:65534:\n")
    for name in ("subuid", "subgid"):  # what an unprivileged container's users may be on the host
        (etc / name).write_text(f"root:{UNPRIVILEGED_ROOT}:65536\n")
    (etc / "pve" / "nodes" / node / "lxc").mkdir(parents=True, exist_ok=True)


def make_rootfs(root: Path, hostname: str, machine_id: str, *, first_uid: int = 0) -> None:
    """A container's root folder; /usr is to be bound into it. **Changes:** ``root``.

    Args:
        root: the folder to fill.
        hostname: what the container calls itself.
        machine_id: what /etc/machine-id holds.
        first_uid: the host's number for the container's root; 0 = a privileged container.
    """
    for name in _FOLDERS:
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    for name in ("tmp", "var/tmp"):
        (root / name).chmod(0o1777)
    (root / "root").chmod(0o700)
    etc = root / "etc"
    borrow_etc(etc)
    (etc / "passwd").write_text(_PASSWD)
    (etc / "group").write_text(_GROUP)
    (etc / "hostname").write_text(hostname + "\n")
    (etc / "hosts").write_text("127.0.0.1 localhost\n")
    (etc / "machine-id").write_text(machine_id + "\n")
    (root / "init").write_text(_INIT)
    (root / "init").chmod(0o755)
    os.chown(root / "home" / "trainer", 1000, 1000)
    if first_uid:
        for path in (root, *root.rglob("*")):
            owner = path.lstat()
            moved = (owner.st_uid + first_uid, owner.st_gid + first_uid)
            os.chown(path, *moved, follow_symlinks=False)
