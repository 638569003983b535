"""Pictures tell in words what they show, stay small, and load nothing."""

from helpers.book.plots import first_steps_view, throughput_view
from helpers.record.pictures import FirstStep, FirstSteps, Throughput
from helpers.record.plots import as_svg
from tests.testbed.pages import harmless_view


def test_plots_tell_in_words_what_they_show_and_stay_small():
    samples = tuple((n * 0.1, 1200.0 + n % 7) for n in range(5000))
    plot = throughput_view(Throughput(samples, 1250.0, 0.8))
    assert "baseline 1,250 tok/s, recovered from 1,000 tok/s on" in plot.text
    assert ("alt", plot.text) in harmless_view(plot).attributes
    bundle = plot._repr_mimebundle_()
    assert plot.png.startswith(b"\x89PNG")
    assert len(plot.png) < 60_000
    assert set(bundle) == {"text/plain", "text/html", "image/png"}
    steps = first_steps_view(FirstSteps((FirstStep("target · cpu", 36.8, None),)))
    assert "target · cpu, 36.8 s cold, not measured warm" in steps.text
    assert len(steps.png) < 60_000


def test_drawings_are_reproducible_and_load_nothing():
    picture = Throughput(((0.5, 1200.0), (1.0, 1190.0)))
    drawn = as_svg(picture, dark=True, narrow=True)
    assert drawn == as_svg(picture, dark=True, narrow=True)
    assert len(drawn) < 60_000
    assert b"<script" not in drawn
    assert b"There is no baseline" not in drawn
    assert "There is no baseline" in picture.alt
    assert "nothing was measured" in Throughput(()).alt
    assert as_svg(Throughput(())).startswith(b"<?xml")


def test_rows_that_differ_in_their_last_words_can_be_told_apart_on_a_phone_too():
    shape = "drafter · cpu · batch 2, context 192, anchors"
    picture = FirstSteps((FirstStep(f"{shape} 16", 26.0, 1.7), FirstStep(f"{shape} 8", 25.1, 2.6)))
    for narrow in (False, True):
        drawn = as_svg(picture, narrow=narrow).decode()
        assert "…" not in drawn
        assert drawn.count("anchors") >= 2
