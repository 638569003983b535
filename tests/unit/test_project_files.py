"""Files that must say the same thing do."""

import re
import subprocess
import tomllib
from pathlib import Path

import yaml

PROJECT = Path(__file__).resolve().parents[2]
# conda's name for the same thing
CONDA = {"matplotlib-base": "matplotlib"}


def test_environment_yml_and_pyproject_declare_the_same():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    conda = yaml.safe_load((PROJECT / "environment.yml").read_text())["dependencies"]
    named = [d for d in conda if isinstance(d, str) and d != "pip"]
    python = next(d for d in named if d.startswith("python>="))
    assert python == "python" + project["requires-python"]
    theirs = {re.sub(r"^[a-z-]+", lambda m: CONDA.get(m[0], m[0]), d) for d in named if d != python}
    assert theirs == set(project["dependencies"])


def test_ci_calls_the_readmes_test_command():
    lines = (PROJECT / ".ci" / "run").read_text().rstrip().splitlines()
    assert lines[-2:] == ["make test", "make test-remote"]
    readme = (PROJECT / "README.md").read_text()
    assert all(command in readme for command in lines[-2:])


def test_tracked_files_name_no_absolute_path_of_the_machine_they_were_written_on():
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, check=True, text=True
    )
    home = str(PROJECT) + "/"
    for name in filter(None, listed.stdout.split("\0")):
        path = PROJECT / name
        if path.is_file() and path.suffix not in (".png", ".zst"):
            assert home not in path.read_text(encoding="utf-8"), name
