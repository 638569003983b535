"""A payload's last line is the only word that counts, whatever its exit code says."""

import sys

import pytest

from helpers.errors import CommandTimedOut, PayloadBroken, PayloadError
from helpers.reach import payload as transport
from helpers.reach.local import LocalContainer
from helpers.reach.payload import run_payload


@pytest.fixture
def container():
    return LocalContainer("here")


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Write a payload of the test's own among copies of the real ones."""
    for path in transport.PAYLOADS_FOLDER.glob("*.py"):
        (tmp_path / path.name).write_text(path.read_text())
    monkeypatch.setattr(transport, "PAYLOADS_FOLDER", tmp_path)
    return lambda source: (tmp_path / "mine.py").write_text(source)


def ask(container, **more):
    return run_payload(container, "mine", {}, python=sys.executable, purpose="test", **more)


def test_a_real_payload_comes_back_with_what_it_measured(container, tmp_path):
    (tmp_path / "marker").write_text("it is me\n")
    document = run_payload(
        container,
        "inventory",
        {"sections": ["machine"], "marker_file": str(tmp_path / "marker")},
        python=sys.executable,
        purpose="look at the machine",
    )
    assert document.payload == "inventory"
    assert document.measured["machine"]["marker"] == "it is me"
    assert document.errors == []


def test_a_parameter_it_does_not_know_is_refused(container):
    with pytest.raises(PayloadError, match="refused its parameters"):
        run_payload(container, "inventory", {"nonsense": 1}, python=sys.executable, purpose="test")


@pytest.mark.parametrize(
    "source",
    [
        "print('all is well')",
        "import os; print('{', flush=True); os._exit(0)",
        "raise SystemExit(0)",
        "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
        "print('[1, 2]')",
    ],
)
def test_without_its_document_a_payload_is_broken_even_with_exit_code_0(container, written, source):
    written(source)
    with pytest.raises(PayloadBroken) as caught:
        ask(container, changes=True)
    assert caught.value.changed == "unknown"


def test_progress_arrives_line_by_line(container, written):
    written(
        "import sys\n"
        'sys.stderr.write(\'{"progress": {"n": 1}}\\n{"prog\'); sys.stderr.flush()\n'
        'sys.stderr.write(\'ress": {"n": 2}}\\nother\\n\')\n'
    )
    seen = []
    with pytest.raises(PayloadBroken):
        ask(container, on_progress=seen.append)
    assert seen == [{"n": 1}, {"n": 2}]


def test_a_payload_that_hangs_is_ended(container, written, monkeypatch):
    monkeypatch.setattr(transport, "_BACKSTOP_S", 0.5)
    written("import time; time.sleep(60)")
    with pytest.raises(CommandTimedOut):
        ask(container, deadline_s=0.5)
