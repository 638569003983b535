"""Tasks in a process of their own, as fork_worker of PVE::RESTEnvironment runs them."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from .options import Die


def in_worker(work: Callable[[], None]) -> bool:
    """Run ``work`` in a child; what it dies of is printed. True when it was fine."""
    sys.stdout.flush()
    sys.stderr.flush()
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        os.close(readable)
        _work(work, writable)
    os.close(writable)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os.killpg(child, signal.SIGTERM))
    with os.fdopen(readable, "rb") as pipe:
        message = pipe.read()
    status = os.waitpid(child, 0)[1]
    if message:
        sys.stderr.buffer.write(message + b"\n")
        sys.stderr.flush()
    return status == 0


def _work(work: Callable[[], None], writable: int) -> None:
    code = 0
    try:
        os.setsid()
        work()
    except Die as error:
        os.write(writable, str(error).replace("\n", " ").encode("utf-8", "surrogateescape"))
        code = 255
    except BaseException as error:  # a mistake of the stand-in's own, not of its caller
        os.write(writable, f"stand-in: {error!r}".encode())
        code = 255
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
