"""Files arrive whole, checked at every hop, all of them or none, and nothing temporary stays."""

import hashlib
import os
import subprocess
import threading
import time

import pytest

from helpers.errors import (
    CommandFailed,
    HostUnreachable,
    OutcomeUnknown,
    ParameterError,
    PreconditionFailed,
)
from helpers.reach.command import Command
from helpers.reach.deploy import Deployed, File, deploy, look
from helpers.reach.local import LocalContainer
from tests.integration.remote.conftest import RUNNING, UNPRIVILEGED, pct_container
from tests.testbed import faults


@pytest.fixture(params=["local", "lxc", "unprivileged"])
def place(request, bed, host, tmp_path):
    """A container of each kind and an empty folder in it."""
    if request.param == "local":
        return LocalContainer("here"), str(tmp_path)
    vmid = RUNNING if request.param == "lxc" else UNPRIVILEGED
    return pct_container(bed, host, vmid), fresh(bed, vmid)


@pytest.fixture(params=["stream", "push"])
def way(request):
    return request.param


@pytest.fixture
def remote(bed, host):
    """The privileged container and an empty folder in it."""
    return pct_container(bed, host, RUNNING), fresh(bed, RUNNING)


def fresh(bed, vmid) -> str:
    path = f"/srv/{os.urandom(4).hex()}"
    faults.inside(bed, vmid, "mkdir", path)
    return path


def names(container, folder) -> list[str]:
    listed = container.run(Command(("ls", "-A", folder), purpose="list"))
    return listed.text.split()


def test_files_arrive_with_mode_and_content(place):
    container, folder = place
    files = [
        File(f"{folder}/a.py", b"print()\n"),
        File(f"{folder}/é 'q'\n.bin", os.urandom(300_000), mode="0750"),
        File(f"{folder}/empty", b"", mode="0600"),
    ]
    assert deploy(container, files) == Deployed(tuple(f.path for f in files), ())
    found = look(container, [f.path for f in files])
    assert [found[f.path].sha256 for f in files] == [f.sha256 for f in files]
    assert [found[f.path].mode for f in files] == [0o644, 0o750, 0o600]
    assert all(container.read(f.path) == f.data for f in files)
    assert deploy(container, files) == Deployed((), tuple(f.path for f in files))


def test_only_what_differs_is_written(place):
    container, folder = place
    files = [File(f"{folder}/{n}", f"{n}\n".encode()) for n in range(5)]
    deploy(container, files)
    before = inodes(container, folder)
    changed = [
        *files[:2],
        File(files[2].path, b"new\n"),
        File(files[3].path, files[3].data, "0755"),
        files[4],
    ]
    assert deploy(container, changed).written == (files[2].path, files[3].path)
    after = inodes(container, folder)
    assert {n for n in before if before[n] != after[n]} == {"2", "3"}


def inodes(container, folder) -> dict[str, str]:
    listed = container.run(Command(("ls", "-Ai", folder), purpose="list"))
    return {name: inode for inode, name in map(str.split, listed.text.splitlines())}


def test_two_hundred_files_take_two_round_trips(remote, bed, host):
    _, folder = remote
    seen = []
    container = pct_container(bed, host, RUNNING, seen.append)
    container.run(Command(("true",), purpose="connect", changes=True))
    del seen[:]
    files = [File(f"{folder}/{n}", os.urandom(2000)) for n in range(200)]
    assert len(deploy(container, files).written) == 200
    assert len(seen) == 2
    deploy(container, files)
    assert len(seen) == 3


def test_through_the_host_as_people_do_it(remote, bed):
    container, folder = remote
    files = [File(f"{folder}/{n}", os.urandom(10_000), mode="0640") for n in range(3)]
    assert len(deploy(container, files, way="push").written) == 3
    assert [container.read(f.path) for f in files] == [f.data for f in files]
    assert names(container, "/var/tmp") == []
    assert container.host.run(f"ls -d /tmp/recover-{'?' * 16}", timeout_s=10).status != 0


