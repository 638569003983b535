"""What cells print and show, and what is kept of it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from helpers.book.output import HEAD_CHARS, TAIL_CHARS, CellOutput, KeptText
from helpers.book.spill import SpillFile
from tests.notebooks.notebook_kit import (
    Runner,
    read,
    shown,
    states,
    wait_for,
    write_notebook,
)


def test_what_a_cell_printed_before_it_went_quiet_is_on_disk_within_two_seconds(tmp_path):
    cell = "import time, pathlib\nprint('a word')\npathlib.Path('said').touch()\ntime.sleep(20)"
    runner = Runner(write_notebook(tmp_path / "a.ipynb", cell), tmp_path / "out.ipynb")
    wait_for((tmp_path / "said").exists, 30, "the cell has printed")
    wait_for(lambda: "a word" in _text(tmp_path / "out.ipynb"), 2, "it is on disk")
    runner.process.send_signal(signal.SIGTERM)
    runner.told()


def test_long_output_keeps_its_ends_and_goes_whole_into_a_file(run, out, tmp_path):
    lines = 120_000
    logs = tmp_path / "logs"
    told = run((f"for i in range({lines}): print('line %07d' % i)", "action"), spill_folder=logs)
    assert told.outcome == "completed"
    assert out.stat().st_size < 600_000
    text = shown(out)
    assert text.startswith("line 0000000\n")
    assert f"line {lines - 1:07d}\n" in text
    assert "characters left out; the whole text is in ../logs/a-01-action.log" in text
    assert [p.name for p in logs.iterdir()] == ["a-01-action.log"]
    whole = (logs / "a-01-action.log").read_text()
    assert whole == "".join(f"line {i:07d}\n" for i in range(lines))


def test_a_long_value_is_shortened_too(run, out, tmp_path):
    assert run("print('x')\n'y' * 500_000", spill_folder=tmp_path / "logs").outcome == "completed"
    assert out.stat().st_size < 300_000
    (log,) = (tmp_path / "logs").iterdir()
    assert "y" * 500_000 in log.read_text()


def test_a_flood_of_flushed_chunks_becomes_one_output(run, out):
    told = run("for i in range(5000): print(i % 10, end='', flush=True)")
    assert told.outcome == "completed"
    (flood,) = read(out).cells[1].outputs
    assert flood.text == "0123456789" * 500


def test_progress_bars_and_endless_lines_take_no_quadratic_time(run, out, tmp_path):
    """256 kB without a newline took nbclient 65 s; here it is 20 MB, and a bar of 100,000 steps."""
    started_s = time.monotonic()
    told = run(
        "print('z' * 20_000_000)",
        "for i in range(100_000): print(f'\\r{i:>6} of 100000', end='')",
        spill_folder=tmp_path / "logs",
    )
    assert told.outcome == "completed"
    assert time.monotonic() - started_s < 30
    bar = read(out).cells[2].outputs
    assert [o.text for o in bar] == [" 99999 of 100000"]


def test_time_grows_with_the_text_and_not_with_its_square():
    def seconds(chunks):
        started_s = time.process_time()
        text = KeptText(HEAD_CHARS, TAIL_CHARS)
        for _ in range(chunks):
            text.add("\r" + "x" * 50)
            text.add("y" * 50)
        text.render(str)
        return time.process_time() - started_s

    seconds(1000)
    assert seconds(80_000) < 30 * max(seconds(8_000), 0.005)


@pytest.mark.parametrize(
    ("chunks", "seen"),
    [
        (["ab\rc"], "c"),
        (["ab\r", "c"], "c"),
        (["ab\r"], "ab"),
        (["ab\r", "\n"], "ab\n"),
        (["ab\r\ncd\r\n"], "ab\ncd\n"),
        (["one\nab", "\rc", "d\re\nnext"], "one\ne\nnext"),
        (["\rab"], "ab"),
        (["a\r\rb"], "b"),
        (["a\r", "\r", "\rb\r"], "b"),
        (["", "\n", ""], "\n"),
    ],
)
def test_carriage_returns_show_what_a_terminal_shows(chunks, seen):
    text = KeptText(1000, 1000)
    for chunk in chunks:
        text.add(chunk)
    assert text.render(str) == seen


def test_both_ends_are_kept_and_what_is_left_out_is_counted():
    text = KeptText(10, 10)
    for number in range(100):
        text.add(f"{number:02d}\n")
    kept = text.render(lambda omitted: f"<{omitted}>")
    assert kept.startswith("00\n01\n02\n0<")
    assert kept.endswith("97\n98\n99\n")
    assert len(kept.replace(f"<{text.omitted_chars}>", "")) + text.omitted_chars == 300


def test_streams_that_alternate_stay_in_order_and_few(tmp_path):
    spill = SpillFile(tmp_path / "logs", "cell", tmp_path, pytest.fail)
    output, outputs = CellOutput(spill), []
    for number in range(3000):
        output.add(outputs, "stdout", f"{number} out\n")
        output.add(outputs, "stderr", f"{number} err\n")
    output.close(outputs)
    assert [o.name for o in outputs[:4]] == ["stdout", "stderr", "stdout", "stderr"]
    assert outputs[2].text == "1 out\n"
    assert len(outputs) <= 202
    assert "2999 err" in "".join(o.text for o in outputs)


def test_a_spill_that_cannot_be_written_is_told_and_stops_nothing(run, out, tmp_path):
    (tmp_path / "logs").write_text("a file where the folder should be")
    told = run("print('x' * 1_000_000)", spill_folder=tmp_path / "logs")
    assert told.outcome == "completed"
    assert told.saved
    assert "the whole output of a-01-" in told.save_errors[0]
    assert "the whole text is lost" in shown(out)


def test_displays_are_updated_and_cleared_as_in_a_notebook(run, out):
    told = run(
        "from IPython.display import clear_output, display\n"
        "print('gone'); clear_output(wait=True); print('kept')\n"
        "handle = display('first', display_id=True)\nprint('after')\nhandle.update('second')",
    )
    assert told.outcome == "completed"
    outputs = read(out).cells[1].outputs
    assert [o.output_type for o in outputs] == ["stream", "display_data", "stream"]
    assert shown(out) == "kept\n'second'after\nlast\n"


def test_a_widget_leaves_its_text_and_nothing_that_needs_an_extension(run, out):
    assert run("import ipywidgets\nipywidgets.IntSlider(value=7)").outcome == "completed"
    assert "IntSlider(value=7)" in shown(out)
    text = out.read_text()
    assert "widget-view+json" not in text
    assert "widgets" not in read(out).metadata


def test_text_that_is_no_unicode_does_not_cost_the_record(run, out):
    told = run(r"print('\udc80'); import math; display({'application/json': math.nan}, raw=True)")
    assert told.outcome == "completed"
    assert told.save_errors == ()
    assert states(out) == ["completed"] * 3


def _text(path: Path) -> str:
    """What a notebook's outputs hold just now; it is replaced all the time and never half there."""
    return shown(path) if path.exists() else ""
