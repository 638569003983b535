"""pip's settings, read without pip: compared with what the real pip makes of the same files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.payloads.conftest import BOOTSTRAP, answer, request

FILES = {
    "xdg/pip/pip.conf": """
[global]
index-url = https://one.example/simple
timeout = 5
""",
    "xdg2/pip/pip.conf": """
[global]
index_url = https://two.example/simple
no-index = false
""",
    "home/.pip/pip.conf": """
[global]
find-links = /legacy
extra-index-url =
    file:///a/simple
    file:///b/simple
""",
    "home/.config/pip/pip.conf": """
[global]
find-links = ~/wheels /more
constraint = /c.txt
[install]
index-url = https://install.example/simple
[freeze]
timeout = 99
""",
    "empty.conf": """
[global]
find-links =
index-url =
[install]
index-url =
""",
    "own.conf": """
[global]
trusted-host = two.example three.example
cert = /ca.pem
[install]
find-links =
""",
}
CASES = {
    "files": {},
    "own file instead of the user's": {"PIP_CONFIG_FILE": "{root}/own.conf"},
    "own file that is not there": {"PIP_CONFIG_FILE": "{root}/none.conf"},
    "no file at all": {"PIP_CONFIG_FILE": "/dev/null"},
    "variables": {"PIP_INDEX_URL": "https://var.example/simple", "PIP_FIND_LINKS": "/x /y",
                  "PIP_NO_INDEX": ""},
    "only variables": {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/x",
                       "PIP_TRUSTED_HOST": "h", "PIP_PRE": "yes"},
    "an empty value takes an earlier one away": {"PIP_CONFIG_FILE": "{root}/empty.conf"},
    "another folder for the user": {"XDG_CONFIG_HOME": "{root}/xdg2"},
}  # fmt: skip
WORDS = ("extra-index-url", "find-links", "constraint", "trusted-host")


@pytest.fixture
def machine(tmp_path):
    """Writes pip's files and gives the environment that points to them."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    def environment(case: dict[str, str]) -> dict[str, str]:
        plain = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "XDG_", "UV_"))}
        folders = f"{tmp_path}/xdg:{tmp_path}/xdg2"
        return {**plain, "HOME": f"{tmp_path}/home", "XDG_CONFIG_DIRS": folders,
                **{k: v.format(root=tmp_path) for k, v in case.items()}}  # fmt: skip

    return environment


def pip_says(environment: dict[str, str]) -> dict[str, str]:
    """The values that the real pip would use for an install."""
    script = (
        "import json\n"
        "from pip._internal.commands import create_command\n"
        "options, _ = create_command('install').parser.parse_args([])\n"
        "print(json.dumps({'index-url': options.index_url,\n"
        "  'extra-index-url': options.extra_index_urls,\n"
        "  'find-links': options.find_links, 'constraint': [str(c) for c in options.constraints],\n"
        "  'trusted-host': options.trusted_hosts, 'no-index': bool(options.no_index),\n"
        "  'cert': options.cert, 'pre': bool(options.pre)}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def settings(environment: dict[str, str], **params) -> dict:
    """What the payload finds, in exactly this environment."""
    sections = {"sections": ["pip_settings"], **params}
    done = subprocess.run(
        [sys.executable, "-B", "-c", BOOTSTRAP],
        input=json.dumps(request("inventory", sections)).encode(),
        capture_output=True, env=environment,
    )  # fmt: skip
    got = answer(done.returncode, done.stdout, done.stderr)
    assert got.document["errors"] == []
    return got.measured["pip_settings"]


def values(found) -> list[str]:
    return [entry["value"] for entry in found]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_same_as_pip(machine, case):
    environment = machine(case)
    said = pip_says(environment)
    found = settings(environment)
    assert found["index_url"]["value"] == said["index-url"]
    assert values(found["extra_index_urls"]) == said["extra-index-url"]
    assert values(found["find_links"]) == said["find-links"]
    assert values(found["constraints"]) == said["constraint"]
    assert values(found["trusted_hosts"]) == said["trusted-host"]
    assert found["no_index"] == said["no-index"]
    assert found["pre"] == said["pre"]
    assert (found["cert"] or {}).get("value") == said["cert"]


def test_every_value_has_its_source(machine, tmp_path):
    found = settings(machine({"PIP_FIND_LINKS": "/x"}))
    assert found["index_url"] == {
        "value": "https://install.example/simple",
        "source": f"{tmp_path}/home/.config/pip/pip.conf", "secret": False,
    }  # fmt: skip
    assert found["find_links"] == [{"value": "/x", "source": "PIP_FIND_LINKS", "secret": False}]
    assert found["timeout_s"]["value"] == "5"
    kinds = [(file["kind"], file["exists"]) for file in found["files"]]
    assert kinds == [("global", True), ("global", True), ("global", Path("/etc/pip.conf").exists()),
                     ("user", True), ("user", True)]  # fmt: skip


def test_without_any_setting_pip_goes_to_pypi(machine):
    found = settings(machine({"PIP_CONFIG_FILE": "/dev/null"}))
    assert found["index_url"] == {
        "value": "https://pypi.org/simple", "source": "pip's default", "secret": False,
    }  # fmt: skip
    assert found["files"] == []


def test_the_environments_own_file_counts(machine, tmp_path):
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "pip.conf").write_text("[global]\nconstraint = /mine.txt\n")
    found = settings(machine({}), venv=str(tmp_path / "venv"))
    assert found["constraints"] == [
        {"value": "/mine.txt", "source": f"{tmp_path}/venv/pip.conf", "secret": False}
    ]


def test_passwords_are_never_shown(machine):
    case = {
        "PIP_INDEX_URL": "https://user:s3cret@one.example/simple",
        "PIP_PROXY": "http://user:s3cret@proxy:1",
        "PIP_EXTRA_INDEX_URL": "https://token@two.example/simple file:///plain/simple",
    }
    found = settings(machine(case))
    assert "s3cret" not in json.dumps(found)
    assert found["index_url"]["value"] == "https://***@one.example/simple"
    assert found["index_url"]["secret"]
    assert found["proxy"]["secret"]
    assert [(e["value"], e["secret"]) for e in found["extra_index_urls"]] == [
        ("https://***@two.example/simple", True), ("file:///plain/simple", False),
    ]  # fmt: skip


def test_a_file_that_cannot_be_read_is_named(machine, tmp_path):
    (tmp_path / "xdg/pip/pip.conf").write_text("index-url = no section\n")
    (broken, *_) = settings(machine({}))["files"]
    assert broken["error"].startswith("MissingSectionHeaderError")


def test_what_uv_cannot_be_told_is_listed(machine):
    found = settings(machine({"PIP_REQUIRE_HASHES": "1", "PIP_QUIET": "1"}))
    assert found["not_carried_over"] == [
        {"name": "require-hashes", "value": "1", "source": "PIP_REQUIRE_HASHES", "secret": False}
    ]
