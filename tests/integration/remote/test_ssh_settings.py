"""An alias means here what it means on the command line."""

import getpass
from pathlib import Path

import pytest

from helpers.errors import ParameterError
from helpers.reach.ssh_settings import resolve

CONFIG = """\
Include further/*
Host pve
  HostName 192.0.2.7
  Port 2201
  User operator
  IdentityFile {folder}/key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known {folder}/known2
  ConnectTimeout 7
Host far
  HostName 192.0.2.8
  HostKeyAlias far-away
  ProxyJump pve,second@between:2202
Host farther
  ProxyJump far
Host circle
  ProxyJump round
Host round
  ProxyJump circle
Host odd
  ProxyCommand nc %h %p
"""


@pytest.fixture
def config(tmp_path) -> Path:
    (tmp_path / "key").touch()
    path = tmp_path / "config"
    path.write_text(CONFIG.format(folder=tmp_path).replace("Include further/*\n", ""))
    return path


@pytest.fixture(params=["ssh", "paramiko"])
def reader(request, monkeypatch, tmp_path):
    """The same file as OpenSSH reads it and, where there is no ssh, as paramiko does."""
    if request.param == "paramiko":
        monkeypatch.setenv("PATH", str(tmp_path))


def test_an_alias_is_resolved(config, tmp_path, reader):
    pve = resolve("pve", config=config)
    assert (pve.hostname, pve.port, pve.user) == ("192.0.2.7", 2201, "operator")
    assert pve.identity_files == (tmp_path / "key",)
    assert not pve.use_agent
    assert pve.known_hosts[:2] == (tmp_path / "known", tmp_path / "known2")
    assert pve.connect_timeout_s == 7
    assert str(pve) == "pve (192.0.2.7 port 2201)"


def test_what_the_target_says_overrules_the_file(config, reader):
    pve = resolve("pve", user="root", port=22, config=config)
    assert (pve.user, pve.port) == ("root", 22)


def test_a_host_that_no_file_mentions_is_its_own_address(config, reader):
    plain = resolve("192.0.2.9", config=config)
    assert (plain.hostname, plain.port, plain.user) == ("192.0.2.9", 22, getpass.getuser())
    assert plain.use_agent
    assert plain.known_hosts
    assert str(plain) == "192.0.2.9"


def test_jump_hosts_come_nearest_first(config, reader):
    far = resolve("far", config=config)
    assert far.host_key_alias == "far-away"
    shown = [(j.alias, j.hostname, j.port, j.user) for j in far.jumps]
    assert shown == [("pve", "192.0.2.7", 2201, "operator"), ("between", "between", 2202, "second")]
    assert [j.alias for j in resolve("farther", config=config).jumps] == ["pve", "between", "far"]


def test_a_way_that_leads_back_to_itself_is_refused(config, reader):
    with pytest.raises(ParameterError, match="more than 8 hosts"):
        resolve("circle", config=config)


def test_a_proxy_command_is_refused(config, reader):
    with pytest.raises(ParameterError, match="ProxyCommand"):
        resolve("odd", config=config)


@pytest.mark.parametrize("alias", ["", "-oProxyCommand=touch /tmp/x"])
def test_an_alias_is_never_an_option(alias, config):
    with pytest.raises(ParameterError, match="is no host"):
        resolve(alias, config=config)


def test_included_files_count(tmp_path, monkeypatch):
    (tmp_path / "further").mkdir()
    (tmp_path / "further" / "a").write_text("Host inner\n  HostName 192.0.2.10\n")
    path = tmp_path / "config"
    path.write_text(f"Include {tmp_path}/further/*\n")
    assert resolve("inner", config=path).hostname == "192.0.2.10"
    monkeypatch.setenv("PATH", str(tmp_path))  # no ssh any more: then nobody can follow it
    with pytest.raises(ParameterError, match="includes other files"):
        resolve("inner", config=path)


def test_a_file_that_ssh_does_not_understand_is_named(tmp_path):
    path = tmp_path / "config"
    path.write_text("Host x\n  NoSuchOption yes\n")
    with pytest.raises(ParameterError, match=r"(?s)NoSuchOption|nosuchoption") as caught:
        resolve("x", config=path)
    assert str(path) in caught.value.hint
