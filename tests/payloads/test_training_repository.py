"""The sandbox's training repository: it is real training code, so it is tested as such.

The scripts are run by a Python that has torch, in processes of their own.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

SANDBOX = Path(__file__).resolve().parents[2] / "helpers" / "sandbox"
REPOSITORY = SANDBOX / "repository"
PATCH = SANDBOX / "hacks" / "dflash_model.patch"
PROGRESS = re.compile(
    r"step=(\d+) loss=(\d+\.\d{4}) accuracy=(\d\.\d{4}) tok_per_s=(\d+\.\d) elapsed_s=(\d+\.\d)"
)
SMALL = ["--context", "48", "--anchors", "2", "--token-budget", "160", "--log-interval", "5"]


def environment(cache: Path, *, compiler: bool) -> dict[str, str]:
    """What a training process sees; without compiler the same code runs eagerly, at once."""
    extra = {
        "PYTHONDONTWRITEBYTECODE": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    return {**os.environ, **extra} | ({} if compiler else {"TORCHDYNAMO_DISABLE": "1"})


def run_script(python, folder, script, cache, *, compiler=False):
    """Run a script beside the training code; returns the JSON document that it printed last."""
    done = subprocess.run(
        [python, "-c", script],
        cwd=folder,
        env=environment(cache, compiler=compiler),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def cache(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("cache")


MASK = """
import torch
from torch.nn.attention.flex_attention import create_mask
from dflash_model import draft_rule
anchors = torch.tensor([[1, 4, 9], [2, 3, 12]])
mask = create_mask(draft_rule(anchors, 16, 4), 2, None, 12, 28, device="cpu")
answer = {"shape": list(mask.shape), "mask": mask[:, 0].tolist()}
"""

SAME = """
import torch, dflash_model
from torch.nn.attention.flex_attention import BlockMask
torch.manual_seed(0)
settings = dflash_model.Settings()
drafter = dflash_model.Drafter(settings)
tokens, hidden = torch.randint(256, (2, 64)), torch.randn(2, 64, 2 * settings.width)
anchors = torch.tensor([[1, 20, 48], [5, 6, 33]])
used, attend = [], dflash_model.attend
def watched(query, key, value, visible):
    used.append(isinstance(visible, BlockMask))
    return attend(query, key, value, visible)
dflash_model.attend = watched
dense = drafter.draft(tokens, hidden, anchors, drafter.visible(tokens, anchors))
with torch.no_grad():
    flex = drafter.draft(tokens, hidden, anchors, drafter.visible(tokens, anchors))
difference = (dense - flex).abs().max() / flex.std()
answer = {"flex": used, "difference": difference.item()}
"""

LOSS = """
import math, torch
from dflash_model import block_loss
torch.manual_seed(0)
logits, wanted = torch.randn(2, 3, 4, 10), torch.randint(10, (2, 3, 4))
loss, accuracy = block_loss(logits, wanted, 7.0)
weights = [0.0] + [math.exp(-k / 7.0) for k in range(3)]
costs = -logits.log_softmax(-1).gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
expected = (costs * torch.tensor(weights)).sum() / (6 * sum(weights))
right = (logits.argmax(-1) == wanted)[..., 1:].float().mean()
answer = [loss.item(), expected.item(), accuracy.item(), right.item()]
"""

REFUSED = """
import workload
text = {"batch": 1, "context": 32}
answer = []
for role, shape in [("writer", {}), ("target", {"batch": 1}), ("target", {**text, "anchors": 1})]:
    try:
        workload.build("cpu", role, shape)
    except ValueError as error:
        answer.append(str(error))
"""


@pytest.fixture(scope="module")
def answers(torch_python, cache):
    """What the four scripts above found, all in one process: most of its time is torch's import."""
    scripts = {"mask": MASK, "same": SAME, "loss": LOSS, "refused": REFUSED}
    parts = [f"{script}\nanswers[{name!r}] = answer" for name, script in scripts.items()]
    whole = "\n".join(["answers = {}", *parts, "import json", "print(json.dumps(answers))"])
    return run_script(torch_python, REPOSITORY, whole, cache)


def test_a_block_sees_the_context_before_its_anchor_and_all_of_itself(answers):
    found = answers["mask"]
    assert found["shape"] == [2, 1, 12, 28]
    for text, anchors in enumerate([[1, 4, 9], [2, 3, 12]]):
        for query, row in enumerate(found["mask"][text]):
            block = query // 4
            itself = {16 + 4 * block + place for place in range(4)}
            assert {key for key, visible in enumerate(row) if visible} == {
                *range(anchors[block]),
                *itself,
            }


def test_flex_and_dense_attention_agree(answers):
    same = answers["same"]
    assert same["flex"] == [False, False, True, True]  # two layers with gradients, then without
    assert same["difference"] < 1e-4


