"""Run folders as the chain leaves them: complete, failed, killed, empty.

Made through the record's own doors, with what real payloads measured as evidence.
"""

import json
from pathlib import Path

import nbformat

from helpers.book import panel
from helpers.book.plots import throughput_view
from helpers.plan import Change, Plan
from helpers.record.pictures import Throughput
from helpers.record.run_folder import RunFolder
from helpers.verdict import Check, Status, Verdict

STAGES = (
    "00_preflight",
    "10_environment",
    "20_sources",
    "30_verify_torch",
    "40_warm_cache",
    "50_threads",
    "60_benchmark",
    "90_report",
)
DIFF = (
    "--- a/dflash_model.py\n+++ b/dflash_model.py\n@@ -1,3 +1,2 @@\n import torch\n"
    "-patched = True\n"
)


def asked(mode="run", stages=STAGES, **more):
    return {
        "mode": mode,
        "approved": mode == "run",
        "target_name": "sandbox",
        "target_file": "/home/operator/runbooks/targets/sandbox.yaml",
        "target_hash": "4a" * 32,
        "target": {"name": "sandbox", "benchmark": {"seconds": 15.0, "tolerance_ratio": 0.8}},
        "stages": stages,
        "operator": "operator",
        "versions": {"python": "3.11.9", "papermill": "2.7.0", "uv": "0.11.0"},
        "runbooks_commit": "1f" * 20,
        **more,
    }


def check(name, status=Status.PASS, measured="2.13.0+cpu", expected="2.13.0+cpu", **more):
    meaning = (
        "" if status is Status.PASS else "Training would run with another build than declared."
    )
    fields = {"source": "target: torch.version", "meaning": meaning, **more}
    return Check(name=name, status=status, measured=measured, expected=expected, **fields)


CHANGE = Change(
    what="set the old venv aside",
    where="/root/venv",
    before="a venv with 214 packages, 4 of them forbidden",
    after="/root/venv.set-aside-20261130T081203Z-sandbox-7f3a",
    undo="mv /root/venv.set-aside-20261130T081203Z-sandbox-7f3a /root/venv",
)
CHECKS = {
    "00_preflight": (
        check("identity", measured="recover-sandbox", expected="recover-sandbox"),
        check("disk space", measured=41_000_000_000, expected="at least 5 GB"),
    ),
    "10_environment": (check("packages", measured=24, expected="as declared"),),
    "20_sources": (check("dflash_model.py", measured="210c008e", expected="210c008e"),),
    "30_verify_torch": (
        check("torch version"),
        check("devices", measured=0, expected="0"),
        check("matrix product", measured=1.2e-7, expected="at most 1e-5 from float64"),
    ),
    "40_warm_cache": (
        check("cache misses", measured=0, expected="0"),
        check("first step, warm", measured=1.21, expected="below the cold one"),
    ),
    "50_threads": (
        check(
            "thread start",
            measured={"verdict": "safe", "failed": "0 of 5", "failure_high_ratio": 0.522},
            expected="in every process all threads get through their first steps",
        ),
    ),
    "60_benchmark": (
        check(
            "throughput",
            measured={"tok_per_s": 1620.9, "baseline_ratio": 0.953, "low_ratio": 0.861},
            expected="at least 80% of the baseline's 1,700 tok/s, by the lower end",
            source="target: benchmark.tolerance_ratio; 95% interval",
        ),
    ),
}
FINDINGS = (
    check("forbidden packages", Status.FAIL, ["sglang 0.5.2", "tilelang 0.1.6"], "none"),
    check(
        "dflash_model.py",
        Status.FAIL,
        "differs from HEAD",
        "as at HEAD",
        source="target: sources",
        meaning="It overrides is_fx_symbolic_tracing: errors are muted and training runs eager.",
    ),
    check("compile cache", Status.DRIFT, "3 files, 19 kB", "a warm cache"),
    check("training log", Status.UNKNOWN, None, "tok/s lines", meaning="There is no log."),
)
CAPTURED = Path(__file__).resolve().parents[1] / "payloads" / "captured"


def captured(name):
    """What a real payload measured on a real container."""
    return json.loads((CAPTURED / f"{name}.json").read_text(encoding="utf-8"))["measured"]


BENCHMARK = captured("benchmark")
BASELINE = 1700.0
WARM, PROVE = captured("warm_cache"), captured("warm_cache_prove")
MEASURED = {
    "40_warm_cache": {
        "warm": WARM,
        "prove": PROVE,
        "first_steps": [
            {**{k: w[k] for k in ("role", "device", "shape")}, "cold_s": c, "warm_s": p}
            for w, c, p in (
                (w, w["first_step_s"], p["first_step_s"])
                for w, p in zip(WARM["entries"], PROVE["entries"], strict=True)
            )
        ],
        "proven": True,
    },
    "60_benchmark": {
        **BENCHMARK,
        "baseline": {"device": "AMD EPYC, 2 cores", "tok_per_s": BASELINE},
        "baseline_at": "/baselines/amd-epyc-2-cores.json",
    },
}
FACTS = {
    "00_preflight": {
        **captured("inventory"),
        "training_log": {"exists": True, "tok_per_s": [900.0] * 5 + [250.0, 248.0, 251.0] * 4},
    }
}


