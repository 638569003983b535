"""Ending a kernel's processes, none of them forgotten.

A kernel leads a session of its own. What it started is found by descent, in whatever session, and
by that session, whatever became of its parent. A process that has left both (a daemon, a training
started detached) is meant to live on. This file is also run as a program (see ``watch``), so it
must import nothing of ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable

import psutil

CLEAN_UP_S = 1.5  # for ``finally`` blocks of a kernel whose runner is gone
TERM_S = 0.7  # between SIGTERM and SIGKILL

# In a kernel: who started it. Elsewhere the variable may be a stranger's, inherited.
_RUNNER = os.getppid() if os.environ.get("JPY_PARENT_PID") == str(os.getppid()) else None


def runner_is_gone() -> bool:
    """Whether this is a kernel and the process that started it has ended. **Changes:** nothing."""
    return _RUNNER is not None and os.getppid() != _RUNNER


def family(pid: int) -> list[psutil.Process]:
    """The processes that go with a kernel: its descendants and its session, itself not among them.

    **Runs on:** operator. **Changes:** nothing.
    """
    found: dict[int, psutil.Process] = {}
    with contextlib.suppress(psutil.NoSuchProcess):  # the session's members are still to be found
        found = {child.pid: child for child in psutil.Process(pid).children(recursive=True)}
    for candidate in psutil.pids():
        if candidate not in (pid, *found) and _session_of(candidate) == pid:
            with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
                found[candidate] = psutil.Process(candidate)
    return list(found.values())


def end(processes: Iterable[psutil.Process]) -> None:
    """End processes: SIGTERM, a moment, SIGKILL.

    **Runs on:** operator. **Changes:** the processes are gone.
    """
    living = [process for process in processes if _lives(process)]
    for number, patience_s in ((signal.SIGTERM, TERM_S), (signal.SIGKILL, 1.0)):
        for process in living:
            _signal(process, number)
        living = _outlive(living, patience_s)


def _outlive(processes: list[psutil.Process], patience_s: float) -> list[psutil.Process]:
    """Wait for processes to end; those that did not."""
    deadline_s = time.monotonic() + patience_s
    while processes and time.monotonic() < deadline_s:
        processes = [process for process in processes if _lives(process)]
        time.sleep(0.02 if processes else 0)
    return processes


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:  # it has just ended
        return None


def _lives(process: psutil.Process) -> bool:
    """Whether it still does anything; a zombie only waits for its parent to take notice."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, number: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended by itself
        process.send_signal(number)


class Watcher:
    """A small process that outlives this one and ends its kernels when this one was killed.

    Nothing in this process can react to SIGKILL. The watcher reads a pipe whose other end only this
    process holds; when the pipe closes, it ends the kernels that are still announced.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def announce(self, pid: int) -> None:
        """A kernel was started."""
        self._say(f"+{pid}")

    def withdraw(self, pid: int) -> None:
        """A kernel has been ended by this process."""
        self._say(f"-{pid}")

    def close(self) -> None:
        """End the watcher; it ends what is still announced."""
        if self._process and self._process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()
        self._process = None

    def _say(self, line: str) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                text=True,
                start_new_session=True,  # Ctrl-C and a closed terminal are not for the watcher
            )
        assert self._process.stdin is not None
        with contextlib.suppress(
            BrokenPipeError
        ):  # somebody killed it: this process still ends all
            print(line, file=self._process.stdin, flush=True)


def watch(announcements: Iterable[str]) -> None:
    """Follow announcements until they end, then end what is left: interrupt, a moment, and away.

    **Runs on:** operator. **Changes:** the kernels announced and their families are gone.
    """
    kernels: dict[int, psutil.Process] = {}
    for line in announcements:
        pid = int(line[1:])
        if line.startswith("+"):
            with contextlib.suppress(psutil.NoSuchProcess):  # it did not live long
                kernels[pid] = psutil.Process(pid)
        else:
            kernels.pop(pid, None)
    living = [kernel for kernel in kernels.values() if _lives(kernel)]
    doomed = [member for kernel in living for member in family(kernel.pid)]
    for kernel in living:
        _signal(kernel, signal.SIGINT)
    _outlive(living, CLEAN_UP_S)
    # What was started meanwhile still belongs to the kernel's session.
    end([*doomed, *(m for pid in kernels for m in family(pid)), *living])


if __name__ == "__main__":
    watch(sys.stdin)
