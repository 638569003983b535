"""A known throughput is measured; a thread that dies or hangs is told, not averaged away."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys

import pytest

from tests.payloads.conftest import BOOTSTRAP, answer, captured, differences, request, sent
from tests.payloads.workloads import COMPILED, PACED, write

pytestmark = pytest.mark.torch
# Three threads that sleep: each drafter has 20 tokens every 0.05 s, the target 5 every 0.1 s.
ROLES = [
    {"name": "target", "devices": ["cpu"], "shapes": [{"seconds": 0.1, "tokens": 5}]},
    {"name": "drafter", "devices": ["cpu", "cpu"], "shapes": [{"seconds": 0.05, "tokens": 20}]},
]
QUICK = {"seconds": 2.0, "warmup_seconds": 0.5, "warmup_steps": 2}


def benchmark(python, workload, roles=None, **params):
    return sent(
        "benchmark",
        {"workload": workload, "roles": roles or ROLES, **QUICK, **params},
        python=python,
    )


@pytest.fixture(scope="module")
def paced(torch_python, tmp_path_factory):
    got = benchmark(torch_python, write(tmp_path_factory.mktemp("paced"), PACED))
    assert got.code == 0
    return got


def test_measures_the_known_throughput(paced):
    measured = paced.measured
    assert paced.document["errors"] == []
    # The captured document is older than these; judges must go on reading such documents.
    newer = {".series[0].own_cores", ".series[0].own_wait_cores", ".warm_up.compilations"}
    assert set(differences(measured, captured("benchmark"))) == newer
    assert measured["phase"] == "done"
    assert measured["counted_role"] == "drafter"
    # Sleeping takes a little longer than asked, never shorter.
    assert 600 < measured["tok_per_s"] <= 800
    assert 35 < measured["roles"]["target"]["tok_per_s"] <= 50
    assert measured["window_s"] == pytest.approx(2.0, abs=0.3)
    assert measured["roles"]["drafter"]["threads"] == 2


def test_what_was_discarded_is_told(paced):
    measured = paced.measured
    assert measured["first_steps_s"] >= 0.1
    assert measured["warm_up"]["seconds"] >= 0.5
    assert measured["warm_up"]["steps"] == sum(t["warm_up_steps"] for t in measured["threads"])
    assert min(t["warm_up_steps"] for t in measured["threads"]) >= 2


def test_every_thread_is_told(paced):
    threads = paced.measured["threads"]
    assert [(t["role"], t["device"], t["index"]) for t in threads] == [
        ("target", "cpu", 0), ("drafter", "cpu", 0), ("drafter", "cpu", 1),
    ]  # fmt: skip
    for thread in threads:
        assert thread["error"] is None
        assert thread["stopped"]
        assert thread["steps_completed"] == len(thread["steps"]) > 10
        assert thread["step_s"]["min"] <= thread["step_s"]["median"] <= thread["step_s"]["max"]
        assert sum(step["tokens"] for step in thread["steps"]) <= thread["tokens"] + 0.1
    total = sum(t["tok_per_s"] for t in threads if t["role"] == "drafter")
    assert total == pytest.approx(paced.measured["tok_per_s"])


def test_series_covers_the_window(paced):
    series = paced.measured["series"]
    assert [b["t_s"] for b in series[:3]] == [0.0, 0.5, 1.0]
    mean = sum(b["tok_per_s"] for b in series) / len(series)
    assert mean == pytest.approx(paced.measured["tok_per_s"], rel=0.1)


def test_progress_goes_through_the_phases(paced):
    assert list(dict.fromkeys(step["phase"] for step in paced.progress)) == [
        "import", "first_steps", "warm_up", "window",
    ]  # fmt: skip


def test_what_a_baseline_is_keyed_by(paced):
    measured = paced.measured
    assert measured["torch"]["version"]
    assert measured["devices"] == {"cpu": measured["cpu_model"]}
    assert set(measured["files"]) == {"workload.py"}
    assert measured["memory"]["peak_rss_bytes"] > 50_000_000


def test_shapes_are_taken_in_turn(torch_python, tmp_path):
    shapes = [{"seconds": 0.02, "tokens": 1}, {"seconds": 0.02, "tokens": 100}]
    roles = [{"name": "drafter", "devices": ["cpu"], "shapes": shapes}]
    got = benchmark(torch_python, write(tmp_path, PACED), roles, seconds=1)
    tokens = [step["tokens"] for step in got.measured["threads"][0]["steps"]]
    assert set(itertools.pairwise(tokens)) == {(1, 100), (100, 1)}


def test_another_role_can_be_counted(torch_python, tmp_path):
    got = benchmark(torch_python, write(tmp_path, PACED), counted_role="target", seconds=1)
    assert got.measured["tok_per_s"] == got.measured["roles"]["target"]["tok_per_s"]
    assert benchmark(sys.executable, "/none", counted_role="judge").code == 2


CHURNING = '''
import torch


def build(device, role, shape):
    """A step that compiles another function every time."""

    def step():
        torch.compile(eval("lambda x: x.sin() + 1"), backend="eager")(torch.ones(3))
        return 1

    return step
'''


def test_the_compiler_is_watched(torch_python, tmp_path):
    roles = [{"name": "drafter", "devices": ["cpu"], "shapes": [{"batch": 2}]}]
    cache = {
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    steady, churning = (
        sent("benchmark", {"workload": write(tmp_path / name, text), "roles": roles, **QUICK,
                           "warmup_longest_seconds": 1.0},
             python=torch_python, env=cache).measured["compile"]
        for name, text in (("steady", COMPILED), ("churning", CHURNING))
    )  # fmt: skip
    assert steady["before"]["unique_graphs"] == 1
    assert steady["before"]["fxgraph_cache_miss"] == 2  # forward and backward
    assert not any(steady["window"].values())
    assert churning["window"]["unique_graphs"] > 2
    assert churning["window"]["compilations"] > 2


LATE = """
import time

