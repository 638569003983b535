"""What a sandbox behind a host is told of this machine, before anything is made."""

import pytest
import yaml

from helpers.errors import ParameterError, PreconditionFailed
from helpers.sandbox import remote
from helpers.sandbox.bed.bed import Bed
from helpers.sandbox.bed.rootfs import make_rootfs
from helpers.sandbox.create import TEMPLATE
from helpers.sandbox.folder import SandboxFolder
from helpers.target import Target


def test_what_is_missing_is_named_before_anything_is_touched(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PreconditionFailed, match=r"nsenter \(util-linux\)") as caught:
        remote.refuse_without_means()
    assert "apt-get install openssh-server" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_lxc_cannot_take_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="too long"):
        remote.refuse_a_long_path(tmp_path / ("x" * 80))


def test_the_settings_of_pip_go_along_in_pips_own_order(tmp_path):
    conf = tmp_path / "pip.conf"
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    conf.write_text(f"[global]\nfind-links = {wheels}\nindex-url = https://one.example/simple\n")
    environ = {
        "PIP_CONFIG_FILE": str(conf),
        "PIP_INDEX_URL": "https://me:secret@two.example/simple",
    }
    settings = remote._pip_settings(environ)
    assert settings.get("global", "find-links") == str(wheels)
    assert settings.get("install", "index-url") == environ["PIP_INDEX_URL"]  # [install] wins in pip
    assert wheels in set(remote._local_sources(settings))


def test_no_password_gets_into_the_target_file():
    environ = {
        "HTTPS_PROXY": "http://me:secret@proxy.example:3128",
        "no_proxy": "localhost",
        "UV_DEFAULT_INDEX": "https://me:secret@two.example/simple",
        "UV_CACHE_DIR": "/somewhere",
        "SECRET": "x",
    }
    found = remote._environment(environ)
    assert found.pop("PATH", "") is not None
    assert found == {"no_proxy": "localhost"}


def test_paths_are_the_containers_but_for_what_stays_outside(tmp_path):
    template = yaml.safe_load(TEMPLATE.read_text())
    bed = Bed(tmp_path / "bed")
    make_rootfs(bed.rootfs(remote.VMID), "ct100", "f" * 32)
    declared = remote.declared_for(template, SandboxFolder(tmp_path), bed)
    target = Target.model_validate(declared)
    assert target.environment.venv == "/root/venv"
    assert target.workload.file == "/root/training/workload.py"
    assert target.sources.repository == f"{tmp_path}/repository"
    assert target.benchmark.baselines == f"{tmp_path}/baselines"
    assert target.identity.marker == "f" * 32
    assert target.reach.kind == "pct"
