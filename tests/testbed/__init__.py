"""A test kit: a Proxmox host that is not one, on this machine.

A real OpenSSH server with throw-away keys, a ``pct`` stand-in on its PATH with the real one's
semantics, and real LXC containers behind it (namespaces where LXC cannot start). It needs root on
Linux. It binds loopback or network namespaces of its own making, writes into its own folder, and
leaves nothing running.

    bed = Bed.make(folder)
    bed.add_container(100)
    bed.start()
    …
    bed.stop()

or, from a shell, ``python -m tests.testbed up FOLDER`` and ``… down FOLDER``.
"""

from tests.testbed.bed import Bed

__all__ = ["Bed"]
