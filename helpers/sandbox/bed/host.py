"""The bed's host: a real sshd whose /etc and host name are its own.

Both come from namespaces. This room knows keys, configuration files and processes; nothing of
containers.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

from helpers.sandbox.bed.processes import descendants, end
from helpers.sandbox.bed.rootfs import make_host_etc

NODE = "pve"
_STANDIN = Path(__file__).resolve().parent / "standin"
# PYTHONCOERCECLOCALE=0, utf8=0: in the C locale pct corrupts what is not ASCII, and so must the
# stand-in.
_PCT = """\
#!/bin/sh
PYTHONCOERCECLOCALE=0 exec /usr/bin/python3 -s -S -X utf8=0 {program} "$@"
"""
_PCT_PROGRAM = """\
import sys
from standin.main import main
sys.exit(main({folder!r}))
"""
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SSHD = """\
Port {port}
ListenAddress {address}
HostKey {keys}/host
HostKey {keys}/host_ecdsa
PidFile {folder}/run/sshd.pid
AuthorizedKeysFile {keys}/authorized_keys
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
UseDNS no
PrintMotd no
AcceptEnv LANG LC_*
MaxStartups 200
MaxSessions {max_sessions}
LogLevel VERBOSE
SetEnv PATH={path} HOME={folder}/home
Subsystem sftp /usr/lib/openssh/sftp-server
"""
_CLIENT = """\
Host {alias}
  HostName {address}
  Port {port}
  User root
  IdentityFile {keys}/client
  IdentitiesOnly yes
  UserKnownHostsFile {keys}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  LogLevel ERROR
