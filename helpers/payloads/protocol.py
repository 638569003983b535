"""What every payload does the same way: parameters in, progress out, one JSON document at the end.

A payload calls ``run`` with its name, the version of its document's shape, the parameters it knows
and a function that measures.  ``run`` then

- reads ``sys.argv[1]``, one JSON object, and refuses unknown, missing or ill-typed parameters;
- moves file descriptor 1 to standard error, so that nothing that torch or the user's code prints,
  in Python or in C, can spoil the answer;
- prints progress on standard error at once, one line each: ``{"progress": {...}}``;
- prints as the **last line of standard output** the document ``{"payload", "schema", "params",
  "started_at", "elapsed_s", "measured": {}, "errors": []}``, also after an exception, a signal
  (TERM, INT, HUP) or at the deadline, with what was measured until then.

``null`` in ``measured`` means not measured; the reason is in ``errors``, a list of ``{"where": str,
"type": str, "message": str, "traceback": [last lines]}``.  NaN and infinity become null and an
error of type ``NotFinite``.  Exit codes: 0 measured, whatever was seen; 1 could not measure or
ended early; 2 parameters refused.

Every payload has the parameter ``deadline_s``.  When it expires, the stacks of all threads go into
``errors`` (``where`` is ``"watchdog"``) and the process ends, also while the main thread hangs in
C.  A hang that holds the interpreter's lock lets nobody write a document: 10 s later
``faulthandler`` prints the stacks on standard error and ends the process with exit code 1.

This room knows nothing of what is measured.  Standard library only, Python 3.9 and newer.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import math
import os
import select
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple, NoReturn

REQUIRED: Any = object()
BACKSTOP_AFTER_S = 10.0
TRACEBACK_LINES, STACK_LINES = 60, 400
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Param(NamedTuple):
    """One allowed parameter.  None is allowed where it is the default, an int for a float.

    ``items`` is what a list must hold; ``choices`` are for the value, or for the list's items.
    """

    kind: type
    default: Any = REQUIRED
    items: type | None = None
    choices: tuple[str, ...] = ()


class ParamsRefused(Exception):
    """Raised while measuring when parameters or variables turn out to be unusable: exit code 2."""


class Reporter:
    """What the measuring function writes to: ``measured``, errors and progress."""

    def __init__(self) -> None:
        self.measured: dict[str, Any] = {}
        self.errors: list[dict[str, Any]] = []
        self.endings: list[Callable[[], Any]] = []

    def progress(self, **fields: object) -> None:
        """Say on standard error, at once, how far the work is."""
        _flush()
        line = json.dumps({"progress": _plain(fields, "progress", [])}, allow_nan=False) + "\n"
        with contextlib.suppress(OSError):  # nobody listens any more: measure on
            _write_all(2, line.encode())

    def error(self, where: str, error: BaseException | str, kind: str = "Error") -> None:
        """Note what could not be measured and why."""
        stack: list[str] = []
        if isinstance(error, BaseException):
            lines = traceback.format_exception(type(error), error, error.__traceback__)
            kind, stack = type(error).__name__, "".join(lines).splitlines()[-TRACEBACK_LINES:]
        self.errors.append(_entry(where, kind, str(error), stack))

    @contextlib.contextmanager
    def guard(self, where: str) -> Iterator[None]:
        """Note an exception of the block and go on after it."""
        try:
            yield
        except Exception as error:
            self.error(where, error)

    def at_end(self, action: Callable[[], Any]) -> None:
        """Have ``action`` called when the payload ends, however it ends short of being killed."""
        self.endings.append(action)


def _entry(where: str, kind: str, message: str, stack: list[str]) -> dict[str, Any]:
    return {"where": where, "type": kind, "message": message, "traceback": stack}


class _Ending:
    """Owns the real standard output and ends the process exactly once."""

    def __init__(self, payload: str, schema: int, reporter: Reporter) -> None:
        self.reporter = reporter
        self.params: dict[str, Any] = {}
        self._head = {"payload": payload, "schema": schema}
        self._started_at = datetime.now(timezone.utc)
        self._started = time.monotonic()
        self._once = threading.Lock()
        sys.stdout.flush()
        self._output = os.dup(1)
        os.dup2(2, 1)
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(line_buffering=True)

    def finish(self, code: int) -> NoReturn:
        """Write the document and end.  A second caller waits for the first one to end it all."""
        self._once.acquire()
        with contextlib.suppress(OSError):  # the reader is gone; nothing else is left to do
            # The line feed before it ends whatever was on the line before fd 1 was moved.
            _write_all(self._output, b"\n" + self._text().encode() + b"\n")
        for action in reversed(self.reporter.endings):
            with contextlib.suppress(Exception):  # the document is written: nobody could be told
                action()
        _flush()
        # Not sys.exit: threads that never end, or a crash at exit, must not change the answer.
        os._exit(code)

    def watch(self, deadline_s: float) -> None:
        """End the process at the deadline or at a signal, from a thread of its own."""
        readable, writable = os.pipe()
        os.set_blocking(writable, False)
        signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
        for number in ENDING_SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup means it
                # The main thread pauses: what the signal interrupted must not pass for done.
                signal.signal(number, lambda _number, _frame: time.sleep(5.0))
        faulthandler.enable(file=2)
        faulthandler.dump_traceback_later(deadline_s + BACKSTOP_AFTER_S, exit=True, file=2)
        threading.Thread(target=self._wait, args=(readable, deadline_s), daemon=True).start()

    def _wait(self, readable: int, deadline_s: float) -> None:
        until = time.monotonic() + deadline_s
        number: int | None = 0
        while number is not None and number not in ENDING_SIGNALS:
            ready, _, _ = select.select([readable], [], [], max(0.0, until - time.monotonic()))
            number = os.read(readable, 1)[0] if ready else None
        where, kind = "watchdog", "DeadlineExceeded"
        if number is not None:
            where, kind = "signal", signal.Signals(number).name
        elapsed_s = time.monotonic() - self._started
        message = f"ended after {elapsed_s:.1f} s, before the work was done"
        self.reporter.errors.append(_entry(where, kind, message, _stacks()))
        self.finish(1)

    def _text(self) -> str:
        try:
            return json.dumps(self._document(), allow_nan=False)
        except Exception as error:  # something measured cannot be shown: say so rather than nothing
            self.reporter.measured = {}
            self.reporter.error("document", error)
            return json.dumps(self._document(), allow_nan=False)

    def _document(self) -> dict[str, Any]:
        problems: list[dict[str, Any]] = []
        return {
            **self._head,
            "params": _plain(self.params, "params", problems),
            "started_at": self._started_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "elapsed_s": round(time.monotonic() - self._started, 3),
            "measured": _plain(self.reporter.measured, "measured", problems),
            "errors": _plain([*self.reporter.errors, *problems], "errors", []),
        }


def run(
    payload: str,
    schema: int,
    params: Mapping[str, Param],
    measure: Callable[[dict[str, Any], Reporter], None],
    deadline_s: float = 600.0,
) -> NoReturn:
    """Run one payload from its parameters to its document, and end the process.

    **Runs on:** container. **Changes:** what ``measure`` changes.

    Args:
        payload: its name, as in the document.
        schema: version of the shape of ``measured``.
        params: the parameters it knows, ``deadline_s`` aside.
        measure: fills ``reporter.measured`` in place, so that what is there survives an early end.
        deadline_s: the deadline when the parameters name none.
    """
    reporter = Reporter()
    ending = _Ending(payload, schema, reporter)
    known = {**params, "deadline_s": Param(float, deadline_s)}
    ending.params, problems = read_params(sys.argv[1:], known)
    if problems:
        for problem in problems:
            reporter.error("params", problem, kind="ParamsRefused")
        ending.finish(2)
    ending.watch(ending.params["deadline_s"])
    try:
        measure(ending.params, reporter)
    except ParamsRefused as error:
        reporter.error("params", error)
        ending.finish(2)
    except BaseException as error:  # not even sys.exit in user code ends it without a document
        reporter.error("measure", error)
        ending.finish(1)
    ending.finish(0)


def read_params(argv: list[str], known: Mapping[str, Param]) -> tuple[dict[str, Any], list[str]]:
    """The parameters in ``argv`` with defaults filled in, and all that is wrong with them."""
    try:
        given = json.loads(argv[0] if argv else "{}")
    except ValueError as error:
        return {}, [f"the parameters are not JSON: {error}"]
    if len(argv) > 1 or not isinstance(given, dict):
        return {}, ["the parameters must be one JSON object"]
    params = dict(given)
    problems = [f"unknown parameter {name!r}" for name in given if name not in known]
    for name, param in known.items():
        value = given.get(name, param.default)
        if value is REQUIRED:
            problems.append(f"parameter {name!r} is missing")
            continue
        params[name] = value
        if value is not None or param.default is not None:
            problems.extend(f"parameter {name!r} {wrong}" for wrong in _complaints(value, param))
    return params, problems


def _complaints(value: object, param: Param) -> Iterator[str]:
    if not _is_a(value, param.kind):
        yield f"must be {param.kind.__name__}, not {value!r}"
        return
    for item in value if isinstance(value, list) else [value]:
        if value is not item and param.items and not _is_a(item, param.items):
            yield f"must hold only {param.items.__name__}, not {item!r}"
        elif param.choices and item not in param.choices:
            yield f"must be one of {', '.join(param.choices)}, not {item!r}"


def _is_a(value: object, kind: type) -> bool:
    if isinstance(value, bool):
        return kind is bool
    if kind is float:
        return isinstance(value, (int, float)) and math.isfinite(value)
    return isinstance(value, kind)


def _plain(value: object, path: str, problems: list[dict[str, Any]]) -> object:
    """A copy made of JSON's own types.  Other threads may still be writing to ``value``."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()  # file names may hold any bytes
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        problems.append(_entry(path, "NotFinite", repr(value), []))
        return None
    if isinstance(value, Mapping):
        return {str(k): _plain(v, f"{path}.{k}", problems) for k, v in list(value.items())}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(v, f"{path}[{i}]", problems) for i, v in enumerate(list(value))]
    return str(value)


def _stacks() -> list[str]:
    """The stacks of all threads, as lines."""
    try:
        with tempfile.TemporaryFile() as held:  # nameless: nothing stays in the container
            faulthandler.dump_traceback(file=held, all_threads=True)
            held.seek(0)
            return held.read().decode("utf-8", "backslashreplace").splitlines()[:STACK_LINES]
    except OSError as error:
        return [f"the stacks could not be taken: {error}"]


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # replaced or closed
            stream.flush()
