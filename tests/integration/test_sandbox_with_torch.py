"""The real sandbox tells of its break in its log, and the next one is made in seconds.

Apart from the sandbox's other tests, whose package sources hold no torch.
"""

import re
import statistics
from pathlib import Path

import pytest

from helpers.sandbox.create import create, describe
from helpers.target import load_target


@pytest.mark.torch
def test_the_log_tells_of_the_time_before_and_after_the_break(broken_sandbox):
    target = load_target(str(broken_sandbox / "sandbox.yaml"))
    log = Path(target.training.log).read_text()
    found = [float(m["tok_per_s"]) for m in re.finditer(target.training.throughput_pattern, log)]
    before, after = found[:-12], found[-12:]
    assert len(before) >= 4
    assert statistics.median(after) < 0.6 * statistics.median(before)


@pytest.mark.torch
def test_the_next_sandbox_in_a_folder_reuses_what_took_minutes(broken_sandbox):
    report = create(broken_sandbox, [], print)
    how = {step.name: step.how for step in report.steps}
    assert how["environment"] == how["compile cache"] == "reused"
    broken = describe(broken_sandbox)["broken_now"]
    assert broken == {"environment": [], "scripts": [], "compile cache": [], "torch": []}