"""


class Host:
    """See the module's head.

    Args:
        folder: the bed's.
        address: where sshd listens.
        namespace: name of the network namespace it runs in; None = this machine's.
    """

    def __init__(self, folder: Path, address: str, namespace: str | None = None) -> None:
        self.folder = folder
        self.address = address
        self._namespace = namespace
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def keys(self) -> Path:
        """Folder of the throw-away keys: host, client, authorized_keys, known_hosts."""
        return self.folder / "keys"

    @property
    def etc(self) -> Path:
        """The host's /etc, seen from outside."""
        return self.folder / "host" / "etc"

    @property
    def ssh_config(self) -> Path:
        """A client's configuration that knows the host under the alias ``pve``."""
        return self.folder / "ssh_config"

    @property
    def port(self) -> int:
        """Where sshd listens; chosen when the host was made."""
        return int((self.folder / "port").read_text())

    def make(self, *, max_sessions: int = 10) -> None:
        """Write keys, configuration and the stand-in. **Changes:** the bed's folder."""
        for name in ("keys", "bin", "run/lock/lxc", "log", "home", "host"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "host").chmod(0o700)
        make_host_etc(self.etc, NODE)
        for name in ("host", "client"):
            make_key(self.keys / name)
        make_key(self.keys / "host_ecdsa", kind="ecdsa")
        (self.keys / "authorized_keys").write_bytes((self.keys / "client.pub").read_bytes())
        (self.folder / "port").write_text(str(_free_port(self.address, self._namespace)))
        told = {"folder": self.folder, "keys": self.keys, "port": self.port}
        told |= {"path": f"{self.folder}/bin:{_PATH}"}
        told |= {"address": self.address, "alias": NODE, "max_sessions": max_sessions}
        (self.folder / "sshd_config").write_text(_SSHD.format(**told))
        self.ssh_config.write_text(_CLIENT.format(**told))
        (self.keys / "known_hosts").write_text(self.known_as())
        program = self.folder / "bin" / "pct.py"
        # Copied, so that a bed is complete in itself.
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(_STANDIN, program.parent / "standin", dirs_exist_ok=True, ignore=ignored)
        program.write_text(_PCT_PROGRAM.format(folder=str(self.folder)))
        (self.folder / "bin" / "pct").write_text(_PCT.format(program=shlex.quote(str(program))))
        (self.folder / "bin" / "pct").chmod(0o755)

    def put_pct_in_sbin(self) -> None:
        """Have /usr/sbin/pct as a real Proxmox host, for those who call it by that name.

        Only before the start, and not together with unprivileged containers: their /usr could not
        be bound any more. **Changes:** the bed's folder.
        """
        sbin = self.folder / "host" / "sbin"
        sbin.mkdir(exist_ok=True)
        (sbin / "pct").symlink_to(self.folder / "bin" / "pct")

    def start(self) -> None:
        """Start sshd and wait until it answers.

        **Changes:** makes /run/sshd, which sshd insists on.
        """
        Path("/run/sshd").mkdir(exist_ok=True)
        etc, sbin = shlex.quote(str(self.etc)), shlex.quote(str(self.folder / "host" / "sbin"))
        inside = ["set -e", f"hostname {NODE}", f"mount --bind {etc} /etc"]
        if (self.folder / "host" / "sbin").is_dir():
            inside.append(f"mount -t overlay -o lowerdir={sbin}:/usr/sbin overlay /usr/sbin")
        inside.append(
            f"exec /usr/sbin/sshd -D -e -f {shlex.quote(str(self.folder / 'sshd_config'))}"
        )
        argv = [
            "unshare",
            "--mount",
            "--uts",
            "--propagation",
            "private",
            "sh",
            "-c",
            "; ".join(inside),
        ]
        with (self.folder / "log" / "sshd.log").open("a") as log:
            self._process = subprocess.Popen(
                [*self._in_namespace(), *argv],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                start_new_session=True,
            )
        pid_file = self.folder / "run" / "sshd.pid"
        deadline = time.monotonic() + 20
        while not (pid_file.exists() and pid_file.read_text().strip() == str(self._process.pid)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log" / "sshd.log").read_text())
            time.sleep(0.01)

    def known_as(self, name: str | None = None, key: str = "host") -> str:
        """A line of known_hosts for one of its keys."""
        kind, text = (self.keys / f"{key}.pub").read_text().split()[:2]
        return f"{name or f'[{self.address}]:{self.port}'} {kind} {text}\n"

    @property
    def pid(self) -> int:
        """The listening sshd."""
        return int((self.folder / "run" / "sshd.pid").read_text())

    @property
    def running(self) -> bool:
        """Whether that sshd is there; its number alone may be anybody's after a restart."""
        try:
            told = Path(f"/proc/{self.pid}/cmdline").read_bytes()
        except (OSError, ValueError):
            return False
        return str(self.folder / "sshd_config").encode() in told

    def sessions(self) -> list[int]:
        """The sshd processes that serve connections."""
        return [p for p in descendants(self.pid) if _name(p).startswith("sshd")]

    def enter(self, *argv: str | Path) -> list[str]:
        """The words that run ``argv`` on the host, as a person sitting at it would."""
        joined = ["nsenter", "-t", str(self.pid), "--mount", "--uts"]
        joined += ["--net"] if self._namespace else []
        return [*joined, "--", *map(str, argv)]

    def stop(self) -> None:
        """End sshd and what it serves. **Changes:** nothing else."""
        if self.running:
            end([self.pid, *self.sessions()])
        (self.folder / "run" / "sshd.pid").unlink(missing_ok=True)
        if self._process is not None:
            self._process.wait(10)

    def _in_namespace(self) -> list[str]:
        return ["ip", "netns", "exec", self._namespace] if self._namespace else []


def make_key(path: Path, *, kind: str = "ed25519", passphrase: str = "") -> None:
    """A key pair, unless it is there already. **Changes:** ``path``."""
    if not path.exists():
        words = ("-q", "-t", kind, "-N", passphrase, "-C", path.name, "-f", str(path))
        argv = ["ssh-keygen", *words]
        subprocess.run(argv, check=True)


def _free_port(address: str, namespace: str | None) -> int:
    if namespace:
        return 2222  # nobody else is in there
    with socket.socket() as probe:
        probe.bind((address, 0))
        return int(probe.getsockname()[1])


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def missing_tools() -> list[str]:
    """What this machine lacks for a bed, in words. **Changes:** nothing."""
    lacking = [] if sys.platform == "linux" else ["Linux"]
    if sys.platform == "linux" and os.geteuid():
        lacking.append("root")
    needed = {
        "/usr/sbin/sshd": "openssh-server",
        "ssh-keygen": "openssh-client",
        "/usr/bin/python3": "python3",
        "nsenter": "util-linux",
        "unshare": "util-linux",
        "ip": "iproute2",
        "pgrep": "procps",
    }
    lacking += [f"{tool} ({package})" for tool, package in needed.items() if not shutil.which(tool)]
    return lacking
