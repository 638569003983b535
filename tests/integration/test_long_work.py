"""Long work of a stage: what becomes of it when the stage fails, is interrupted, or loses its runner."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers.reach.as_job import run_as_job
from helpers.reach.command import Command
from helpers.reach.job import Job
from helpers.reach.opening import job_place
from helpers.recover.left_jobs import wait_for_left_jobs
from tests.testbed.rooms import RUN_ID, Surroundings, make_target

NAME = "10_environment-test"


def bash(script, *, changes=True):
    return Command(("bash", "-c", script), purpose="test", changes=changes)


def job_of(surroundings):
    place = job_place(surroundings.target, f"{RUN_ID}-{NAME}")
    return Job(surroundings.container, place)


@pytest.fixture
def surroundings(tmp_path):
    return Surroundings(make_target(tmp_path))


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_stage_that_fails_ends_its_work_before_it_puts_things_back(surroundings, error):
    job = job_of(surroundings)

    def fail():
        with surroundings.work.job(NAME):
            job.start(bash("sleep 300 & wait"))
            raise error

    with pytest.raises(error):
        fail()
    assert job.look().state == "killed"
    assert job.start(bash("true")) == "started", "a further attempt is not told of this one"


WITHOUT_A_RUNNER = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.integration.test_long_work import NAME, bash, job_of
from tests.testbed.rooms import Surroundings, make_target
surroundings = Surroundings(make_target(Path(sys.argv[1])))
work = replace(surroundings.work, runner_is_gone=lambda: True)
try:
    with work.job(NAME):
        job_of(surroundings).start(bash("sleep 2; echo done; exit 3"))
        raise KeyboardInterrupt
finally:
    print("put things back")
"""


def test_without_a_runner_the_work_goes_on_and_nothing_is_put_back(surroundings, tmp_path):
    project = Path(__file__).resolve().parents[2]
    left = subprocess.run(
        [sys.executable, "-c", WITHOUT_A_RUNNER, tmp_path],
        env={**os.environ, "PYTHONPATH": str(project)},
        capture_output=True,
        text=True,
    )
    assert (left.returncode, left.stdout, left.stderr) == (75, "", "")
    assert job_of(surroundings).look().state == "running"
    (found,) = wait_for_left_jobs(surroundings.work)
    assert (found.name, found.found, found.state, found.returncode) == (
        NAME,
        "running",
        "finished",
        3,
    )
    assert "10_environment-test was waited for: finished, exit code 3" in str(found)
    assert wait_for_left_jobs(surroundings.work) == [], "its end was taken note of"


def test_where_nothing_was_left_nothing_is_waited_for(surroundings):
    assert wait_for_left_jobs(surroundings.work) == []
    other = Surroundings(surroundings.target, run_id="another-run")
    with other.work.job(NAME) as place:
        Job(other.container, place).start(bash("true"))
    assert wait_for_left_jobs(surroundings.work) == []


@pytest.mark.parametrize("changes", [True, False])
def test_what_only_measures_leaves_nothing_behind(surroundings, changes):
    place = job_place(surroundings.target, f"{surroundings.work.run_id}-{NAME}")
    result = run_as_job(surroundings.container, bash("echo done", changes=changes), place)
    assert result.text == "done\n"
    assert Path(place.path).exists() is changes
    again = run_as_job(surroundings.container, bash("echo again", changes=changes), place)
    assert again.text == "again\n"
