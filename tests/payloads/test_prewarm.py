"""The remedy as a training script uses it: the file beside it, three lines, nothing changed by them."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.payloads.conftest import PAYLOADS

pytestmark = pytest.mark.torch
SCRIPT = """
import copy, json, sys, threading, time
import torch
from torch import nn
from torch._dynamo.utils import counters

sys.setswitchinterval(1e-4)
torch._dynamo.config.recompile_limit = 64


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, *, scale=2.0):
        return self.drop(self.layer(x)).relu() * scale


class Worker:
    def __init__(self):
        self.model = Model()
        self.compiled = torch.compile(self.model, dynamic=False, backend="aot_eager")
        self.optimizer = torch.optim.Adam(self.model.parameters())

    def step(self, batch):
        self.compiled(batch).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


workers, batches = [Worker() for _ in range(4)], [torch.randn(n, 16) for n in (4, 8, 12)]
before = copy.deepcopy([w.model.state_dict() for w in workers])
state = torch.get_rng_state()

import prewarm
calls = [lambda w=w, b=b: w.step(b) for w in workers for b in batches]
told = prewarm.prewarm(calls, keep=[x for w in workers for x in (w.model, w.optimizer)])

kept = all(
    torch.equal(old, new)
    for was, w in zip(before, workers)
    for old, new in zip(was.values(), w.model.state_dict().values())
)
facts = {
    "told": told,
    "kept": kept,
    "random": torch.equal(state, torch.get_rng_state()),
    "gradients": any(p.grad is not None for w in workers for p in w.model.parameters()),
    "optimizer": any(w.optimizer.state_dict()["state"] for w in workers),
    "names": list(workers[0].model.state_dict()),
    "copied": type(copy.deepcopy(workers[0].model)).__name__,
    "graphs": counters["stats"]["unique_graphs"],
}
until, errors = time.monotonic() + 4, []


def work(worker):
    try:
        while time.monotonic() < until:
            for batch in batches:
                worker.step(batch)
    except Exception as error:
        errors.append(repr(error))


threads = [threading.Thread(target=work, args=(w,)) for w in workers]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
facts.update(errors=errors, later=counters["stats"]["unique_graphs"] - facts["graphs"])
facts["again"] = prewarm.keep_apart()
print(json.dumps(facts))
"""


def test_three_lines_leave_everything_as_it_was_and_nothing_to_trace(torch_python, tmp_path):
    shutil.copy(PAYLOADS / "prewarm.py", tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    done = subprocess.run(
        [torch_python, "train.py"], cwd=tmp_path, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    told = facts["told"]
    assert told["calls"] == 12
    assert told["apart"] == 4
    assert told["settled"]
    assert [one["compiled"] > 0 for one in told["rounds"]] == [True, False]
    assert facts["kept"], "parameters are as before"
    assert facts["random"], "random numbers go on as they would have"
    assert not facts["gradients"]
    assert not facts["optimizer"], "the optimizer has not taken a step"
    assert facts["names"] == ["layer.weight", "layer.bias"], "a checkpoint looks the same"
    assert facts["copied"] == "Model"
    # A graph for each thread and shape: with shared ones threads miss theirs now and then.
    assert facts["graphs"] == 12
    assert facts["errors"] == []
    assert facts["later"] == 0, "nothing was compiled beside other threads"
    assert facts["again"] == 0
