"""The report tells whatever a run folder holds, and says of what is missing that it is missing."""

import hashlib
import re
import statistics
import subprocess

import pytest

from helpers.errors import ParameterError
from helpers.record.report import write_report
from helpers.record.run_folder import RunFolder
from tests.testbed.pages import harmless_page
from tests.testbed.run_folders import (
    BASELINE,
    BENCHMARK,
    CHANGE,
    PROVE,
    STAGES,
    WARM,
    asked,
    complete_run,
    failed_run,
    run_stage,
)

NOW = statistics.median(b["tok_per_s"] for b in BENCHMARK["series"])


def report_of(folder):
    path = write_report(folder)
    assert path == folder.path / "report.html"
    assert list(folder.path.rglob("*.part")) == []
    return harmless_page(path)


def tree(path):
    return {
        p.relative_to(path).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(path.rglob("*"))
        if p.is_file()
    }


def test_a_recovered_run_says_why_and_how_much(tmp_path):
    folder = complete_run(tmp_path)
    page = report_of(folder)
    assert page.text.startswith("Recovered · ")
    percent = f"{NOW / BASELINE:.0%}"
    said = f"Training runs at {NOW:,.0f} tok/s, {percent} of the baseline of 1,700 tok/s."
    assert said in page.text
    assert "Before 250 tok/s" in page.text
    assert "in the training log, 15% of the baseline" in page.text
    for name in STAGES:
        assert f"notebooks/{name}.html" in page.addresses
        stage = harmless_page(folder.path / "notebooks" / f"{name}.html")
        assert "../report.html" in stage.addresses
        assert f"{name}.ipynb" in stage.addresses
    assert "Every line of the journal follows from the line before it" in page.text
    assert "torch==2.13.0+cpu" in page.text
    assert page.tags.count("picture") == 2
    alts = re.findall(r'<img [^>]*alt="([^"]+)"', page.source)
    assert any(alt.startswith(f"Throughput over 5.50 s: median {NOW:,.0f}") for alt in alts)
    cold, warm = WARM["entries"][0]["first_step_s"], PROVE["entries"][0]["first_step_s"]
    said = f"target · cpu · batch 2, {cold:.1f} s cold, {warm:.2f} s warm"
    assert any(said in alt for alt in alts)
    assert (folder.path / "report.html").stat().st_size < 250_000


def test_what_was_wrong_is_what_preflight_found(tmp_path):
    page = report_of(complete_run(tmp_path))
    wrong = page.text.split("What was wrong")[1].split("What was changed")[0]
    for words in ("✗ fail forbidden packages : sglang 0.5.2", "≈ drift compile cache", "? unknown"):
        assert words in wrong
    assert "identity" not in wrong


def test_every_change_is_shown_with_its_undo_and_how_far_it_came(tmp_path):
    folder = RunFolder.create(tmp_path, asked())
    phases = {"a": ["begins"], "b": ["begins", "done"], "c": ["begins", "failed"]}
    phases["d"] = ["begins", "done", "undone"]
    for word, seen in phases.items():
        change = CHANGE.model_copy(update={"what": f"change {word}", "undo": f"undo {word}"})
        for phase in seen:
            folder.journal.append(
                "change",
                stage="10_environment",
                phase=phase,
                change=change.model_dump(mode="json"),
                error="the disk is full" if phase in ("failed", "undone") else None,
            )
    text = report_of(folder).text.split("What was changed")[1].split("Checks")[0]
    assert "change a ? begun; its end is not known" in text
    assert "change b ✓ done" in text
    assert "change c ✗ failed" in text
    assert "Error the disk is full" in text
    assert "change d ↩ taken back" in text
    assert "Because the disk is full" in text
    assert all(f"undo {word}" in text for word in "abc")
    assert "undo d" not in text


