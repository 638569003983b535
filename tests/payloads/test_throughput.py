"""From steps to tokens per second: the arithmetic, without threads and without a clock."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.payloads.conftest import PAYLOADS


@pytest.fixture(scope="module")
def throughput():
    spec = importlib.util.spec_from_file_location("throughput", PAYLOADS / "throughput.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def worker(throughput, role, *steps):
    return SimpleNamespace(facts={"role": role}, steps=[throughput.Step(*step) for step in steps])


def test_a_step_counts_with_the_part_that_lies_inside(throughput):
    drafter = worker(throughput, "drafter", (9.0, 11.0, 100), (11.0, 11.5, 10), (11.5, 13.5, 100))
    found = throughput.summary([drafter], 10.0, 12.0, "drafter")
    assert found["window_s"] == 2.0
    assert found["tok_per_s"] == pytest.approx((50 + 10 + 25) / 2)
    assert [b["t_s"] for b in found["series"]] == [0.0, 0.5, 1.0, 1.5]
    assert [b["tok_per_s"] for b in found["series"]] == [50.0, 50.0, 20.0, 50.0]
    assert drafter.facts["steps_completed"] == 1
    assert drafter.facts["steps"] == [{"t_s": 1.0, "duration_s": 0.5, "tokens": 10, "steps": 1}]
    assert drafter.facts["step_s"] == {
        "median": 0.5,
        "p05": 0.5,
        "p95": 0.5,
        "min": 0.5,
        "max": 0.5,
    }


def test_roles_are_counted_apart_and_threads_together(throughput):
    workers = [
        worker(throughput, "target", (0, 2, 8)),
        worker(throughput, "drafter", (0, 1, 1), (1, 2, 3)),
        worker(throughput, "drafter", (0, 2, 6)),
    ]
    found = throughput.summary(workers, 0, 2, "drafter")
    assert found["tok_per_s"] == pytest.approx(5.0)
    assert {name: (r["threads"], r["tokens"]) for name, r in found["roles"].items()} == {
        "target": (1, 8.0), "drafter": (2, 10.0),
    }  # fmt: skip
    assert found["series"] == found["roles"]["drafter"]["series"]


def test_a_thread_without_a_whole_step_in_the_window(throughput):
    slow = worker(throughput, "drafter", (0.0, 100.0, 1000))
    found = throughput.summary([slow], 10, 20, "drafter")
    assert found["tok_per_s"] == pytest.approx(10.0)
    assert slow.facts["step_s"] is None
    assert slow.facts["steps"] == []


def test_many_steps_are_joined(throughput):
    fast = worker(throughput, "drafter", *((i / 1000, (i + 1) / 1000, 2) for i in range(10_000)))
    throughput.summary([fast], 0, 10, "drafter")
    kept = fast.facts["steps"]
    assert len(kept) == 2000
    assert sum(entry["tokens"] for entry in kept) == 20_000
    assert {entry["steps"] for entry in kept} == {5}
    assert kept[1] == {"t_s": 0.005, "duration_s": 0.001, "tokens": 10, "steps": 5}
    assert fast.facts["steps_completed"] == 10_000


@given(
    st.lists(st.tuples(st.floats(0.001, 5), st.integers(0, 10_000)), max_size=40),
    st.integers(1, 20),
    st.floats(0, 20),
)
def test_bins_hold_what_the_window_holds(throughput, lengths, bins, begin):
    steps, now = [], 0.0
    for seconds, tokens in lengths:
        steps.append((now, now + seconds, tokens))
        now += seconds
    end = begin + bins * 0.5
    found = throughput.summary([worker(throughput, "drafter", *steps)], begin, end, "drafter")
    in_bins = sum(b["tok_per_s"] * 0.5 for b in found["series"])
    # int() may drop the last bin to rounding; it never holds more than the window.
    if len(found["series"]) == bins:
        assert in_bins == pytest.approx(found["roles"]["drafter"]["tokens"], abs=0.2)
    assert found["roles"]["drafter"]["tokens"] <= sum(tokens for _, _, tokens in steps) + 0.1
