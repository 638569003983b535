"""The command line: from ``pct``'s words to one subcommand."""

from __future__ import annotations

import locale
import os
import signal
import sys
import time
from importlib import import_module

from .backend import Bed, backend_of
from .options import OPTIONS, Die, parse
from .store import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .backend import Backend
    from .options import Arguments

_ROOMS = {
    "status": ("lifecycle", "status"),
    "list": ("lifecycle", "show_list"),
    "config": ("lifecycle", "show_config"),
    "start": ("lifecycle", "start"),
    "stop": ("lifecycle", "stop"),
    "shutdown": ("lifecycle", "shutdown"),
    "reboot": ("lifecycle", "reboot"),
    "unlock": ("lifecycle", "unlock"),
    "push": ("files", "push"),
    "pull": ("files", "pull"),
    "snapshot": ("snapshots", "snapshot"),
    "delsnapshot": ("snapshots", "delsnapshot"),
    "rollback": ("snapshots", "rollback"),
    "listsnapshot": ("snapshots", "listsnapshot"),
}
_USAGE = "USAGE: pct <COMMAND> [ARGS] [OPTIONS]"
# What pct takes out of the environment, and what only the stand-in's start put there.
_TAKEN_OUT = ("SSL_CERT_FILE", "SSL_CERT_DIR", "PYTHONCOERCECLOCALE")


def main(folder: str) -> int:
    """Run one ``pct`` command; returns its exit code."""
    try:
        locale.setlocale(locale.LC_ALL, "")
    except locale.Error:
        pass
    argv = [os.fsencode(word) for word in sys.argv[1:]]
    name = argv[0].decode("utf-8", "replace") if argv else ""
    if name not in OPTIONS:
        what = f"unknown command 'pct {name}'" if argv else "no command specified"
        print(f"ERROR: {what}\n{_USAGE}", file=sys.stderr)
        return 255
    if os.geteuid():
        print("please run as root", file=sys.stderr)
        return 255
    try:
        bed = Bed(folder)
        time.sleep(bed.start_delay_s)
        given = parse(name, argv[1:])
        if name == "exec":
            _exec(backend_of(bed), given)
        room, function = _ROOMS[name]
        getattr(import_module(f".{room}", __package__), function)(bed, backend_of(bed), given)
    except Die as error:
        sys.stdout.flush()
        print(error, file=sys.stderr)
        return error.code
    return 0


def _exec(backend: Backend, given: Arguments) -> None:
    load(given.vmid)
    if not backend.running(given.vmid):
        raise Die(f"container '{given.vmid}' not running!")
    if not given.words:
        raise Die("missing command at /usr/share/perl5/PVE/CLI/pct.pm line 246.")
    for name in _TAKEN_OUT:
        os.environ.pop(name, None)
    os.environ["HOME"] = "/root"  # the bed's sshd sets another one
    os.environ["PATH"] = "/sbin:/bin:/usr/sbin:/usr/bin"  # CLIHandler.pm:688
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, Perl does not
        signal.signal(number, signal.SIG_DFL)
    backend.enter(given.vmid, keep_environment=given.flag("keep-env", True), argv=given.words)