def test_what_happened_besides_is_told(tmp_path):
    folder = complete_run(tmp_path)
    assert "What happened besides" not in report_of(folder).text
    holder = {"pid": 17, "operator": "root", "run_id": "another"}
    folder.journal.append("lock_taken_over", holder=holder)
    folder.journal.append("run_resumed", left_running=["40_warm_cache"], left_open=1)
    folder.journal.append("stage_reused", stage="20_sources")
    folder.journal.append(
        "stage_again", stage="30_verify_torch", why="its notebook has changed since"
    )
    folder.journal.append(
        "left_work", stage="10_environment", said="install was waited for: finished"
    )
    text = report_of(folder).text.split("What happened besides")[1].split("What was wrong")[0]
    for words in (
        "left by process 17 of root (run another), which is gone.",
        "left open were 40_warm_cache and 1 changes.",
        "20_sources still held and was not run again.",
        "30_verify_torch was run again: its notebook has changed since.",
        "10_environment: install was waited for: finished.",
    ):
        assert words in text


def test_a_run_that_stopped_names_the_check_and_leaves_the_rest_pending(tmp_path):
    folder = failed_run(tmp_path)
    page = report_of(folder)
    assert "In 30_verify_torch, torch version is 2.12.0+cpu, expected 2.13.0+cpu." in page.text
    assert "Failed · " in page.text
    for words in ("40_warm_cache ○ pending – did not run", "60_benchmark ○ pending"):
        assert words in page.text
    assert "Now not measured" in page.text
    assert "Baseline not measured" in page.text
    assert "What failed fail: torch version" in page.text
    assert "What to do Read the checks above" in page.text
    stage = harmless_page(folder.path / "notebooks" / "30_verify_torch.html")
    assert "This cell failed." in stage.text
    assert "This cell did not run." in stage.text
    assert "VerificationFailed" in stage.text
    assert "30_verify_torch.html" not in stage.addresses
    assert "20_sources.html" in stage.addresses


def test_a_killed_runner_leaves_an_unfinished_record(tmp_path):
    folder = RunFolder.create(tmp_path, asked())
    run_stage(folder, "00_preflight")
    folder.journal.append("stage_started", stage="10_environment", pid=1, notebook_sha256="0")
    with (folder.path / "journal.jsonl").open("ab") as file:
        file.write(b'{"seq": 99, "event": "comm')
    page = report_of(folder)
    assert page.text.startswith("Unfinished · ")
    assert "The record has no end. It stops in 10_environment." in page.text
    assert "10_environment ▸ running – begun; its end is not recorded" in page.text
    assert "The record is not whole." in page.text
    assert "is not whole" in page.text.split("How to check this record")[1]
    assert "Recovered" not in page.text


def test_an_empty_run_says_that_nothing_is_known(tmp_path):
    page = report_of(RunFolder.create(tmp_path, asked()))
    assert page.text.startswith("Unfinished · ")
    assert page.text.count("○ pending") == len(STAGES)
    for words in (
        "Not known: preflight has not found out how it was.",
        "Nothing was changed.",
        "No stage has judged anything.",
        "No command was run.",
    ):
        assert words in page.text
    assert page.text.count("not measured") == 3


def test_preflight_without_findings_is_not_preflight_that_never_looked(tmp_path):
    folder = RunFolder.create(tmp_path, asked())
    run_stage(folder, "00_preflight", findings=())
    assert "Nothing: preflight found no symptom." in report_of(folder).text


def test_written_by_its_own_stage_it_tells_what_the_other_stages_say(tmp_path):
    folder = RunFolder.create(tmp_path, asked())
    for stage in STAGES[:-1]:
        run_stage(folder, stage)
    folder.journal.append("stage_started", stage="90_report", pid=1, notebook_sha256="0")
    assert report_of(folder).text.startswith("Recovered · ")


@pytest.mark.parametrize(
    ("stage", "state", "word"),
    [
        ("30_verify_torch", "passed", "Stepped by hand"),
        ("30_verify_torch", "failed", "Failed"),
        ("30_verify_torch", "needs_approval", "Needs approval"),
        ("60_benchmark", "passed", "Recovered"),
    ],
)
def test_a_run_stepped_by_hand(tmp_path, stage, state, word):
    folder = RunFolder.create(tmp_path, asked(mode="step", stages=("00_preflight",)))
    run_stage(folder, "00_preflight")
    run_stage(folder, stage, state=state)  # not among the stages the run was made for
    page = report_of(folder)
    assert page.text.startswith(f"{word} · ")
    assert f"notebooks/{stage}.html" in page.addresses


