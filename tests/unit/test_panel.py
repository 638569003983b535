"""What cells show: readable in a terminal, harmless in a notebook, never by colour alone."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.book import panel
from helpers.book.plots import first_steps_view
from helpers.book.progress import progress_view
from helpers.errors import CommandFailed, HostUnreachable
from helpers.plan import LATER, Change, Plan
from helpers.reach.command import Command, CommandResult
from helpers.record.pictures import FirstStep, FirstSteps
from helpers.record.wording import visible
from helpers.verdict import Check, Status, Verdict
from tests.testbed.pages import Fragment, harmless_view

PROJECT = Path(__file__).resolve().parents[2]
EVIL = "</td></table></details><script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m\u202e"


def a_check(name="torch version", status=Status.FAIL, **more):
    fields = {
        "measured": "2.12.0+cpu",
        "expected": "2.13.0+cpu",
        "source": "target: torch.version",
        "meaning": "" if status is Status.PASS else "Another build than declared.",
    }
    return Check(name=name, status=status, **{**fields, **more})


def a_change(**more):
    fields = {
        "what": "set the old venv aside",
        "where": "/root/venv",
        "before": "a venv with 214 packages",
        "after": LATER,
        "undo": "mv /root/venv.set-aside-x /root/venv",
    }
    return Change(**{**fields, **more})


def a_command_error():
    command = Command(argv=("uv", "pip", "check"), purpose="check the packages")
    result = CommandResult(
        command, "sandbox", "exited", 1, b"", b"first line\n" + EVIL.encode() + b"\n", "now", 0.1
    )
    return CommandFailed("uv pip check said no.", result=result, hint="Read it.", changed="no")


def test_a_plan_shows_every_change_with_its_undo():
    plan = Plan(stage="10_environment", changes=(a_change(),), measures=("pip check",), why="Old.")
    view = panel.plan_view(plan)
    parsed = harmless_view(view)
    for words in (parsed.text, view.text.replace("\n", " ")):
        assert "1 change would be made." in words
        assert "/root/venv" in words
        assert LATER in words
        assert "pip check" in words
    assert "mv /root/venv.set-aside-x /root/venv" in parsed.text
    assert "     undo:       mv /root/venv.set-aside-x /root/venv" in view.text.splitlines()
    assert plan.hash[:12] in parsed.text


def test_a_plan_without_changes_says_so_plainly():
    view = panel.plan_view(Plan(stage="20_sources", why="The files are as at HEAD."))
    assert view.text.startswith("Nothing to change. The files are as at HEAD.")
    assert "table" not in harmless_view(view).tags


def test_a_verdict_begins_with_the_deciding_check_and_lists_the_worst_first():
    checks = (a_check("devices", Status.PASS), a_check("clock", Status.UNKNOWN), a_check())
    view = panel.verdict_view(Verdict(checks=checks))
    parsed = harmless_view(view)
    assert view.text.startswith(
        "✗ fail — torch version: 2.12.0+cpu, expected 2.13.0+cpu. Another build than declared."
    )
    order = [parsed.text.rindex(name) for name in ("torch version", "clock", "devices")]
    assert order == sorted(order)
    for symbol_and_word in ("✗ fail", "? unknown", "✓ pass"):
        assert symbol_and_word in parsed.text


def test_what_it_means_is_shown_only_when_something_is_not_a_pass():
    passing = panel.verdict_view(Verdict(checks=(a_check(status=Status.PASS),)))
    assert "what it means" not in passing.text
    assert "The one check holds." in passing.text
    assert "what it means" in panel.checks_view("Now", [a_check()]).text


def test_no_check_at_all_is_unknown():
    assert "? unknown — Nothing was checked" in panel.verdict_view(Verdict(checks=())).text


def test_tables_have_headings_for_columns_and_rows():
    rows = [["target", 1.5, Status.PASS], ["drafter", None, Status.DRIFT]]
    view = panel.table_view("First steps", ["role", "first_step_s", "status"], rows)
    parsed = harmless_view(view)
    assert ("scope", "col") in parsed.attributes
    assert parsed.attributes.count(("scope", "row")) == 2
    assert "caption" in parsed.tags
    assert "1.50 s" in parsed.text
    assert "not measured" in parsed.text
    assert "≈ drift" in parsed.text


def test_facts_are_named_by_path_and_said_in_their_unit():
    facts = {"venv": {"bytes": 353_000_000, "exists": True, "python": None}, "cores": 2}
    view = panel.facts_view("How it is now", facts)
    harmless_view(view)
    flat = " ".join(view.text.split())
    assert "venv · bytes 353 MB" in flat
    assert "venv · exists yes" in flat
    assert "venv · python not measured" in flat


def test_many_facts_are_cut_and_what_is_left_out_is_said():
    view = panel.facts_view("Packages", {f"p{n}": "1.0" for n in range(500)})
    assert "… and 440 more" in harmless_view(view).text
    assert len(view.html) < 60_000


def test_an_error_shows_its_three_sentences_before_anything_else():
    view = panel.error_view(a_command_error())
    parsed = harmless_view(view)
    places = [parsed.text.index(w) for w in ("What failed:", "State now:", "Next:", "Last lines")]
    assert places == sorted(places)
    assert "Nothing was changed on the target." in parsed.text
    unreachable = panel.error_view(HostUnreachable("No answer.", hint="Try the console."))
    assert "Last lines" not in unreachable.text


def test_a_banner_links_the_next_notebook_beside_it():
    view = panel.banner_view("20_sources", Status.PASS, "1 change made.", "30_verify_torch.ipynb")
    parsed = harmless_view(view)
    assert ("href", "30_verify_torch.ipynb") in parsed.attributes
    assert "Next: 30_verify_torch.ipynb" in view.text
    assert "a" not in harmless_view(panel.banner_view("90_report", Status.PASS, "Done.", None)).tags


def test_a_diff_reads_without_colour():
    diff = "--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n import torch\n-patched = True\n+patched = 1\n"
    view = panel.diff_view("x.py", diff)
    parsed = harmless_view(view)
    assert "-patched = True" in parsed.text
    assert "del" in parsed.tags
    assert "ins" in parsed.tags
    assert "(−1, +1 lines)" in view.text
    assert "no difference" in panel.diff_view("x.py", "").text
    assert "more lines" in panel.diff_view("x.py", "+a\n" * 1000).text


def test_the_header_says_whether_anything_may_change():
    rows = {"target": "sandbox", "run": "/runs/1", "mode": "DRY RUN: nothing changes"}
    view = panel.header_view(rows)
    harmless_view(view)
    assert view.text.splitlines()[0] == "DRY RUN: nothing changes"
    assert "sandbox" in view.text


@pytest.mark.parametrize(
    "view",
    [
        panel.header_view({"target": EVIL, "run": EVIL, "mode": EVIL}),
        panel.table_view(EVIL, [EVIL, "b"], [[EVIL, [EVIL]], [{EVIL: EVIL}, Status.FAIL]]),
        panel.facts_view(EVIL, {EVIL: {EVIL: EVIL}}),
        panel.plan_view(
            Plan(
                stage=EVIL,
                why=EVIL,
                measures=(EVIL,),
                changes=(a_change(what=EVIL, where=EVIL, before=EVIL, after=EVIL, undo=EVIL),),
            )
        ),
        panel.verdict_view(
            Verdict(
                checks=(a_check(EVIL, measured=EVIL, expected=EVIL, source=EVIL, meaning=EVIL),)
            )
        ),
        panel.diff_view(EVIL, f"+{EVIL}\n-{EVIL}\n@@{EVIL}\n {EVIL}"),
        panel.error_view(a_command_error()),
        panel.error_view(HostUnreachable(EVIL, hint=EVIL)),
        panel.banner_view(EVIL, Status.FAIL, EVIL, 'javascript:alert(1)" onclick="alert(1)'),
        panel.note_view(EVIL),
        progress_view(visible(EVIL), 0.4, 1.0),
        first_steps_view(FirstSteps((FirstStep(EVIL, 1.0, None),))),
    ],
)
def test_hostile_text_stays_text(view):
    parsed = harmless_view(view)
    assert not [value for _, value in parsed.attributes if value.startswith("javascript:")]
    assert [tag for tag in parsed.tags if tag == "img"] in ([], ["img"])


@given(st.text(max_size=300))
def test_any_text_makes_a_whole_fragment(text):
    Fragment(panel.facts_view(text, {text: text}).html)
    Fragment(panel.note_view(text).html)
    Fragment(panel.diff_view(text, text).html)


def test_views_and_report_load_what_is_heavy_only_when_they_draw():
    source = (
        "import sys, helpers.book.panel, helpers.record.report, helpers.record.measured\n"
        "print({'matplotlib', 'nbconvert', 'nbformat'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", source], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
