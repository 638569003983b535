"""What a cell printed: short enough for the notebook, whole in a file.

A notebook with fifty megabytes of output cannot be opened, and a progress bar prints a line a
thousand times. Here consecutive chunks of a stream become one output, a line overwritten by
carriage returns is kept as a terminal would show it, and of long output the head and the tail stay;
everything takes time linear in what was printed. This room must not know kernels or how notebooks
are saved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nbformat.v4 import new_output

from helpers.book.spill import SpillFile
from helpers.record.redact import TextStream, redactor

Output = Any  # an nbformat.NotebookNode, untyped in its own library

HEAD_CHARS = 64_000
TAIL_CHARS = 64_000
FEW_CHARS = 4_000  # of each end, once a cell has many separate stream outputs
MANY_STREAMS = 20
MOST_STREAMS = 200
_WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


class KeptText:
    """Text as a terminal would show it, of which only the two ends are kept.

    Attributes:
        omitted_chars: how much of it lies between the ends.
    """

    def __init__(self, head_chars: int, tail_chars: int) -> None:
        self.omitted_chars = 0
        self._head: list[str] = []
        self._head_room = head_chars
        self._tail: deque[str] = deque()
        self._tail_chars = 0
        self._tail_limit = tail_chars
        self._line: list[str] = []  # the unfinished line: a carriage return may still take it back
        self._line_chars = 0
        self._returned = False  # the cursor stands at the start of a line that still shows

    def add(self, text: str) -> None:
        """Print more text."""
        if "\r" not in text and not self._returned:
            done, newline, rest = text.rpartition("\n")
            self._extend_line(done + newline)
            if newline:
                self._finish_line()
            self._extend_line(rest)
            return
        *complete, rest = text.split("\n")
        for line in complete:
            self._overwrite(line)
            self._returned = False
            self._extend_line("\n")
            self._finish_line()
        self._overwrite(rest)

    def render(self, marker: Callable[[int], str]) -> str:
        """The text kept; ``marker(how many)`` stands where characters are left out."""
        middle = marker(self.omitted_chars) if self.omitted_chars else ""
        return "".join([*self._head, middle, *self._tail, *self._line])

    def _overwrite(self, part: str) -> None:
        """Print a part of one line that may hold carriage returns."""
        if not part:
            return
        visible = part.rstrip("\r")
        if visible:
            before, _, last = visible.rpartition("\r")
            if before or self._returned or visible.startswith("\r"):
                self._line, self._line_chars = [], 0
            self._extend_line(last)
            self._returned = False
        self._returned = self._returned or visible != part

    def _extend_line(self, text: str) -> None:
        if text:
            self._line.append(text)
            self._line_chars += len(text)
        if self._line_chars > HEAD_CHARS:  # nobody takes back a line as long as that
            self._finish_line()

    def _finish_line(self) -> None:
        self._keep("".join(self._line))
        self._line, self._line_chars = [], 0

    def _keep(self, text: str) -> None:
        if self._head_room:
            first = text[: self._head_room]
            self._head.append(first)
            self._head_room -= len(first)
            text = text[len(first) :]
        if len(text) > self._tail_limit:
            self.omitted_chars += len(text) - self._tail_limit
            text = text[-self._tail_limit :]
        if text:
            self._tail.append(text)
            self._tail_chars += len(text)
        while self._tail and self._tail_chars - len(self._tail[0]) >= self._tail_limit:
            dropped = len(self._tail.popleft())
            self._tail_chars -= dropped
            self.omitted_chars += dropped


@dataclass
class _Stream:
    """One stream output of the notebook and the text that it will show."""

    output: Output
    text: KeptText


class CellOutput:
    """The stream outputs of one cell while it runs.

    Args:
        spill: where everything is written too; None = nothing is left out of the notebook.
    """

    def __init__(self, spill: SpillFile | None) -> None:
        self._spill = spill
        self._open: list[_Stream] = []  # those that a further chunk may still join
        self._streams = 0
        self._masked: dict[str, TextStream] = {}  # by the stream's name

    def add(self, outputs: list[Output], name: str, text: str) -> None:
        """Print a chunk to a stream of the cell whose outputs are given.

        Its text is in the outputs only after ``render``.
        """
        text = self._masked.setdefault(name, TextStream(redactor())).feed(text)
        self._put(outputs, name, text)

    def _put(self, outputs: list[Output], name: str, text: str) -> None:
        if self._spill:
            self._spill.write(text)
        if not (outputs and any(outputs[-1] is stream.output for stream in self._open)):
            self.render()
            self._open = []  # a display came between, or the outputs were cleared
        stream = self._joinable(name) or self._new_stream(outputs, name)
        stream.text.add(text)
        if self._spill and stream.text.omitted_chars:
            self._spill.must_exist()

    def render(self) -> None:
        """Put what was printed so far into the outputs and, when it is long, onto the disk."""
        for stream in self._open:
            stream.output["text"] = stream.text.render(self._marker)
        if self._spill:
            self._spill.flush()

    def close(self, outputs: list[Output]) -> None:
        """The cell has ended: render, and make displays short and readable without widgets."""
        for name, stream in self._masked.items():
            if rest := stream.end():
                self._put(outputs, name, rest)
        self.render()
        for output in outputs:
            if "data" in output:
                _mask(output["data"])
                self._shorten_display(output["data"])
            elif output.get("output_type") == "error":
                _mask(output)
        if self._spill:
            self._spill.close()

    def _joinable(self, name: str) -> _Stream | None:
        """The last stream when it has this name; of very many, an earlier one with this name."""
        candidates = self._open if self._streams >= MOST_STREAMS else self._open[-1:]
        return next((s for s in reversed(candidates) if s.output["name"] == name), None)

    def _new_stream(self, outputs: list[Output], name: str) -> _Stream:
        self._streams += 1
        if self._spill is None:
            text = KeptText(2**62, 2**62)
        elif self._streams > MANY_STREAMS:
            text = KeptText(FEW_CHARS, FEW_CHARS)
        else:
            text = KeptText(HEAD_CHARS, TAIL_CHARS)
        # nbformat says that it is typed and leaves its functions without types.
        output = new_output("stream", name=name, text="")  # type: ignore[no-untyped-call]
        stream = _Stream(output, text)
        outputs.append(output)
        self._open.append(stream)
        return stream

    def _marker(self, omitted_chars: int) -> str:
        assert self._spill is not None  # without a spill file nothing is left out
        return f"\n[… {omitted_chars:,} characters left out; {self._spill.whereabouts()} …]\n"

    def _shorten_display(self, data: dict[str, Any]) -> None:
        if len(data) > 1:
            data.pop(_WIDGET_VIEW, None)  # it needs a live kernel; the text beside it does not
        plain = data.get("text/plain")
        if self._spill and isinstance(plain, str) and len(plain) > HEAD_CHARS + TAIL_CHARS:
            self._spill.write(plain)
            self._spill.must_exist()
            text = KeptText(HEAD_CHARS, TAIL_CHARS)
            text.add(plain)
            data["text/plain"] = text.render(self._marker)


def _mask(said: dict[str, Any]) -> None:
    """Take secrets out of every text: a saved notebook holds a text in lines, each by itself."""
    for name, value in said.items():
        if isinstance(value, str):
            said[name] = redactor().text(value)
        elif isinstance(value, list):
            said[name] = [redactor().text(v) if isinstance(v, str) else v for v in value]
