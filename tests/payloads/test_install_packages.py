"""Packages come from where this machine's pip would take them: real uv, small real wheels."""

from __future__ import annotations

import base64
import functools
import json
import os
import subprocess
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
import uv

from tests.payloads.conftest import (
    BOOTSTRAP,
    answer,
    captured,
    differences,
    index,
    request,
    tree_hash,
    wheel,
)

UV = uv.find_uv_bin()
PYTHON = "{}.{}".format(*sys.version_info)


@pytest.fixture
def machine(tmp_path):
    """An empty environment on a machine whose pip has only the given settings."""

    class Machine:
        venv = tmp_path / "venv"

        def install(self, packages, *, conf="", variables=None, **params):
            (tmp_path / "pip.conf").write_text(conf)
            environment = {
                k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "UV_", "XDG_"))
            }
            environment.update(HOME=str(tmp_path / "home"), XDG_CONFIG_DIRS=str(tmp_path / "none"),
                               PIP_CONFIG_FILE=str(tmp_path / "pip.conf"),
                               TMPDIR=str(tmp_path / "tmp"),
                               UV_CACHE_DIR=str(tmp_path / "cache"))  # fmt: skip
            environment.update(variables or {})
            (tmp_path / "tmp").mkdir(exist_ok=True)
            if "constraint" not in conf:  # no test must depend on what this machine says there
                environment.setdefault("PIP_CONSTRAINT", str(tmp_path / "nothing.txt"))
                (tmp_path / "nothing.txt").touch()
            params = {"uv": UV, "venv": str(self.venv), "packages": packages, **params}
            done = subprocess.run(
                [sys.executable, "-B", "-c", BOOTSTRAP], cwd=tmp_path, env=environment,
                input=json.dumps(request("install_packages", params)).encode(), capture_output=True,
            )  # fmt: skip
            assert list((tmp_path / "tmp").iterdir()) == []
            return answer(done.returncode, done.stdout, done.stderr)

    subprocess.run([UV, "venv", "-q", "--python", sys.executable, str(Machine.venv)], check=True)
    return Machine()


@pytest.fixture
def sources(tmp_path):
    """A folder of wheels and two indexes that hold different versions of the same names."""
    links = tmp_path / "links"
    wheel(links, "alpha", "1.0", requires=("beta",))
    near = index(tmp_path / "near", [wheel(tmp_path / "near-files", "beta", "1.0"),
                                     wheel(tmp_path / "near-files", "gamma", "1.0")])  # fmt: skip
    far = index(tmp_path / "far", [wheel(tmp_path / "far-files", "beta", "2.0"),
                                   wheel(tmp_path / "far-files", "beta", "3.0")])  # fmt: skip
    return {"links": links, "near": near, "far": far}


def lock(got) -> list[str]:
    assert got.code == 0, got.document["errors"]
    return got.measured["lock"]


def test_find_links_index_and_extra_index_together(machine, sources):
    conf = (
        f"[global]\nfind-links = {sources['links']}\n"
        f"index-url = {sources['near']}\nextra-index-url = {sources['far']}\n"
    )
    got = machine.install(["alpha", "gamma"], conf=conf)
    # uv by itself would stop at the first index that knows beta; pip takes the best of all.
    assert lock(got) == ["alpha==1.0", "beta==3.0", "gamma==1.0"]
    assert got.measured["check"]["ok"]
    assert got.measured["install"]["returncode"] == 0
    assert differences(got.measured, captured("install_packages")) == []
    (beta,) = [found for found in got.measured["resolved"] if found["name"] == "beta"]
    assert beta["file"] == "beta-3.0-py3-none-any.whl"
    assert beta["source"].endswith("/far-files")
    assert any("beta==3.0" in step["line"] for step in got.progress if step["phase"] == "install")


def test_constraint_is_kept(machine, sources, tmp_path):
    (tmp_path / "c.txt").write_text("beta<3\n")
    conf = f"[global]\nindex-url = {sources['far']}\nconstraint = {tmp_path}/c.txt\n"
    assert lock(machine.install(["beta"], conf=conf)) == ["beta==2.0"]


def test_no_index(machine, sources):
    links, far = sources["links"], sources["far"]
    conf = f"[global]\nfind-links = {links}\nno-index = true\nindex-url = {far}\n"
    got = machine.install(["alpha"], conf=conf)
    assert got.code == 1
    assert "beta" in got.document["errors"][0]["message"]


