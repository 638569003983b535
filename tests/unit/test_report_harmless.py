"""Nothing in a run folder can make its report do more than be read."""

import re

import nbformat
from hypothesis import given
from hypothesis import strategies as st

from helpers.record.harmless import harmless
from helpers.record.report import write_report
from helpers.record.run_folder import RunFolder
from helpers.verdict import Status
from tests.testbed.pages import VOID, harmless_page
from tests.testbed.run_folders import asked, check, notebook, run_stage

EVIL = "</details></section></main><script>alert('x')</script><img src=x onerror=alert(1)>"
EVIL_HTML = (
    "</div></section></main></body></html><script src=//evil.example/a.js></script>"
    "<style>*{display:none}</style><iframe src=https://evil.example></iframe>"
    "<a href='javascript:alert(1)' onclick='alert(2)'>one</a>"
    "<a href='data:text/html,<script>alert(3)</script>'>two</a>"
    "<img src='https://evil.example/pixel.png'><img src='//evil.example/p.png' onerror=alert(4)>"
    "<svg onload=alert(5)><script>alert(6)</script></svg><math><mi xlink:href='javascript:x'>"
    "<form action=https://evil.example><input name=q></form><base href=https://evil.example>"
    "<meta http-equiv=refresh content='0;url=https://evil.example'>"
    "<p style='background:url(https://evil.example/b.png);position:fixed;color:#a00'>three</p>"
    "<details open><summary>left open"
)


def test_hostile_text_in_the_record_stays_text(tmp_path):
    folder = RunFolder.create(tmp_path, asked(operator=EVIL, versions={EVIL: EVIL}))
    change = dict.fromkeys(("what", "where", "before", "after", "undo"), EVIL + "\x1b[2J\u202e")
    folder.journal.append("stage_started", stage="00_preflight", pid=1, notebook_sha256="0")
    folder.journal.append("change", stage=EVIL, phase=EVIL, change=change, error=EVIL)
    folder.journal.append("command", stage=EVIL, argv=[EVIL], purpose=EVIL, end=EVIL, log=EVIL)
    bad = check(EVIL, Status.FAIL, [EVIL, {EVIL: EVIL}], EVIL, source=EVIL, meaning=EVIL)
    error = dict.fromkeys(("type", "what", "state", "hint"), EVIL)
    nb = notebook("00_preflight", outputs=hostile_outputs())
    run_stage(
        folder, "00_preflight", state="failed", checks=(bad,), error=error, nb=nb, findings=(bad,)
    )
    (folder.path / "evidence" / "10_environment.lock.txt").write_text(EVIL)
    folder.journal.append("run_ended", outcome="failed", summary=EVIL)
    page = harmless_page(write_report(folder))
    assert "alert('x')" in page.text  # as words
    stage = harmless_page(
        folder.path / "notebooks" / "00_preflight.html", links=("https://example.org/issue",)
    )
    assert "<script>alert('stream')</script>" in stage.text
    assert "one two" in " ".join(stage.text.split())
    assert "https://evil.example" not in "".join(stage.addresses)
    assert "position" not in stage.source.split("</style>")[1]
    assert "https://example.org/issue" in stage.addresses


def hostile_outputs():
    bundle = {
        "text/html": EVIL_HTML,
        "application/javascript": "alert(1)",
        "text/plain": "never shown",
    }
    svg = (
        "<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><script>alert(2)</script></svg>"
    )
    v4 = nbformat.v4
    return [
        v4.new_output("display_data", data=bundle),
        v4.new_output("display_data", data={"application/javascript": "alert(1)"}),
        v4.new_output("display_data", data={"image/svg+xml": svg}),
        v4.new_output("display_data", data={"image/png": "'\"><script>alert(1)</script>"}),
        v4.new_output(
            "display_data",
            data={
                "text/markdown": "[x](javascript:alert(1)) [issue](https://example.org/issue) "
                f"[up](../../../etc/passwd)\n\n{EVIL_HTML}"
            },
        ),
        v4.new_output(
            "stream",
            name="stdout",
            text="\x1b[31m<script>alert('stream')</script>\x1b[0m\x1b]0;t\x07",
        ),
        v4.new_output("error", ename=EVIL, evalue=EVIL, traceback=[EVIL, "\x1b[1m</pre>\x1b[0m"]),
    ]


def test_huge_output_is_head_and_tail(tmp_path):
    folder = RunFolder.create(tmp_path, asked())
    lines = "".join(f"line {n}\n" for n in range(200_000))
    v4 = nbformat.v4
    outputs = [
        v4.new_output("stream", name="stdout", text=lines),
        v4.new_output("stream", name="stderr", text="x" * 3_000_000),
        v4.new_output("display_data", data={"text/html": "<b>y</b>" * 500_000}),
        v4.new_output("display_data", data={"image/png": "A" * 5_000_000}),
    ]
    run_stage(folder, "00_preflight", nb=notebook("00_preflight", outputs=outputs))
    harmless_page(write_report(folder))
    path = folder.path / "notebooks" / "00_preflight.html"
    page = harmless_page(path)
    assert "line 0 line 1" in page.text
    assert "line 199999" in page.text
    assert "199,820 lines left out here" in page.text
    assert "An output of 4.00 MB is left out" in page.text
    assert path.stat().st_size < 100_000


def test_masked_secrets_stay_masked(tmp_path):
    target = {"name": "sandbox", "token": "***"}
    folder = RunFolder.create(tmp_path, asked(target=target))
    argv = ["curl", "-H", "Authorization: ***", "https://index.example/simple"]
    folder.journal.append("command", stage="10_environment", argv=argv, purpose="ask", end="exited")
    assert (
        "curl -H Authorization: *** https://index.example/simple"
        in harmless_page(write_report(folder)).text
    )


@given(st.text("<>/=\"' abdegilmnoprstu-:", max_size=200) | st.sampled_from([EVIL, EVIL_HTML]))
def test_no_fragment_breaks_out(fragment):
    cleaned = harmless(fragment)
    assert harmless(cleaned) == cleaned
    assert not re.search(r"<(script|style|iframe|svg|form|object|/section|/main)", cleaned)
    opened = [t for t in re.findall(r"<([a-z0-9]+)", cleaned) if t not in VOID]
    assert sorted(opened) == sorted(re.findall(r"</([a-z0-9]+)>", cleaned))
