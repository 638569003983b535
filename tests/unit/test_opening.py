"""What a target declares becomes a way to its container; nothing is contacted for that."""

from pathlib import Path

import pytest
import yaml

from helpers.errors import ParameterError
from helpers.reach.local import LocalContainer
from helpers.reach.opening import host_identity, job_place, open_container
from helpers.reach.pct import PctContainer
from helpers.target import TARGETS_FOLDER, load_target


def changed(tmp_path, **reach) -> Path:
    told = yaml.safe_load((TARGETS_FOLDER / "ct200.yaml").read_text())
    told["reach"] |= reach
    path = tmp_path / "target.yaml"
    path.write_text(yaml.safe_dump(told))
    return path


def test_the_sandbox_is_a_folder():
    container = open_container(load_target("sandbox"))
    assert isinstance(container, LocalContainer)
    assert host_identity(container) == {}
    assert job_place(load_target("sandbox"), "x").path.endswith(
        "/container/var/lib/recover-runbooks/jobs/x"
    )
    container.close()


def test_the_true_case_is_declared_and_not_contacted():
    target = load_target("ct200")
    container = open_container(target)
    assert isinstance(container, PctContainer)
    assert (container.vmid, container.host.settings.hostname) == (200, "10.1.2.6")
    assert container.host.settings.user == "root"
    assert container.host.key == ""
    assert job_place(target, "x").path == "/var/lib/recover-runbooks/jobs/x"
    container.close()


def test_the_ssh_configuration_of_the_target_counts(tmp_path):
    config = tmp_path / "ssh_config"
    config.write_text("Host box\n  HostName 192.0.2.1\n  Port 2022\n")
    target = load_target(str(changed(tmp_path, host="box", ssh_config=str(config), user="someone")))
    container = open_container(target)
    assert isinstance(container, PctContainer)
    assert str(container.host.settings) == "box (192.0.2.1 port 2022)"
    assert container.host.settings.user == "someone"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("host", "-oProxyCommand=x"),
        ("host", "a b"),
        ("vmid", 99),
        ("port", 0),
        ("staging", "relative"),
        ("hostname", None),
    ],
)
def test_a_wrong_field_is_named(tmp_path, field, value):
    with pytest.raises(ParameterError, match=rf"reach\.pct\.{field}"):
        load_target(str(changed(tmp_path, **{field: value})))


def test_a_kind_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(ParameterError, match="'sandbox', 'pct'"):
        load_target(str(changed(tmp_path, kind="docker")))
