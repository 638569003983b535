"""The sandbox's container: a folder of this machine, reached by starting programs here.

Everything that the sandbox runs goes through the same interface as a container behind a host. This room
must not know what the programs are for.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from types import FrameType

from helpers.reach.command import Command, CommandResult, End
from helpers.reach.container import Container, Observer, OnOutput

# What a login on this machine would have and the target's tools need: package sources and the way to the
# network. Everything else of the operator's environment (PYTHONPATH, VIRTUAL_ENV, LD_LIBRARY_PATH, torch's
# switches) stays outside, as it would in a container.
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
_KEPT_PREFIXES = (
    "PIP_",
    "UV_",
    "XDG_",
    "HTTP_",
    "HTTPS_",
    "NO_PROXY",
    "http_",
    "https_",
    "no_proxy",
    "OPENBLAS_",
)
_CHUNK_BYTES = 65536
_LIBC = ctypes.CDLL(None)  # bound here: between fork and exec nothing may be looked up
_PR_SET_PDEATHSIG = 1  # <sys/prctl.h>
_GRACE_S = 5.0


def container_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of programs in the sandbox, taken from the operator's.

    **Runs on:** operator. **Changes:** nothing.
    """
    kept = {k: v for k, v in environ.items() if k in _KEPT or k.startswith(_KEPT_PREFIXES)}
    # The operator's virtual environment is first on PATH when this runs inside it: not the container's.
    inside = environ.get("VIRTUAL_ENV")
    paths = kept.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":")
    kept["PATH"] = ":".join(p for p in paths if inside is None or p != f"{inside}/bin")
    return {**kept, "LANG": "C.UTF-8", "TERM": "dumb"}


class LocalContainer(Container):
    """Programs run as children of this process, each in a process group of its own."""

    def __init__(self, name: str, observer: Observer | None = None) -> None:
        super().__init__(name, observer)
        self._environment = container_environment(os.environ)

    def _execute(
        self, command: Command, on_stdout: OnOutput | None, on_stderr: OnOutput | None
    ) -> CommandResult:
        started_at, start = datetime.now(UTC).isoformat(), time.monotonic()
        process: subprocess.Popen[bytes] | None = None
        try:
            with _interrupt_later():
                process = self._started(command)
            stdout, stderr, in_time = _drain(process, command, start, on_stdout, on_stderr)
            returncode = process.wait()
        except OSError as error:
            if process is not None:
                raise
            text = str(error).encode()
            return CommandResult(
                command, self.name, "not_started", None, b"", text, started_at, 0.0
            )
        finally:
            if process is not None:
                _end_group(process)
        end: End = "exited" if returncode >= 0 else "signalled"
        if not in_time:
            end = "timed_out"
        elapsed_s = time.monotonic() - start
        known = None if end == "timed_out" else returncode
        return CommandResult(command, self.name, end, known, stdout, stderr, started_at, elapsed_s)

    def _started(self, command: Command) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command.argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self._environment, **command.env},
            cwd=command.cwd,
            process_group=0,
            preexec_fn=_end_with_parent,
        )


@contextmanager
def _interrupt_later() -> Iterator[None]:
    """Let a Ctrl-C wait until what is started here has an owner who will end it."""
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[FrameType | None] = []
    signal.signal(signal.SIGINT, lambda _, frame: came.append(frame))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(signal.SIGINT, came[0])


def _end_with_parent() -> None:
    """Let the kernel end the program when this process is killed: nobody else would.

    It is the thread that starts a program whose end counts; commands are run from a main thread.
    """
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _drain(
    process: subprocess.Popen[bytes],
    command: Command,
    start: float,
    on_stdout: OnOutput | None,
    on_stderr: OnOutput | None,
) -> tuple[bytes, bytes, bool]:
    """Feed standard input and read both streams together; False when the deadline came first."""
    assert process.stdin
    assert process.stdout
    assert process.stderr
    stdout, stderr = bytearray(), bytearray()
    in_time = True
    pending = memoryview(command.stdin)
    with selectors.DefaultSelector() as selector:
        for stream, sink in (
            (process.stdout, _Sink(stdout, on_stdout)),
            (process.stderr, _Sink(stderr, on_stderr)),
        ):
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ, sink)
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE)
        # A grandchild may hold the streams open after the program has ended; it is not waited for.
        while selector.get_map() and not _left_behind(process, selector):
            left_s = command.timeout_s - (time.monotonic() - start)
            if left_s <= 0:
                _end_group(process)
                in_time = False
                break
            for key, _ in selector.select(min(left_s, 0.1)):
                if key.data is None:
                    pending = _feed(process, pending, selector)
                elif data := os.read(key.fd, _CHUNK_BYTES):
                    key.data.take(data)
                else:
                    selector.unregister(key.fileobj)
    return bytes(stdout), bytes(stderr), in_time


@dataclass(frozen=True)
class _Sink:
    """Where one stream's bytes go: kept, and told to whoever listens."""

    kept: bytearray
    listener: OnOutput | None

    def take(self, data: bytes) -> None:
        self.kept.extend(data)
        if self.listener is not None:
            self.listener(data)


def _left_behind(process: subprocess.Popen[bytes], selector: selectors.BaseSelector) -> bool:
    return process.poll() is not None and not selector.select(0)


def _feed(
    process: subprocess.Popen[bytes], pending: memoryview, selector: selectors.BaseSelector
) -> memoryview:
    assert process.stdin
    with suppress(BlockingIOError):
        try:
            pending = (
                pending[os.write(process.stdin.fileno(), pending[:_CHUNK_BYTES]) :]
                if pending
                else pending
            )
        except BrokenPipeError:  # the program closed its input or ended: it wants no more
            pending = memoryview(b"")
    if not pending:
        selector.unregister(process.stdin)
        with suppress(BrokenPipeError):
            process.stdin.close()
    return pending


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the program and its children: asked first, then killed."""
    for sign, patience_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        if process.poll() is not None and not _group_lives(process.pid):
            break
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, sign)
        end = time.monotonic() + patience_s
        while time.monotonic() < end and (process.poll() is None or _group_lives(process.pid)):
            time.sleep(0.02)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream is not None:
            with suppress(BrokenPipeError):
                stream.close()


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
