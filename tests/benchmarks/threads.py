"""How often training's threads fail to start, with and without the remedy, and what muting costs.

    python tests/benchmarks/threads.py OUT --device cuda:0 --budget-s 290

The sandbox's training, a target and two drafters, started by the payload of stage 50 in fresh
processes, several beside one another: ``cold`` with an empty compile cache, ``bare`` with one that
a serial process has warmed, ``prewarmed`` with the remedy, ``muted`` with torch's check silenced,
and the last two also alone, for their throughput. Needs a Python with torch and nothing of ours;
``OUT/threads.json`` is written after every process, so that a machine that is taken away leaves what
was measured. Raw documents: see ``helpers/payloads``.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HELPERS = Path(__file__).resolve().parents[2] / "helpers"
PAYLOADS, TRAINING = HELPERS / "payloads", HELPERS / "sandbox" / "repository"
BOOTSTRAP = (PAYLOADS / "bootstrap.py").read_text(encoding="utf-8")
MUTED = "import torch._dynamo\n\ntorch._dynamo.config.error_on_nested_fx_trace = False\n"
LEAST_LEFT_S = 12.0


def roles(device: str) -> list[dict]:
    text = {"batch": 8, "context": 1024}
    shapes = [{**text, "anchors": 64}, {**text, "anchors": 32}]
    return [
        {"name": "target", "devices": [device], "shapes": [text]},
        {"name": "drafter", "devices": [device, device], "shapes": shapes},
    ]


def request(name: str, params: dict) -> bytes:
    """What the bootstrap reads: a payload and all that it imports of its folder."""
    files: dict[str, str] = {}
    waiting = [name]
    while waiting:
        one = waiting.pop()
        files[f"{one}.py"] = source = (PAYLOADS / f"{one}.py").read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            waiting += [
                n for n in names if (PAYLOADS / f"{n}.py").is_file() and f"{n}.py" not in files
            ]
    hashes = {file: hashlib.sha256(text.encode()).hexdigest() for file, text in files.items()}
    return json.dumps(
        {"files": files, "sha256": hashes, "run": f"{name}.py", "params": params}
    ).encode()


class Bench:
    """The processes of one measurement."""

    def __init__(self, folder: Path, out: Path, device: str, budget_s: float) -> None:
        self.until_s = time.monotonic() + budget_s
        self.folder, self.out, self.roles = folder, out / "threads.json", roles(device)
        self.training, self.muted = folder / "training", folder / "muted"
        shutil.copytree(TRAINING, self.training)
        shutil.copytree(TRAINING, self.muted)
        workload = self.muted / "workload.py"
        text = workload.read_text(encoding="utf-8")
        workload.write_text(text.replace("import torch\n", "import torch\n" + MUTED, 1))
        self.kept: dict[str, list[dict]] = {}

    def run(self, key: str, payload: str, cache: str, *, muted: bool = False, **params) -> None:
        """One process; skipped when the budget is spent."""
        left_s = self.until_s - time.monotonic()
        if left_s < LEAST_LEFT_S:
            return
        folder = self.muted if muted else self.training
        asked = {"workload": str(folder / "workload.py"), "roles": self.roles, **params}
        asked["deadline_s"] = min(params.get("deadline_s", 200.0), left_s - 5)
        (self.folder / cache).mkdir(exist_ok=True)
        env = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(self.folder / cache)}
        done = subprocess.run(
            [sys.executable, "-B", "-c", BOOTSTRAP],
            input=request(payload, asked), capture_output=True, env=env,
        )  # fmt: skip
        document = json.loads(done.stdout.decode().splitlines()[-1])
        self.kept.setdefault(key, []).append(document)
        self.out.write_text(json.dumps(self.kept))
        measured = document["measured"]
        failed = sum(bool(t["error"]) for t in measured.get("threads") or [])
        print(key, measured.get("phase"), f"{failed} failed", measured.get("tok_per_s"), flush=True)

    def together(self, key: str, count: int, **params) -> None:
        """So many starts at once."""
        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            list(pool.map(lambda _: self.run(key, "threads", "cache", **params), range(count)))


def main() -> None:
    read = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    read.add_argument("out", type=Path)
    read.add_argument("--device", default="cuda:0")
    read.add_argument("--budget-s", type=float, default=600.0)
    read.add_argument("--only-prewarmed", action="store_true", help="only what the remedy needs")
    given = read.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), given.out, given.device, given.budget_s)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for number in range(0 if given.only_prewarmed else 4):
                pool.submit(bench.run, "cold", "threads", f"cold{number}", deadline_s=90.0)
            bench.run("warm", "warm_cache", "cache", mode="warm")
        bench.run("serial", "warm_cache", "cache", mode="prove")
        bench.run("prewarmed_alone", "threads", "cache", prewarm=True)
        if not given.only_prewarmed:
            bench.run("muted_alone", "threads", "cache", muted=True)
            bench.together("bare", 8)
            bench.together("muted", 3, muted=True)
        bench.together("prewarmed", 10, prewarm=True)
        bench.together("prewarmed", 10, prewarm=True)


if __name__ == "__main__":
    main()