def test_variables_win_over_files(machine, sources):
    conf = f"[global]\nindex-url = {sources['far']}\n"
    assert lock(
        machine.install(["beta"], conf=conf, variables={"PIP_INDEX_URL": sources["near"]})
    ) == ["beta==1.0"]


def test_prereleases_and_binaries(machine, tmp_path):
    url = index(
        tmp_path / "i",
        [wheel(tmp_path / "w", "beta", "1.0"), wheel(tmp_path / "w", "beta", "2.0rc1")],
    )
    conf = f"[global]\nindex-url = {url}\nonly-binary = :all:\n"
    assert lock(machine.install(["beta"], conf=conf)) == ["beta==1.0"]
    assert lock(machine.install(["beta>1"], conf=conf + "pre = true\n")) == ["beta==2.0rc1"]


def test_dry_run_leaves_the_environment_alone(machine, sources):
    conf = f"[global]\nfind-links = {sources['links']}\nindex-url = {sources['far']}\n"
    before = tree_hash(machine.venv)
    got = machine.install(["alpha"], conf=conf, dry_run=True)
    assert got.code == 0
    assert tree_hash(machine.venv) == before
    assert [(p["name"], p["version"]) for p in got.measured["resolved"]] == [
        ("alpha", "1.0"),
        ("beta", "3.0"),
    ]
    assert got.measured["install"] is got.measured["lock"] is None


def test_dry_run_needs_no_environment(machine, sources, tmp_path):
    conf = f"[global]\nindex-url = {sources['far']}\n"
    machine.venv = tmp_path / "later"
    got = machine.install(["beta"], conf=conf, dry_run=True, python_version=PYTHON)
    assert [p["version"] for p in got.measured["resolved"]] == ["3.0"]
    assert machine.install(["beta"], conf=conf).code == 2


def test_lock_is_kept(machine, sources):
    conf = f"[global]\nfind-links = {sources['links']}\nindex-url = {sources['far']}\n"
    assert lock(machine.install(["alpha"], conf=conf, lock="alpha==1.0\nbeta==2.0\n")) == [
        "alpha==1.0",
        "beta==2.0",
    ]


def test_what_cannot_be_installed_is_told_in_uvs_words(machine, sources):
    before = tree_hash(machine.venv)
    got = machine.install(["nonesuch"], conf=f"[global]\nindex-url = {sources['far']}\n")
    assert got.code == 1
    assert "nonesuch" in got.document["errors"][0]["message"]
    assert tree_hash(machine.venv) == before


def test_a_conflict_with_what_is_there_is_seen(machine, sources, tmp_path):
    old = wheel(tmp_path / "old", "delta", "1.0", requires=("beta<2",))
    subprocess.run(
        [UV, "pip", "install", "-q", "--no-deps", "--python", machine.venv / "bin/python", old],
        check=True,
    )
    got = machine.install(["beta==3.0"], conf=f"[global]\nindex-url = {sources['far']}\n")
    assert got.code == 0
    assert not got.measured["check"]["ok"]
    assert any("delta" in line for line in got.measured["check"]["lines"])


class Guarded(SimpleHTTPRequestHandler):
    """An index behind a password."""

    def do_GET(self):
        expected = "Basic " + base64.b64encode(b"user:s3cret").decode()
        if self.headers.get("Authorization") != expected:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="index"')
            self.end_headers()
            return
        super().do_GET()

    def log_message(self, *_):
        pass


def test_password_is_used_and_never_shown(machine, tmp_path):
    url = index(tmp_path / "site", [wheel(tmp_path / "site" / "files", "beta", "1.0")])
    page = tmp_path / "site" / "simple" / "beta" / "index.html"
    page.write_text(page.read_text().replace(f"file://{tmp_path}/site", ""))
    server = ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(Guarded, directory=tmp_path / "site")
    )
    threading.Thread(target=server.serve_forever).start()
    try:
        url = f"http://user:s3cret@127.0.0.1:{server.server_port}/simple"
        conf = f"[global]\nindex-url = {url}\ntrusted-host = 127.0.0.1\n"
        got = machine.install(["beta"], conf=conf)
        wrong = machine.install(["beta==9"], conf=conf)
    finally:
        server.shutdown()
        server.server_close()
    assert lock(got) == ["beta==1.0"]
    assert wrong.code == 1
    for text in (got.stdout, got.stderr, wrong.stdout, wrong.stderr):
        assert "s3cret" not in text
    assert got.measured["settings"]["index_url"]["secret"]
    assert "http://***@127.0.0.1" in got.measured["install"]["command"]


