"""What every payload can rely on, by hand and sent, on every Python that is here."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.payloads.conftest import answer, by_hand, sent

# A mutex locked twice never comes back, and no signal interrupts it. CDLL lets go of the
# interpreter's lock meanwhile, PyDLL keeps it.
DEADLOCK = (
    "mutex = ctypes.create_string_buffer(64)\n"
    "for _ in range(2): ctypes.{}(None).pthread_mutex_lock(mutex)"
)
RELEASES_LOCK = DEADLOCK.format("CDLL")
HOLDS_LOCK = DEADLOCK.format("PyDLL")


def start(file: Path, params: dict) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-B", str(file), json.dumps(params)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def end(process: subprocess.Popen):
    stdout, stderr = process.communicate(timeout=60)
    return answer(process.returncode, stdout, stderr)


def test_document_and_progress(trial, python):
    file = trial('reporter.progress(done=1, of=params["count"])\nreporter.measured["x"] = (1, {2})')
    for got in (by_hand(file, {"count": 2}, python=python),
                sent("trial", {"count": 2}, python=python, folder=file.parent)):  # fmt: skip
        assert got.code == 0
        assert got.document["payload"] == "trial"
        assert got.document["schema"] == 3
        assert got.document["params"] == {
            "count": 2, "ratio": 0.5, "names": [], "mode": "a", "kinds": [], "quiet": False,
            "note": None, "deadline_s": 600.0,
        }  # fmt: skip
        assert got.measured == {"first": 1, "x": [1, [2]]}
        assert got.document["errors"] == []
        assert got.progress == [{"done": 1, "of": 2}]
        assert got.document["started_at"].endswith("Z")


def test_progress_comes_at_once(trial):
    process = start(trial("reporter.progress(done=1)\ntime.sleep(30)"), {"count": 1})
    assert json.loads(process.stderr.readline()) == {"progress": {"done": 1}}
    assert process.poll() is None
    process.terminate()
    assert end(process).code == 1


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({}, "parameter 'count' is missing"),
        ({"count": 1, "colour": 2}, "unknown parameter 'colour'"),
        ({"count": "1"}, "parameter 'count' must be int, not '1'"),
        ({"count": True}, "parameter 'count' must be int, not True"),
        ({"count": None}, "parameter 'count' must be int, not None"),
        ({"count": 1, "ratio": "x"}, "parameter 'ratio' must be float, not 'x'"),
        ({"count": 1, "ratio": float("nan")}, "parameter 'ratio' must be float, not nan"),
        ({"count": 1, "names": "ab"}, "parameter 'names' must be list, not 'ab'"),
        ({"count": 1, "names": ["a", 1]}, "parameter 'names' must hold only str, not 1"),
        ({"count": 1, "mode": "c"}, "parameter 'mode' must be one of a, b, not 'c'"),
        ({"count": 1, "kinds": ["x", "z"]}, "parameter 'kinds' must be one of x, y, not 'z'"),
        ({"count": 1, "quiet": 0}, "parameter 'quiet' must be bool, not 0"),
        ({"count": 1, "deadline_s": "soon"}, "parameter 'deadline_s' must be float, not 'soon'"),
        ([1], "the parameters must be one JSON object"),
    ],
)
def test_refuses_wrong_parameters(trial, params, complaint):
    got = by_hand(trial(""), params)
    assert got.code == 2
    refused = [e["message"] for e in got.document["errors"] if e["type"] == "ParamsRefused"]
    assert refused == [complaint]
    assert got.measured == {}


def test_names_everything_wrong_at_once(trial):
    got = by_hand(trial(""), {"colour": 1, "ratio": "x"})
    assert len(got.document["errors"]) == 3


def test_refusal_while_measuring(trial):
    got = by_hand(trial('raise ParamsRefused("no such folder")'), {"count": 1})
    assert got.code == 2
    assert got.document["errors"][0]["message"] == "no such folder"


def test_nothing_printed_can_spoil_the_last_line(trial, python):
    body = """
print("python without an end", end="")
os.write(1, b"straight to the descriptor, no end")
ctypes.CDLL(None).printf(b"held in C's own buffer")
subprocess.run(["echo", "a child process"])
sys.__stdout__.write("the original stream")
"""
    file = trial(body, before='os.write(1, b"before the protocol begins, no end")\n')
    got = by_hand(file, {"count": 1}, python=python)
    assert got.code == 0
    assert "before the protocol begins" in got.stdout.splitlines()[0]
    for words in ("python without", "straight to", "a child process", "the original"):
        assert words in got.stderr
        assert words not in got.stdout


def test_what_is_not_a_number_becomes_null(trial):
    body = 'reporter.measured.update(a=float("nan"), b=[1.0, float("-inf")], c={1: 2})'
    got = by_hand(trial(body), {"count": 1})
    assert got.code == 0
    assert got.measured == {"first": 1, "a": None, "b": [1.0, None], "c": {"1": 2}}
    assert [(e["where"], e["type"], e["message"]) for e in got.document["errors"]] == [
        ("measured.a", "NotFinite", "nan"), ("measured.b[1]", "NotFinite", "-inf"),
    ]  # fmt: skip


def test_any_bytes_in_a_file_name(trial):
    got = by_hand(trial('reporter.measured["name"] = os.fsdecode(b"caf\\xe9")'), {"count": 1})
    assert got.measured["name"] == "caf\\udce9"


@pytest.mark.parametrize("way", ['raise ValueError("no")', "sys.exit(0)", "sys.exit('gone')"])
def test_an_exception_keeps_what_was_measured(trial, way, python):
    got = by_hand(trial(way), {"count": 1}, python=python)
    assert got.code == 1
    assert got.measured == {"first": 1}
    (error,) = got.document["errors"]
    assert error["where"] == "measure"
    assert any(way in line for line in error["traceback"])


def test_a_guarded_part_leaves_the_rest(trial):
    body = 'with reporter.guard("part"):\n    1 / 0\nreporter.measured["rest"] = True'
    got = by_hand(trial(body), {"count": 1})
    assert got.code == 0
    assert got.measured["rest"]
    assert got.document["errors"][0]["type"] == "ZeroDivisionError"


def test_what_cannot_be_shown_is_said(trial):
    body = """