def test_owners_are_those_of_the_container(place):
    container, folder = place
    if isinstance(container, LocalContainer):
        mine = f"{os.getuid()}:{os.getgid()}"
        deploy(container, [File(f"{folder}/mine", b"x", owner=mine)])
        assert look(container, [f"{folder}/mine"])[f"{folder}/mine"].owner_numbers == mine
        return
    path = f"{folder}/file"
    deploy(container, [File(path, b"1", owner="trainer:trainer"), File(f"{folder}/roots", b"2")])
    assert look(container, [path])[path].owner_numbers == "1000:1000"
    assert deploy(container, [File(path, b"1", owner="1000:1000")]).same == (path,)
    deploy(container, [File(path, b"3")])  # nothing declared: it stays whose it was
    assert look(container, [path])[path].owner_names == "trainer:trainer"
    assert look(container, [f"{folder}/roots"])[f"{folder}/roots"].owner_numbers == "0:0"


def test_the_owner_of_an_unprivileged_container_is_moved_on_the_host(bed, host):
    container, folder = pct_container(bed, host, UNPRIVILEGED), fresh(bed, UNPRIVILEGED)
    deploy(container, [File(f"{folder}/f", b"1", owner="trainer:trainer")])
    deploy(container, [File(f"{folder}/g", b"2")], way="push")
    outside = bed.rootfs(UNPRIVILEGED) / folder[1:]
    assert [(outside / n).stat().st_uid for n in "fg"] == [101_000, 100_000]


def test_replaced_files_are_set_aside_on_request(place):
    container, folder = place
    deploy(container, [File(f"{folder}/a", b"old")])
    deploy(
        container,
        [File(f"{folder}/a", b"new", aside=f"{folder}/a.set-aside-1"), File(f"{folder}/b", b"b")],
    )
    assert container.read(f"{folder}/a") == b"new"
    assert container.read(f"{folder}/a.set-aside-1") == b"old"
    assert sorted(names(container, folder)) == ["a", "a.set-aside-1", "b"]


# --- all of them or none


def untouched(container, folder, files, error=CommandFailed, match=None, **fields):
    before = inodes(container, folder)
    with pytest.raises(error, match=match) as caught:
        deploy(container, files, **fields)
    assert caught.value.changed == "no"
    assert inodes(container, folder) == before
    return caught.value


def test_one_file_that_cannot_be_written_keeps_all_as_they_were(place):
    container, folder = place
    deploy(container, [File(f"{folder}/a", b"old")])
    container.check(Command(("mkdir", f"{folder}/d"), purpose="make"), hint="")
    good = [File(f"{folder}/a", b"new"), File(f"{folder}/b", b"new")]
    untouched(container, folder, [*good, File(f"{folder}/no/such/c", b"x")], match="no folder")
    untouched(container, folder, [*good, File(f"{folder}/d", b"x")], match="is a folder")
    untouched(
        container, folder, [*good, File(f"{folder}/c", b"x", owner="no-such:user")], match="owner"
    )
    kept = File(f"{folder}/a", b"new", aside=f"{folder}/d")
    untouched(container, folder, [good[1], kept], match="is there already")


def test_a_rename_that_fails_takes_the_others_back(remote):
    """The second file cannot be replaced, by the file system's own rule: it is immutable."""
    container, folder = remote
    deploy(container, [File(f"{folder}/{n}", b"old") for n in "ab"])
    mount = 'mount --bind "$1" "$1"'
    container.check(Command(("bash", "-c", mount, "_", f"{folder}/b"), purpose="pin"), hint="")
    try:
        files = [File(f"{folder}/{n}", b"new", aside=f"{folder}/{n}.aside") for n in "a"]
        error = untouched(
            container, folder, [*files, File(f"{folder}/new", b"new"), File(f"{folder}/b", b"new")]
        )
        assert "cannot be replaced" in str(error)
        assert container.read(f"{folder}/a") == b"old"
    finally:
        container.check(Command(("umount", f"{folder}/b"), purpose="unpin"), hint="")


