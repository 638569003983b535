"""A Proxmox host that is not one, on this machine.

A real OpenSSH server with throw-away keys, a ``pct`` stand-in on its PATH with the real one's
semantics, and real LXC containers behind it (namespaces where LXC cannot start). It needs root on
Linux. It binds loopback, or a network namespace it is given, writes into its own folder, and leaves
nothing running once it is stopped.

``recover sandbox create --kind pct`` offers it to people; the tests' kit (``tests/testbed``) adds
what breaks it on purpose. It lives here and not there, since a command must not need the tests.
"""