class Odd:
    def __str__(self):
        raise RuntimeError("no words")
reporter.measured["odd"] = Odd()
"""
    got = by_hand(trial(body), {"count": 1})
    assert got.measured == {}
    assert got.document["errors"][-1]["where"] == "document"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("hang", ["time.sleep(60)", RELEASES_LOCK, "threading.Event().wait()"])
def test_a_signal_ends_it_with_a_document(trial, number, hang):
    process = start(trial(f"reporter.progress(now=1)\n{hang}"), {"count": 1})
    process.stderr.readline()
    began = time.monotonic()
    process.send_signal(number)
    got = end(process)
    assert time.monotonic() - began < 10
    assert got.code == 1
    assert got.measured == {"first": 1}
    assert got.document["errors"][0]["where"] == "signal"
    assert got.document["errors"][0]["type"] == number.name
    assert any("trial.py" in line for line in got.document["errors"][0]["traceback"])


def test_what_a_signal_interrupts_is_not_taken_for_done(trial):
    process = start(trial("reporter.progress(now=1)\nctypes.CDLL(None).sleep(60)"), {"count": 1})
    process.stderr.readline()
    time.sleep(0.2)
    process.terminate()
    assert end(process).code == 1


def test_nohup_is_respected(trial):
    file = trial('os.kill(os.getpid(), 1)\ntime.sleep(0.5)\nreporter.measured["alive"] = True')
    done = subprocess.run(
        ["nohup", sys.executable, "-B", str(file), '{"count": 1}'], capture_output=True, timeout=60
    )
    assert answer(done.returncode, done.stdout, done.stderr).measured["alive"]


@pytest.mark.parametrize("hang", ["time.sleep(60)", RELEASES_LOCK, "while True: pass"])
def test_the_deadline_dumps_all_stacks(trial, hang):
    body = f"""
def stuck_helper():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
threading.Thread(target=stuck_helper, daemon=True).start()
{hang}
"""
    got = by_hand(trial(body), {"count": 1, "deadline_s": 1})
    assert got.code == 1
    assert got.measured == {"first": 1}
    (error,) = got.document["errors"]
    assert (error["where"], error["type"]) == ("watchdog", "DeadlineExceeded")
    stacks = "\n".join(error["traceback"])
    assert "in stuck_helper" in stacks
    assert "in measure" in stacks
    assert got.document["elapsed_s"] < 15


def test_a_hang_that_holds_the_lock_ends_too(trial):
    process = start(
        trial(HOLDS_LOCK, before="protocol.BACKSTOP_AFTER_S = 1\n"), {"count": 1, "deadline_s": 1}
    )
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert stdout == b""
    assert b"in measure" in stderr


def test_a_thread_that_never_ends_does_not_keep_it(trial):
    got = by_hand(trial("threading.Thread(target=time.sleep, args=(60,)).start()"), {"count": 1})
    assert got.code == 0
    assert got.document["elapsed_s"] < 15


def test_a_thread_that_still_writes_does_not_spoil_the_document(trial):
    body = """
def scribble():
    n = 0
    while True:
        n += 1
        reporter.measured[f"key{n % 5000}"] = [n]
threading.Thread(target=scribble, daemon=True).start()
time.sleep(0.5)
"""
    for _ in range(5):
        assert by_hand(trial(body), {"count": 1}).code == 0


@pytest.mark.parametrize("way", ["pass", "1 / 0", "time.sleep(60)"])
def test_it_clears_up_however_it_ends(trial, tmp_path, way):
    scratch = tmp_path / "scratch"
    body = f"os.mkdir({str(scratch)!r})\nreporter.at_end(lambda: os.rmdir({str(scratch)!r}))\n{way}"
    by_hand(trial(body), {"count": 1, "deadline_s": 2})
    assert not scratch.exists()


def test_a_reader_that_is_gone_does_not_keep_it(trial):
    process = start(trial("reporter.progress(now=1)\ntime.sleep(1)"), {"count": 1})
    process.stderr.readline()
    process.stdout.close()
    process.stderr.close()
    assert process.wait(timeout=20) == 0
