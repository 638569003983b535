"""The journal shows every line that is not as it was written."""

import json
import subprocess
import sys

import pytest

from helpers.record.journal import Journal


@pytest.fixture
def journal(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    for number in range(5):
        journal.append("thing", number=number, text="Größe → ok")
    return journal


def test_events_come_back_in_order(journal):
    assert [e["number"] for e in journal.events()] == list(range(5))
    assert [e["seq"] for e in journal.events()] == list(range(5))
    assert journal.problems() == []


@pytest.mark.parametrize("line", range(4))
def test_a_changed_line_shows_in_the_next(journal, line):
    lines = journal.path.read_text().splitlines()
    lines[line] = lines[line].replace("ok", "OK")
    journal.path.write_text("\n".join(lines) + "\n")
    assert journal.problems() == [f"line {line + 2} does not follow from the line before it"]


def test_a_removed_line_shows(journal):
    lines = journal.path.read_text().splitlines()
    del lines[2]
    journal.path.write_text("\n".join(lines) + "\n")
    assert journal.problems() == ["line 3 does not follow from the line before it"]


def test_the_head_stands_for_the_whole_journal(journal):
    head = journal.head()
    lines = journal.path.read_text().splitlines()
    journal.path.write_text("\n".join(lines[:-1]) + "\n")
    assert journal.head() != head


@pytest.mark.parametrize("cut", [1, 10, 50])
def test_a_line_torn_by_a_crash_is_named_and_the_next_stands_on_its_own(journal, cut):
    journal.path.write_bytes(journal.path.read_bytes()[:-cut])
    if cut > 1:
        assert journal.problems() == ["line 5 is not whole"]
    journal.append("after")
    events = list(journal.events())
    assert events[-1]["event"] == "after"
    assert events[-1]["seq"] == 5


def test_what_is_not_json_is_refused_and_nothing_is_written(journal):
    before = journal.path.read_bytes()
    with pytest.raises(ValueError, match="not JSON compliant"):
        journal.append("thing", number=float("nan"))
    assert journal.path.read_bytes() == before


def test_several_processes_write_one_chain(tmp_path):
    path = tmp_path / "journal.jsonl"
    code = (
        "import sys; from pathlib import Path; from helpers.record.journal import Journal\n"
        "for n in range(40): Journal(Path(sys.argv[1])).append('thing', who=sys.argv[2], n=n)"
    )
    writers = [subprocess.Popen([sys.executable, "-c", code, str(path), str(w)]) for w in range(4)]
    assert [w.wait() for w in writers] == [0] * 4
    journal = Journal(path)
    assert journal.problems() == []
    assert len(path.read_text().splitlines()) == 160
    assert [json.loads(line)["seq"] for line in path.read_text().splitlines()] == list(range(160))
