"""A target file is checked completely before anything is touched, and every wrong field is named."""

from pathlib import Path

import pytest
import yaml

from helpers.errors import ParameterError
from helpers.target import TARGETS_FOLDER, load_target

ROLE = {"name": "drafter", "devices": ["cpu"], "shapes": [{"batch": 2}]}


@pytest.fixture
def declare(tmp_path):
    """Write the sandbox's target with single fields changed, and load it."""

    def write(root=tmp_path / "root", **sections):
        declared = yaml.safe_load((TARGETS_FOLDER / "sandbox.yaml").read_text())
        declared["reach"]["root"] = str(root)
        for section, fields in sections.items():
            declared[section] = (
                {**declared.get(section, {}), **fields} if isinstance(fields, dict) else fields
            )
        path = tmp_path / "target.yaml"
        path.write_text(yaml.safe_dump(declared))
        return load_target(str(path))

    return write


def test_the_sandboxs_own_file_is_right(declare, tmp_path):
    target = declare()
    assert target.environment.venv == f"{tmp_path}/root/container/root/venv"
    assert declare().content_hash == target.content_hash
    assert declare(benchmark={"seconds": 11}).content_hash != target.content_hash


@pytest.mark.parametrize(
    ("section", "fields", "named"),
    [
        ("environment", {"venv": "/"}, "environment.venv"),
        ("environment", {"venv": "relative"}, "environment.venv"),
        ("environment", {"venv": "/a\nb"}, "environment.venv"),
        ("environment", {"packages": ["numpy = 2"]}, "environment.packages"),
        ("environment", {"packages": []}, "environment.packages"),
        ("environment", {"python": "3"}, "environment.python"),
        (
            "environment",
            {"torch_index": "https://u:p@index.example/simple"},
            "environment.torch_index",
        ),
        ("environment", {"pakages": ["numpy"]}, "environment.pakages: unknown field"),
        ("identity", {"marker": " "}, "identity.marker"),
        ("sources", {"files": [{"path": "../x.py"}]}, "sources.files.0.path"),
        (
            "sources",
            {"files": [{"path": "a.py"}, {"path": "b.py"}, {"path": "a.py", "mode": "0755"}]},
            "sources: Value error, files: the path 'a.py' is declared twice",
        ),
        (
            "workload",
            {"roles": [ROLE, ROLE | {"devices": ["cpu", "cpu"]}]},
            "workload: Value error, roles: the name 'drafter' is declared twice",
        ),
        ("workload", {"roles": [ROLE | {"name": ""}]}, "workload.roles.0.name"),
        ("workload", {"expected_graph_breaks": -1}, "workload.expected_graph_breaks"),
        ("sources", {"files": [{"path": "a.py", "sha256": "abc"}]}, "sources.files.0.sha256"),
        ("benchmark", {"tolerance_ratio": 0.3}, "benchmark"),
        ("training", {"throughput_pattern": "tok=([0-9]+)"}, "training.throughput_pattern"),
        ("training", {"throughput_pattern": "("}, "training.throughput_pattern"),
        ("reach", {"kind": "elsewhere"}, "reach"),
        ("colour", "red", "colour: unknown field"),
    ],
)
def test_a_mistake_is_named_with_its_field(declare, section, fields, named):
    with pytest.raises(ParameterError) as caught:
        declare(**{section: fields})
    assert named in str(caught.value)
    assert caught.value.changed == "no"


def test_a_folder_that_is_renamed_must_not_hold_another(declare, tmp_path):
    venv = f"{tmp_path}/root/container/root/venv"
    with pytest.raises(ParameterError, match=r"cache\.directory lies in environment\.venv"):
        declare(cache={"directory": f"{venv}/cache"})


@pytest.mark.parametrize("root", ["sandbox", "./sandbox", "", ".", "{root}", "~", "~/../x", "/"])
def test_a_root_that_would_mean_another_folder_from_elsewhere_is_refused(declare, root):
    with pytest.raises(ParameterError, match=r"reach\.\w+\.root|reach\.root"):
        declare(root)


def test_a_root_may_lie_below_home(declare):
    target = declare("~/x//sandbox")
    assert target.reach.root == "~/x/sandbox"
    assert target.environment.venv == str(Path("~/x/sandbox/container/root/venv").expanduser())


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("name: a\nreach: {}\nname: b\n", "name"),
        ("name: a\nenvironment:\n  venv: /a\n  python: '3.11'\n  venv: /b\n", "venv"),
        ("sources:\n  files:\n    - {path: a.py, mode: '0755', path: b.py}\n", "path"),
    ],
)
def test_a_key_that_stands_twice_is_refused_and_not_silently_the_last(tmp_path, text, key):
    path = tmp_path / "target.yaml"
    path.write_text(text)
    with pytest.raises(ParameterError, match=f"(?s)the key '{key}' stands there twice.*line"):
        load_target(str(path))


def test_a_placeholder_of_the_sandbox_means_nothing_elsewhere(tmp_path):
    declared = yaml.safe_load((TARGETS_FOLDER / "ct200.yaml").read_text())
    declared["environment"]["venv"] = "{root}/venv"
    path = tmp_path / "target.yaml"
    path.write_text(yaml.safe_dump(declared))
    with pytest.raises(ParameterError, match=r"environment\.venv: .*\{root\}/venv"):
        load_target(str(path))


def test_all_mistakes_are_named_at_once(declare):
    with pytest.raises(ParameterError) as caught:
        declare(environment={"venv": "x"}, torch={"device_count": -1})
    assert "environment.venv" in str(caught.value)
    assert "torch.device_count" in str(caught.value)


def test_an_unknown_name_gets_the_nearest(tmp_path):
    with pytest.raises(ParameterError, match="Did you mean sandbox"):
        load_target("sandbx")
    with pytest.raises(ParameterError, match="no target file"):
        load_target(str(tmp_path / "absent.yaml"))
    (tmp_path / "broken.yaml").write_text("a: [")
    with pytest.raises(ParameterError, match="not readable YAML"):
        load_target(str(tmp_path / "broken.yaml"))
    (tmp_path / "list.yaml").write_text("- a")
    with pytest.raises(ParameterError, match="mapping"):
        load_target(str(tmp_path / "list.yaml"))