@pytest.fixture
def torch_sources(tmp_path):
    """The CPU build in a folder and in its own index, the other build under the plain version."""
    plain = wheel(tmp_path / "mirror", "torch", "2.13.0", requires=("nvidia-huge",))
    huge = wheel(tmp_path / "mirror", "nvidia-huge", "1.0")
    return {
        "folder": wheel(tmp_path / "folder", "torch", "2.13.0+cpu").parent,
        "mirror": index(tmp_path / "mirror-index", [plain, huge]),
        "cpu": index(tmp_path / "whl", [wheel(tmp_path / "cpu-files", "torch", "2.13.0+cpu"),
                                        wheel(tmp_path / "cpu-files", "torchvision", "0.28.0+cpu")])
        .replace("/simple", "/cpu"),
        "broken": (tmp_path / "nothing" / "cpu").as_uri(),
    }  # fmt: skip


@pytest.fixture(autouse=True)
def _last_part_names_the_build(request, tmp_path):
    if "torch_sources" in request.fixturenames:
        request.getfixturevalue("torch_sources")
        (tmp_path / "whl" / "simple").rename(tmp_path / "whl" / "cpu")


def test_torch_of_the_machines_folder_is_taken(machine, torch_sources):
    conf = (
        f"[global]\nfind-links = {torch_sources['folder']}\nindex-url = {torch_sources['mirror']}\n"
    )
    got = machine.install(["torch==2.13.0"], conf=conf, torch_index=torch_sources["broken"])
    assert lock(got) == ["torch==2.13.0+cpu"]  # and nothing huge
    assert got.measured["torch"] == {
        "requirements": ["torch==2.13.0"], "wanted_build": "cpu", "offered_locally": True,
        "index_asked": None, "why": "this machine's disk offers the cpu build",
    }  # fmt: skip
    assert got.measured["torch_file"] == "torch-2.13.0+cpu-py3-none-any.whl"


def test_another_build_on_the_disk_does_not_count(machine, torch_sources):
    conf = f"[global]\nindex-url = {torch_sources['mirror']}\n"
    got = machine.install(["torch==2.13.0"], conf=conf, torch_index=torch_sources["cpu"])
    assert lock(got) == ["torch==2.13.0+cpu"]
    assert got.measured["torch"]["offered_locally"] is False
    assert got.measured["torch"]["index_asked"] == torch_sources["cpu"]


def test_all_of_torchs_family_must_be_on_the_disk(machine, torch_sources):
    conf = (
        f"[global]\nfind-links = {torch_sources['folder']}\nindex-url = {torch_sources['mirror']}\n"
    )
    got = machine.install(
        ["torch==2.13.0", "torchvision"], conf=conf, torch_index=torch_sources["cpu"]
    )
    assert lock(got) == ["torch==2.13.0+cpu", "torchvision==0.28.0+cpu"]
    assert got.measured["torch"]["index_asked"] == torch_sources["cpu"]


def test_where_indexes_are_forbidden_torchs_is_not_asked(machine, torch_sources):
    got = machine.install(
        ["torch"], conf="[global]\nno-index = true\n", torch_index=torch_sources["cpu"]
    )
    assert got.code == 1
    assert got.measured["torch"]["index_asked"] is None
    assert "no-index" in got.measured["torch"]["why"]


def test_without_an_index_for_torch_the_machine_decides(machine, torch_sources):
    got = machine.install(["torch"], conf=f"[global]\nindex-url = {torch_sources['mirror']}\n")
    assert lock(got) == ["nvidia-huge==1.0", "torch==2.13.0"]


def test_a_package_called_like_torch_is_not_torch(machine, tmp_path):
    url = index(tmp_path / "i", [wheel(tmp_path / "w", "torchmetrics", "1.0")])
    got = machine.install(
        ["torchmetrics"], conf=f"[global]\nindex-url = {url}\n", torch_index="file:///none/cpu"
    )
    assert lock(got) == ["torchmetrics==1.0"]
    assert got.measured["torch"]["requirements"] == []