import torch


def build(device, role, shape):
    compiled, x, taken = torch.compile(lambda x: x + 1, backend="eager", dynamic=False), [], []

    def step():
        taken.append(1)
        time.sleep(0.02)
        compiled(torch.zeros(1 if len(taken) < 15 else 2))
        return 1

    return step
"""


def test_what_is_compiled_late_lengthens_the_warm_up_and_stays_out_of_the_window(
    torch_python, tmp_path
):
    roles = [{"name": "drafter", "devices": ["cpu"], "shapes": [{}]}]
    measured = benchmark(torch_python, write(tmp_path, LATE), roles).measured
    assert not any(measured["compile"]["window"].values())
    assert measured["warm_up"]["compilations"] == 1
    assert measured["warm_up"]["seconds"] > 0.02 * 13 + QUICK["warmup_seconds"]


CRASH = PACED + '''

inner = build


def build(device, role, shape):
    step, taken = inner(device, role, shape), []

    def crash():
        taken.append(1)
        if role == "drafter" and len(taken) > AFTER:
            raise KIND("a thread died")
        return step()

    return crash
'''  # fmt: skip


@pytest.mark.parametrize(
    ("after", "phase", "kind"),
    [
        (0, "first_steps", "RuntimeError"),
        (12, "warm_up", "SystemExit"),
        (60, "window", "RuntimeError"),
    ],
)
def test_a_thread_that_dies_ends_it_at_once(torch_python, tmp_path, after, phase, kind):
    text = CRASH.replace("AFTER", str(after)).replace("KIND", kind)
    got = benchmark(torch_python, write(tmp_path, text), seconds=60, warmup_seconds=1.5)
    assert got.code == 0
    assert got.measured["phase"] == phase
    assert got.measured["tok_per_s"] is None
    assert got.document["elapsed_s"] < 40
    errors = {e["where"]: e for e in got.document["errors"]}
    assert "threads[1]" in errors or "threads[2]" in errors
    for where, error in errors.items():
        thread = got.measured["threads"][int(where[8:-1])]
        assert thread["error"] == f"{kind}: a thread died"
        assert any("raise KIND".replace("KIND", kind) in line for line in error["traceback"])
    assert got.measured["threads"][0]["error"] is None
    for name in ("benchmark_crash", "benchmark_race_h200"):
        assert differences(got.measured, captured(name)) == []


ONE_BY_ONE = (
    PACED
    + """

import threading
inner, taken = build, set()


def build(device, role, shape):
    step = inner(device, role, shape)

    def checked():
        first = step not in taken
        taken.add(step)
        if first and threading.current_thread() is not threading.main_thread():
            raise RuntimeError("a first step in a thread")
        return step()

    return checked
"""
)


def test_with_the_remedy_one_thread_makes_every_first_step(torch_python, tmp_path):
    workload = write(tmp_path, ONE_BY_ONE)
    got = benchmark(torch_python, workload, prewarm=True)
    assert got.document["errors"] == []
    assert got.measured["phase"] == "done"
    assert got.measured["tok_per_s"] > 0
    without = benchmark(torch_python, workload)
    assert "a first step in a thread" in without.document["errors"][0]["message"]


HANG = PACED + '''

import threading
inner, lock = build, threading.Lock()


def build(device, role, shape):
    def step_that_waits_for_ever():
        lock.acquire()
        return 1

    return step_that_waits_for_ever if role == "drafter" else inner(device, role, shape)
'''  # fmt: skip


def test_a_deadlock_shows_its_stacks(torch_python, tmp_path):
    params = {"workload": write(tmp_path, HANG), "roles": ROLES, **QUICK}
    process = subprocess.Popen(
        [torch_python, "-B", "-c", BOOTSTRAP],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with process.stdin as feed:
        feed.write(json.dumps(request("benchmark", params)).encode())
    # The first drafter to come takes the lock and hangs at its second step, the other at its first.
    while b'"ready": 2' not in process.stderr.readline():
        assert process.poll() is None
    process.terminate()
    got = answer(process.wait(), process.stdout.read(), process.stderr.read())
    process.stdout.close()
    process.stderr.close()
    assert got.code == 1
    assert got.measured["phase"] == "first_steps"
    (error,) = got.document["errors"]
    stacks = "\n".join(error["traceback"])
    assert stacks.count("in step_that_waits_for_ever") == 2
    assert [t["first_steps_s"] is None for t in got.measured["threads"]].count(True) == 1


def test_a_busy_machine_is_told(torch_python, tmp_path):
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        load = benchmark(torch_python, write(tmp_path, PACED)).measured["load"]
    finally:
        busy.kill()
        busy.wait()
    assert load["own_cores"] < 0.5
    assert load["other_cores"] > 0.3
    assert busy.pid in [other["pid"] for other in load["heaviest_others"]]
    assert any("while True: pass" in other["command"] for other in load["heaviest_others"])