@pytest.mark.parametrize(
    ("outcome", "word"),
    [
        ("degraded", "Degraded"),
        ("interrupted", "Interrupted"),
        ("planned", "Planned"),
        ("unknown", "Unknown"),
        ("needs_approval", "Needs approval"),
        ("healed", "Unknown"),
    ],
)
def test_every_outcome_has_its_word(tmp_path, outcome, word):
    folder = RunFolder.create(tmp_path, asked())
    run_stage(folder, "00_preflight")
    folder.journal.append("run_ended", outcome=outcome, summary="Because.")
    page = report_of(folder)
    assert page.text.startswith(f"{word} · ")
    assert ("does not know: 'healed'" in page.text) == (outcome == "healed")


def test_it_only_reads_and_gives_the_same_again(tmp_path):
    folder = complete_run(tmp_path)
    before = tree(folder.path)
    write_report(folder)
    once = tree(folder.path)
    write_report(folder)
    made = {name for name in once if name not in before}
    assert {name: once[name] for name in before} == before
    assert made == {"report.html", *(f"notebooks/{name}.html" for name in STAGES)}
    assert tree(folder.path) == once


def test_the_printed_command_gives_the_printed_hash(tmp_path):
    folder = complete_run(tmp_path)
    page = report_of(folder)
    command = re.search(r"sed -n \d+p journal\.jsonl \| tr -d '\\n' \| sha256sum", page.text)[0]
    done = subprocess.run(
        ["sh", "-c", command], cwd=folder.path, capture_output=True, text=True, check=True
    )
    assert done.stdout.split()[0] == folder.journal.head()
    assert folder.journal.head() in page.text


def test_a_changed_journal_shows(tmp_path):
    folder = complete_run(tmp_path)
    path = folder.path / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"elapsed_s": 0.412', b'"elapsed_s": 0.312', 1))
    page = report_of(folder)
    assert "does not follow from the line before it" in page.text
    assert "Every line of the journal follows" not in page.text


def test_what_cannot_be_read_is_said_and_the_rest_is_told(tmp_path):
    folder = complete_run(tmp_path)
    (folder.path / "evidence" / "20_sources.json").write_bytes(b'{"facts": \xff')
    (folder.path / "notebooks" / "30_verify_torch.ipynb").write_bytes(b"")
    (folder.path / "notebooks" / "40_warm_cache.ipynb").write_text('{"cells": [{"a": 1}]}')
    page = report_of(folder)
    assert "evidence/20_sources.json cannot be read" in page.text
    assert "30_verify_torch.ipynb is not a whole notebook" in page.text
    assert "40_warm_cache.ipynb is not a whole notebook" in page.text
    assert "notebooks/30_verify_torch.html" not in page.addresses
    assert "Recovered" in page.text


@pytest.mark.parametrize("junk", [None, [], "text", 7, {"a": None}, [[1]], float(10**300)])
def test_evidence_of_any_shape_is_not_measured(tmp_path, junk):
    folder = RunFolder.create(tmp_path, asked())
    folder.write_evidence("00_preflight", {"facts": {"training_log": junk}, "findings": junk})
    measured = {"tok_per_s": "fast", "series": junk, "baseline": junk, "first_steps": junk}
    for stage in ("40_warm_cache", "60_benchmark"):
        folder.write_evidence(stage, {"facts": junk, "measured": measured, "verdict": None})
    folder.write_evidence("20_sources", {"verdict": {"checks": [junk]}, "error": None})
    page = report_of(folder)
    assert page.text.count("not measured") == 3
    assert "holds a check that cannot be read" in page.text


def test_a_folder_without_its_question_is_refused(tmp_path):
    folder = complete_run(tmp_path)
    (folder.path / "run.json").write_text("{}")
    with pytest.raises(ParameterError, match="not a run of this version"):
        write_report(folder)