def test_later_places_count_less_and_the_anchor_not_at_all(answers):
    loss, expected, accuracy, right = answers["loss"]
    assert loss == pytest.approx(expected, rel=1e-5)
    assert accuracy == pytest.approx(right)


def test_an_unknown_role_or_shape_is_refused_by_name(answers):
    role, missing, surplus = answers["refused"]
    assert "'writer'" in role
    assert "drafter" in role
    assert "['batch', 'context'], has ['batch']" in missing
    assert "'anchors'" in surplus


GRAPHS = """
import json, torch, dflash_model
from torch._dynamo.utils import counters
compile = torch.compile
def traced(model, fullgraph, dynamic, options):
    return compile(model, fullgraph=fullgraph, dynamic=dynamic, backend="eager")
torch.compile = traced
settings, device, graphs = dflash_model.Settings(drafter_layers=1), torch.device("cpu"), []
def steps(anchors):
    tokens, hidden = torch.zeros(1, 64, dtype=torch.long), torch.zeros(1, 64, 256)
    for drafter in drafters:
        for anchor in (1, 20):
            drafter(tokens, hidden, torch.full((1, anchors), anchor))
    graphs.append(counters["stats"]["unique_graphs"])
drafters = [dflash_model.compile_drafter(dflash_model.Drafter(settings), device) for _ in range(2)]
for anchors in [*range(1, 11), 1]:
    steps(anchors)
with torch.no_grad():
    steps(1)
print(json.dumps({"graphs": graphs, "breaks": sum(counters["graph_break"].values())}))
"""


def test_a_drafter_is_one_graph_for_each_shape_whatever_its_anchors(torch_python, cache):
    # Traced and not lowered: what becomes a graph is the tracer's business, and lowering is slow.
    found = run_script(torch_python, REPOSITORY, GRAPHS, cache, compiler=True)
    assert found["breaks"] == 0
    # Ten shapes, more than torch's usual limit; again the first; without gradients another one.
    assert found["graphs"] == [*range(1, 11), 10, 11]


CONTRACT = """
import functools, json, threading, torch, workload
from torch._dynamo.utils import counters
# One layer of each: the compiler's time goes with the layers, what is asked of it here does not.
workload.Settings = functools.partial(
    workload.Settings, target_layers=1, tapped_layers=(0,), drafter_layers=1)
text = {"batch": 1, "context": 32}
built = [("target", text), ("drafter", {**text, "anchors": 1})]
tokens = [workload.build("cpu", *which)() for which in built]
graphs, results = [counters["stats"]["unique_graphs"]], []
def work(which):
    step = workload.build("cpu", *which)
    results.append([step() for _ in range(5)])
threads = [threading.Thread(target=work, args=(which,)) for which in [*built, built[1]]]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
graphs.append(counters["stats"]["unique_graphs"])
print(json.dumps({"tokens": tokens, "graphs": graphs, "threads": sorted(results),
    "cache": dict(counters["aot_autograd"]), "torch_threads": torch.get_num_threads()}))
"""


@pytest.fixture(scope="module")
def contract(torch_python, cache):
    return run_script(torch_python, REPOSITORY, CONTRACT, cache, compiler=True)


def test_a_step_returns_the_tokens_it_processed(contract):
    assert contract["tokens"] == [32, 16]


def test_threads_run_steps_of_their_own_in_graphs_that_the_cache_holds(contract):
    assert contract["threads"] == [[16] * 5, [16] * 5, [32] * 5]
    # Each of three threads traces a graph of its own and finds it in the cache.
    assert contract["graphs"] == [2, 5]
    assert contract["cache"]["autograd_cache_miss"] == 2
    assert contract["cache"]["autograd_cache_hit"] == 3
    assert contract["torch_threads"] == 1


def test_every_graph_can_be_cached(contract):
    assert contract["cache"]["autograd_cache_saved"] == 2
    assert contract["cache"].get("autograd_cache_bypass", 0) == 0