def test_a_full_disk(bed, remote, way):
    container, folder = remote
    with faults.small_disk(bed, RUNNING, f"{folder}/small", "256k"):
        deploy(container, [File(f"{folder}/small/a", b"old")])
        files = [File(f"{folder}/small/a", b"new"), File(f"{folder}/small/b", os.urandom(400_000))]
        untouched(container, f"{folder}/small", files, way=way)
        assert container.read(f"{folder}/small/a") == b"old"


def test_a_full_disk_where_pct_push_writes_is_noticed(bed, remote):
    """pct push exits with 0 and says nothing."""
    container, folder = remote
    with faults.small_disk(bed, RUNNING, "/var/tmp", "64k"):
        files = [File(f"{folder}/a", os.urandom(400_000))]
        untouched(container, folder, files, match="not what was sent", way="push")


def test_a_host_without_room_in_tmp(remote, bed):
    container, folder = remote
    script = "mount -t tmpfs -o size=64k tmpfs /tmp"
    shell = bed.host.enter("sh", "-c", script)
    subprocess.run(shell, check=True)
    try:
        files = [File(f"{folder}/a", os.urandom(400_000))]
        untouched(container, folder, files, PreconditionFailed, "could not take a file", way="push")
    finally:
        subprocess.run(bed.host.enter("umount", "-l", "/tmp"), check=True)


@pytest.mark.parametrize("sent_bytes", [200, 3_000_000])
def test_a_connection_that_is_cut_in_the_middle(bed, wired, relay, way, sent_bytes):
    container, folder = pct_container(bed, wired, RUNNING), fresh(bed, RUNNING)
    old = [File(f"{folder}/{n}", f"old {n}".encode()) for n in range(3)]
    new = [File(f.path, os.urandom(3_000_000)) for f in old]
    deploy(container, old)
    before = inodes(container, folder)
    watch = threading.Timer(0.0, cut_when_sending, [relay, sent_bytes])
    watch.start()
    with pytest.raises((OutcomeUnknown, HostUnreachable)):
        deploy(container, new, way=way)
    watch.join()
    deadline = time.monotonic() + 10
    while inodes(container, folder) != before and time.monotonic() < deadline:
        time.sleep(0.2)
    assert inodes(container, folder) == before
    assert len(deploy(container, new, way=way).written) == 3
    assert sorted(names(container, folder)) == ["0", "1", "2"]


def cut_when_sending(relay, sent_bytes: int) -> None:
    """Let the look pass (it sends little) and cut the wire that the files go over."""
    relay.cut_after(sent_bytes=40_000 + sent_bytes)


@pytest.mark.parametrize(
    "file",
    [
        File("relative", b""),
        File("/folder/", b""),
        File("/a/..", b""),
        File("/a/b", b"", mode="644"),
        File("/a/b", b"", owner="root; id"),
        File("/a/b", b"", aside="/elsewhere/b"),
    ],
)
def test_nonsense_is_refused_before_anything_is_touched(file):
    with pytest.raises(ParameterError):
        deploy(LocalContainer("here"), [file])


def test_the_same_file_twice_is_refused():
    with pytest.raises(ParameterError, match="listed twice"):
        deploy(LocalContainer("here"), [File("/a/b", b"1"), File("/a/b", b"2")])


def test_a_host_is_needed_for_pct_push(tmp_path):
    with pytest.raises(ParameterError, match="pct push"):
        deploy(LocalContainer("here"), [File(f"{tmp_path}/b", b"1")], way="push")


def test_200_megabytes(remote, way):
    container, folder = remote
    data = os.urandom(1 << 20) * 200
    file = File(f"{folder}/large", data)
    assert deploy(container, [file], way=way).written == (file.path,)
    assert look(container, [file.path])[file.path].sha256 == hashlib.sha256(data).hexdigest()
    container.check(Command(("rm", file.path), purpose="clean"), hint="")
