"""How measured values are said to people: bytes, seconds, throughput, times, text from elsewhere.

Used by notebook views and by the report, so that a value reads the same in both. This room must not
know what a value means, only its unit, which its name tells (``_s``, ``_bytes``, ``_tok_per_s``,
``_ratio``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

NOT_MEASURED = "not measured"
_LIST_SHOWN = 8

# Colours, terminal titles, links: they would act on the reader's terminal, so they go as a whole.
_TERMINAL_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])"
)
# What is left of the C0 and C1 controls, and the marks that make text read in another order.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def visible(text: str) -> str:
    """Text that does nothing but be read: no terminal sequences, control characters as ``�``."""
    return _CONTROL.sub("\ufffd", _TERMINAL_SEQUENCE.sub("", text.replace("\r\n", "\n")))


def shortened(text: str, characters: int) -> str:
    """At most so many characters; what is left out is said."""
    if len(text) <= characters:
        return text
    return f"{text[:characters]} … ({len(text) - characters:,} more characters)"


def bytes_text(value: float) -> str:
    """Bytes in decimal units, as disks and downloads are sold: ``353 MB``."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(value) >= size * 0.9995:
            return f"{_three_digits(value / size)} {unit}"
    return f"{value:.0f} B"


def seconds_text(value: float) -> str:
    """A duration as people say it: ``83 ms``, ``12.3 s``, ``2 min 5 s``, ``1 h 7 min``."""
    if abs(value) < 0.0005:
        return f"{value * 1e6:.0f} µs" if value else "0 s"
    if abs(value) < 0.0995:
        return f"{value * 1e3:.0f} ms"
    if abs(value) < 99.95:
        return f"{value:.2f} s" if abs(value) < 9.995 else f"{value:.1f} s"
    minutes, seconds = divmod(round(value), 60)
    if minutes < 100:
        return f"{minutes} min {seconds} s" if seconds else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def tok_per_s_text(value: float) -> str:
    """Throughput: ``4,312 tok/s``; from twenty thousand on ``21.5 Ktok/s``, ``1.25 Mtok/s``."""
    if abs(value) >= 999_500:
        return f"{_three_digits(value / 1e6)} Mtok/s"
    if abs(value) >= 20_000:
        return f"{_three_digits(value / 1e3)} Ktok/s"
    return f"{value:,.0f} tok/s" if abs(value) >= 100 else f"{_three_digits(value)} tok/s"


def ratio_text(value: float) -> str:
    """A share in percent: ``98%``, ``2.5%``."""
    return f"{value:.1%}" if 0 < abs(value) < 0.0995 else f"{value:.0%}"


def number_text(value: float) -> str:
    """A number without a unit, short: ``1,234``, ``0.0123``."""
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.4g}" if abs(value) < 1e3 else f"{value:,.0f}"


def when_text(moment: str) -> str:
    """A UTC time in ISO 8601 as people read it; anything else is returned as it is."""
    try:
        parsed = datetime.fromisoformat(moment)
    except ValueError:
        return visible(moment)
    if parsed.tzinfo is None:
        return f"{parsed:%Y-%m-%d %H:%M:%S}"
    return f"{parsed.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def value_text(value: object, name: str = "") -> str:
    """Any JSON value in words; the unit is taken from its field's name.

    Args:
        value: plain JSON; None is said as "not measured".
        name: the field's name, for instance ``elapsed_s``; empty when there is none.
    """
    if value is None:
        return NOT_MEASURED
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return _number_with_unit(float(value), name) if name else number_text(value)
    if isinstance(value, str):
        return visible(value) if value else "(empty)"
    if isinstance(value, Mapping):
        return "; ".join(_member_text(str(k), v) for k, v in value.items()) or "none"
    if isinstance(value, Sequence):
        return _list_text(value, name)
    return visible(str(value))


def field_text(name: str) -> str:
    """A field's name as a reader would say it: ``first_step_s`` → ``first step``."""
    for ending in ("_tok_per_s", "_bytes", "_ratio", "_s"):
        if name.endswith(ending) and len(name) > len(ending):
            return visible(name.removesuffix(ending)).replace("_", " ")
    return visible(name).replace("_", " ")


def _member_text(name: str, value: object) -> str:
    said = value_text(value, name)
    return said if name == "tok_per_s" else f"{field_text(name)}: {said}"


def _number_with_unit(value: float, name: str) -> str:
    if name.endswith("tok_per_s"):
        return tok_per_s_text(value)
    if name.endswith("_ratio"):
        return ratio_text(value)
    if name.endswith("bytes"):
        return bytes_text(value)
    if name.endswith("_s"):
        return seconds_text(value)
    return number_text(value)


def _list_text(values: Sequence[object], name: str) -> str:
    if not values:
        return "none"
    shown = ", ".join(value_text(v, name) for v in values[:_LIST_SHOWN])
    left = len(values) - _LIST_SHOWN
    return f"{shown} … and {left:,} more" if left > 0 else shown


def _three_digits(value: float) -> str:
    size = abs(value)
    if size >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"