def notebook(stage, *, outputs=(), fails=False):
    """An executed notebook, its cells marked as our engine marks them."""
    cells = [
        nbformat.v4.new_markdown_cell(
            f"# {stage}\nOne sentence that says what it does.\n\n"
            "| changes | takes | undo | next |\n|---|---|---|---|\n"
            "| nothing | 10 s | – | [the next](20_sources.ipynb) |"
        ),
        nbformat.v4.new_markdown_cell("", metadata={"tags": ["operation-note"]}),
    ]
    verdict = Verdict(checks=CHECKS.get(stage, (check("report written"),)))
    views = [
        panel.header_view({"target": "sandbox", "run": "/runs/x", "mode": "APPLY"}),
        panel.facts_view("How it is now", {"venv": {"bytes": 353_000_000, "exists": True}}),
        panel.plan_view(Plan(stage=stage, changes=(CHANGE,), why="The old venv is polluted.")),
        panel.diff_view("dflash_model.py", DIFF),
        panel.verdict_view(verdict),
        panel.banner_view(stage, verdict.status, "1 change made.", "20_sources.ipynb"),
    ]
    if stage == "60_benchmark":
        samples = tuple((b["t_s"], b["tok_per_s"]) for b in BENCHMARK["series"])
        views.insert(3, throughput_view(Throughput(samples, BASELINE, 0.8)))
    for number, view in enumerate(views):
        data = nbformat.v4.new_output("display_data", data=view._repr_mimebundle_())
        cells.append(code_cell(f"stage.step({number})", [data], "completed"))
    cells.append(code_cell("stage.extra()", list(outputs), "completed"))
    if fails:
        said = "torch is 2.12.0+cpu.\n  State: Nothing was changed.\n  Next:  Read the checks."
        error = nbformat.v4.new_output(
            "error", ename="VerificationFailed", evalue=said, traceback=["\x1b[31mboom\x1b[0m"]
        )
        cells[-1] = code_cell("stage.close()", [error], "failed")
        cells.append(code_cell("stage.never()", [], "pending"))
    return nbformat.v4.new_notebook(cells=cells)


def code_cell(source, outputs, state):
    cell = nbformat.v4.new_code_cell(source, outputs=outputs)
    cell.metadata["papermill"] = {"status": state}
    return cell


LOOK = {
    "where": "sandbox",
    "argv": ["python3", "-B", "-c", "<9712 characters, sha256 5d41402abc4b2a76>"],
    "purpose": "find out how the container is",
    "end": "exited",
    "returncode": 0,
    "elapsed_s": 0.412,
    "log_sha256": "0" * 64,
}


def run_stage(folder, stage, *, state="passed", checks=None, error=None, nb=None, findings=()):
    journal = folder.journal
    journal.append("stage_started", stage=stage, pid=1, notebook_sha256="0" * 64)
    journal.append("command", stage=stage, **LOOK, log=f"logs/{stage}/000-look.log")
    if stage == "10_environment":
        for phase in ("begins", "done"):
            change = CHANGE.model_dump(mode="json")
            journal.append("change", stage=stage, phase=phase, change=change, error=None)
        lock = "torch==2.13.0+cpu\nnumpy==2.4.6\nsafetensors==0.8.0\n"
        (folder.path / "evidence" / "10_environment.lock.txt").write_text(lock)
    checks = CHECKS.get(stage, ()) if checks is None else checks
    verdict = Verdict(checks=checks)
    evidence = {
        "schema": 1,
        "stage": stage,
        "facts": FACTS.get(stage, {}),
        "findings": [f.model_dump(mode="json") for f in findings],
        "measured": MEASURED.get(stage),
        "verdict": verdict.model_dump(mode="json") if checks else None,
        "error": error,
        "state": state,
    }
    folder.write_evidence(stage, evidence)
    document = notebook(stage, fails=state != "passed") if nb is None else nb
    nbformat.write(document, folder.notebook(stage))
    journal.append(
        "stage_ended",
        stage=stage,
        state=state,
        elapsed_s=12.34,
        summary="1 changes made." if state == "passed" else "fail: torch version",
        verdict=verdict.status.value,
    )


def complete_run(root):
    folder = RunFolder.create(root, asked())
    for stage in STAGES:
        run_stage(folder, stage, findings=FINDINGS if stage == "00_preflight" else ())
    folder.journal.append("run_ended", outcome="recovered", summary="Throughput is back.")
    return folder


def failed_run(root):
    folder = RunFolder.create(root, asked())
    for stage in STAGES[:3]:
        run_stage(folder, stage, findings=FINDINGS if stage == "00_preflight" else ())
    error = {
        "type": "VerificationFailed",
        "what": "fail: torch version: Training would run with another build than declared.",
        "state": "Nothing was changed on the target.",
        "hint": "Read the checks above; the report lists every change with its undo.",
    }
    bad = (*CHECKS["30_verify_torch"][1:], check("torch version", Status.FAIL, "2.12.0+cpu"))
    run_stage(folder, "30_verify_torch", state="failed", checks=bad, error=error)
    folder.journal.append("run_ended", outcome="failed", summary="30_verify_torch: fail")
    return folder
