"""Values and foreign text as people read them, and colours that they can read."""

import re
from pathlib import Path

import pytest

from helpers.book.view import Tone
from helpers.record.wording import (
    bytes_text,
    seconds_text,
    tok_per_s_text,
    value_text,
    visible,
    when_text,
)

PROJECT = Path(__file__).resolve().parents[2]


def luminance(colour):
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("tone", list(Tone))
def test_contrast_of_chips_and_banners(tone):
    assert contrast(*tone.colours) >= 7.0


def palettes():
    css = (PROJECT / "helpers" / "record" / "templates" / "style.css").read_text(encoding="utf-8")
    light, dark, printed = (
        dict(re.findall(r"--([a-z-]+): (#[0-9a-f]+)", block))
        for block in re.findall(r":root \{(.*?)\}", css, re.DOTALL)
    )
    return {"light": light, "dark": dark, "print": printed}


@pytest.mark.parametrize("name", ["light", "dark", "print"])
def test_contrast_of_the_report_is_wcag_aa(name):
    colours = {
        k: v if len(v) == 7 else "#" + "".join(c * 2 for c in v[1:])
        for k, v in palettes()[name].items()
    }
    for ink in ("text", "soft", "link", "good", "bad"):
        assert contrast(colours[ink], colours["ground"]) >= 4.5, ink
        assert contrast(colours[ink], colours["panel"]) >= 4.5, ink
    for tone in ("good", "note", "open", "warn", "bad", "quiet"):
        assert contrast(colours[tone], colours[f"{tone}-ground"]) >= 4.5, tone


def test_values_are_said_in_units_people_use():
    assert bytes_text(353_000_000) == "353 MB"
    assert bytes_text(999_960) == "1.00 MB"
    assert [seconds_text(s) for s in (0, 0.083, 12.34, 99.96, 4020, 7200)] == [
        "0 s",
        "83 ms",
        "12.3 s",
        "1 min 40 s",
        "67 min",
        "2 h",
    ]
    assert [tok_per_s_text(r) for r in (54.3, 4312, 21_500, 687_000, 1_250_000)] == [
        "54.3 tok/s",
        "4,312 tok/s",
        "21.5 Ktok/s",
        "687 Ktok/s",
        "1.25 Mtok/s",
    ]
    assert value_text(None) == "not measured"
    assert value_text(0.98, "recovered_ratio") == "98%"
    assert value_text({"tok_per_s": 1203.4, "low_ratio": 0.021}) == "1,203 tok/s; low: 2.1%"
    assert value_text(list(range(20))) == "0, 1, 2, 3, 4, 5, 6, 7 … and 12 more"
    assert when_text("2026-11-30T09:12:03+01:00") == "2026-11-30 08:12:03 UTC"


def test_terminal_sequences_do_not_reach_the_reader():
    assert visible("a\x1b[1;31mred\x1b[0m \x1b]0;title\x07b\x00\rc") == "ared b\ufffd\ufffdc"
