"""A stand-in for Proxmox VE's ``pct``, for tests and for trying things out.

It mirrors what a remote caller can see of pve-container 6.1.10 (``src/PVE/CLI/pct.pm``): argument
parsing, messages, streams, exit codes and locks, its treacherous sides included. The containers
behind it are real LXC containers or, where LXC cannot start, namespaces made with util-linux.

It runs on the bed's host with the system's Python (3.10 or newer), standard library only. Modules
that ``pct exec`` does not need are imported late: a stand-in that is slow to start would hide what
is slow.
"""