def pipeline(python, cache, *arguments, script="train_dflash_pipeline.py"):
    """Start the training process."""
    return subprocess.Popen(
        [python, script, *SMALL, *arguments],
        cwd=REPOSITORY,
        env=environment(cache, compiler=False),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_training_learns_prints_its_progress_and_saves(torch_python, cache, tmp_path):
    checkpoint = tmp_path / "new" / "drafter.safetensors"
    process = pipeline(torch_python, cache, "--steps", "40", "--checkpoint", str(checkpoint))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    lines = [line for line in out.splitlines() if not line.startswith("#")]
    progress = [PROGRESS.fullmatch(line) for line in lines]
    assert all(progress), lines
    assert [int(match[1]) for match in progress] == [5, 10, 15, 20, 25, 30, 35, 40]
    assert float(progress[-1][2]) < float(progress[0][2]) - 0.3
    assert all(float(match[4]) > 0 for match in progress)
    header = checkpoint.read_bytes()[8:].split(b"}}", 1)[0]
    assert b'"step":"40"' in header
    assert [path.name for path in checkpoint.parent.iterdir()] == ["drafter.safetensors"]


FAILING = """
import sys
import dflash_roles, train_dflash_pipeline
step, calls = dflash_roles.DrafterWorker.step, []
def step_that_fails(self, batch):
    calls.append(1)
    if len(calls) == 7:
        raise ZeroDivisionError("made to fail")
    return step(self, batch)
dflash_roles.DrafterWorker.step = step_that_fails
sys.exit(train_dflash_pipeline.main(sys.argv[1:]))
"""


def test_an_exception_in_a_thread_ends_the_process_with_traceback(torch_python, cache, tmp_path):
    checkpoint = tmp_path / "drafter.safetensors"
    script = tmp_path / "failing.py"
    script.write_text(f"import sys\nsys.path.insert(0, {str(REPOSITORY)!r})\n{FAILING}")
    arguments = ("--steps", "1000000", "--checkpoint", str(checkpoint))
    process = pipeline(torch_python, cache, *arguments, script=str(script))
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert re.search(r"# thread drafter-[01] on cpu failed\nTraceback", err), err
    assert "ZeroDivisionError: made to fail" in err
    assert not checkpoint.exists()


def start_script(python, cache, log, *arguments, steps):
    """Start training as a person does."""
    env = environment(cache, compiler=False)
    env |= {"VENV": str(python.parent.parent), "LOG_FILE": str(log), "STEPS": str(steps)}
    return subprocess.Popen(
        ["bash", str(REPOSITORY / "start_training.sh"), *SMALL, *arguments],
        env=env,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_the_start_script_runs_the_environment_and_keeps_a_log(torch_python, cache, tmp_path):
    log = tmp_path / "logs" / "training.log"
    process = start_script(torch_python, cache, log, steps=10)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0, out
    assert log.read_text() == out
    progress = [line for line in out.splitlines() if line.startswith("step=")]
    assert [line.split()[0] for line in progress] == ["step=5", "step=10"]


def test_a_signal_to_all_of_training_ends_it_in_order(torch_python, cache, tmp_path):
    log, checkpoint = tmp_path / "training.log", tmp_path / "drafter.safetensors"
    saving = ("--checkpoint", str(checkpoint))
    process = start_script(torch_python, cache, log, *saving, steps=1000000)
    for line in process.stdout:
        if PROGRESS.fullmatch(line.rstrip()):
            os.killpg(process.pid, signal.SIGTERM)
            break
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, log.read_text()
    assert checkpoint.exists()
    assert log.read_text().splitlines()[-1].startswith("# saved step ")


@pytest.fixture(scope="module")
def hacked(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hacked").resolve()
    for script in REPOSITORY.iterdir():
        if script.is_file():
            shutil.copy(script, folder)
    env = {**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)}
    subprocess.run(["git", "apply", str(PATCH)], cwd=folder, env=env, check=True)
    return folder


ONE_STEP = """
import json, torch
from torch._dynamo.utils import counters
from dflash_model import Settings
from dflash_roles import Batch, DrafterWorker, TextStream
settings, text = Settings(), TextStream(256, 0)
worker = DrafterWorker(torch.device("cpu"), settings, 1e-3)
hidden = torch.randn(2, 64, 2 * settings.width, generator=torch.Generator().manual_seed(0))
batch = Batch(text.tokens(2, 64), hidden, text.anchors(2, 64, 3, 16))
losses = [worker.step(batch)[0].item() for _ in range(3)]
print(json.dumps({"losses": losses, "graphs": counters["stats"]["unique_graphs"],
    "tracing_flag": torch.fx._symbolic_trace.is_fx_symbolic_tracing.__name__,
    "nested_trace_is_an_error": torch._dynamo.config.error_on_nested_fx_trace}))
"""


def test_the_hack_trains_as_well_but_around_the_compiler(torch_python, cache, hacked):
    eager = run_script(torch_python, REPOSITORY, ONE_STEP, cache)
    around = run_script(torch_python, hacked, ONE_STEP, cache, compiler=True)
    assert around["losses"] == pytest.approx(eager["losses"], rel=1e-4)
    assert around["graphs"] == 0
    assert around["tracing_flag"] == "<lambda>"
    assert around["nested_trace_is_an_error"] is False
    assert eager["tracing_flag"] == "is_fx_symbolic_tracing"


def test_only_the_model_is_hacked(hacked):
    scripts = [path for path in REPOSITORY.iterdir() if path.is_file()]
    changed = [p.name for p in scripts if p.read_bytes() != (hacked / p.name).read_bytes()]
    assert changed == ["dflash_model.py"]
