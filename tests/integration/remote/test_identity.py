"""A run knows the host and the container that it has met, and leaves nothing open on the way there."""

import json
import threading

import psutil
import pytest
import yaml

from helpers.book.opening import open_stage
from helpers.errors import ContainerElsewhere, ContainerNotRunning, VerificationFailed, WrongTarget
from helpers.record.run_folder import RunFolder, StageState
from tests.integration.remote.conftest import RUNNING, STOPPED, config_through
from tests.testbed import faults
from tests.testbed.rooms import make_target

STAGE = "30_verify_torch"  # its look is the shortest


@pytest.fixture
def target_file(bed, tmp_path, monkeypatch):
    """Writes the target file of a container of the bed."""
    monkeypatch.setenv("RECOVER_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("RECOVER_BATCH", "1")

    def write(vmid=RUNNING, ssh_config=bed.host.ssh_config, **reach):
        declared = make_target(tmp_path).model_dump(mode="json")
        declared["reach"] = {
            "kind": "pct",
            "host": "pve",
            "vmid": vmid,
            "hostname": f"ct{vmid}",
            "ssh_config": str(ssh_config),
            **reach,
        }
        marker = bed.machine_id(vmid)
        declared["identity"] = {"marker_file": "/etc/machine-id", "marker": marker}
        path = tmp_path / "target.yaml"
        path.write_text(yaml.safe_dump(declared))
        return str(path)

    return write


def opened(target, run=None):
    return open_stage(STAGE, target=target, run=run, apply=False)


def run_of(tmp_path):
    return RunFolder.open(tmp_path / "runs", "latest")


def test_what_was_met_is_kept_and_nothing_stays_open(bed, target_file, tmp_path):
    process = psutil.Process()
    threads, sockets = set(threading.enumerate()), len(process.net_connections())
    children = process.children()
    stage = opened(target_file())
    stage.look()
    stage.plan()
    known = run_of(tmp_path).asked.host_identity
    assert (known["node"], known["vmid"], known["hostname"]) == ("pve", "100", "ct100")
    with pytest.raises(VerificationFailed):
        stage.close()  # nothing was measured: not a pass
    for thread in set(threading.enumerate()) - threads:
        thread.join(5)
    # What other tests had left open may have ended meanwhile.
    assert set(threading.enumerate()) <= threads
    assert len(process.net_connections()) <= sockets
    assert set(process.children()) <= set(children)


@pytest.mark.parametrize("part", ["host_key", "node", "vmid", "hostname"])
def test_anything_else_than_what_was_met_is_refused(bed, target_file, tmp_path, part):
    target = target_file()
    opened(target).look()
    folder = run_of(tmp_path)
    path = folder.path / "run.json"
    told = json.loads(path.read_text())
    told["host_identity"][part] = "another"
    path.write_text(json.dumps(told))
    again = opened(target, str(folder.path))
    with pytest.raises(WrongTarget, match="it was another") as caught:
        again.look()
    assert caught.value.changed == "no"
    assert folder.stage_record(STAGE).state is StageState.FAILED


def test_a_host_that_shows_another_key_is_refused_though_ssh_knows_it(bed, target_file, tmp_path):
    """As after the host was set up anew, and somebody has accepted its new key."""
    config = config_through(bed, bed.host.port, tmp_path)
    target = target_file(ssh_config=config)
    opened(target).look()
    (tmp_path / "known_hosts").write_text(bed.host.known_as("wired", key="host_ecdsa"))
    with pytest.raises(WrongTarget, match="the host's key is ecdsa"):
        opened(target, str(run_of(tmp_path).path)).look()


def test_a_container_that_cannot_be_entered_fails_the_stage_by_its_own_name(bed, target_file):
    with pytest.raises(ContainerNotRunning):
        opened(target_file(STOPPED)).look()
    with faults.moved(bed, RUNNING), pytest.raises(ContainerElsewhere):
        opened(target_file()).look()
