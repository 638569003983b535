"""Put files into a container: all of them or none, each one whole at every moment.

One round trip tells which of them differ, a second one brings those: as one archive, unpacked under
temporary names, checked, and renamed together. Two ways lead there: straight through the command's
input, or by sftp to the host and ``pct push``. This room must not know what the files are.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
import secrets
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from helpers.errors import CommandFailed, ParameterError
from helpers.reach.cleaning import and_then
from helpers.reach.command import Command
from helpers.reach.container import Container
from helpers.reach.deploy_script import INSTALL, LOOK
from helpers.reach.pct import PctContainer
from helpers.reach.quoting import digest_script

Way = Literal["stream", "push"]

_MODE = re.compile(r"0[0-7]{3}\Z")
_OWNER = re.compile(r"[A-Za-z0-9_.-]+:[A-Za-z0-9_.-]+\Z")
_TIMEOUT_S = 900.0
_NOT_PUT_BACK = 70


@dataclass(frozen=True)
class File:
    """One file as it is to be.

    Attributes:
        path: absolute, in the container; its folder must exist.
        owner: ``user:group``, names or numbers of the container; None = whoever owns the file that
            is replaced, or root.
        aside: where the replaced file is kept; None = it is not.
    """

    path: str
    data: bytes
    mode: str = "0644"
    owner: str | None = None
    aside: str | None = None

    @cached_property
    def sha256(self) -> str:
        """Of its content."""
        return hashlib.sha256(self.data).hexdigest()


@dataclass(frozen=True)
class Present:
    """What lies under a file's path in the container now."""

    regular: bool
    mode: int
    owner_numbers: str
    owner_names: str
    sha256: str | None


@dataclass(frozen=True)
class Deployed:
    """What was done: paths that were written and paths that were right already."""

    written: tuple[str, ...]
    same: tuple[str, ...]


def look(container: Container, paths: Sequence[str]) -> dict[str, Present]:
    """What lies under these paths: one round trip for all of them.

    **Runs on:** container. **Changes:** nothing.

    Returns:
        By path; a path with nothing under it is missing.
    """
    stdin = b"".join(path.encode("utf-8", "surrogateescape") + b"\0" for path in paths)
    command = Command(("bash", "-c", LOOK, "look"), purpose="compare files", stdin=stdin)
    result = container.check(command, hint="Check permissions in the container.")
    described, _, hashed = result.stdout.partition(b"\0\0")
    items = hashed.split(b"\0")
    hashes = {name: digest.decode() for digest, name in zip(items[::2], items[1::2], strict=False)}
    found: dict[str, Present] = {}
    for item in filter(None, described.split(b"\0")):
        kind, mode, numbers, names, name = item.split(b"\t", 4)
        found[name.decode("utf-8", "surrogateescape")] = Present(
            kind.startswith(b"regular"),
            int(mode, 8),
            numbers.decode(),
            names.decode("ascii", "replace"),
            hashes.get(name) or None,
        )
    return found


def deploy(container: Container, files: Sequence[File], *, way: Way = "stream") -> Deployed:
    """Put every file in place, or leave everything as it was.

    **Runs on:** container. **Changes:** the files that differ. With ``way="push"`` also a temporary
    file on the host and one in the container, both removed again.

    Args:
        container: where to.
        files: what to put there.
        way: "push" goes through the host's /tmp and ``pct push``, as people do it by hand.

    Raises:
        ParameterError: a file's path, mode or owner is wrong; nothing was touched.
        CommandFailed: a disk is full, a folder is missing, content changed on the way, or the like;
            ``changed`` says whether every file is as before.
        OutcomeUnknown: the connection was lost; a further deploy finds out what is left to do.
    """
    _check(files)
    with ThreadPoolExecutor(1) as aside:  # both take their time and do not hinder one another
        hashing = aside.submit(lambda: [file.sha256 for file in files])
        present = look(container, [file.path for file in files]) if files else {}
        hashing.result()
    differing = [file for file in files if not _is_right(file, present.get(file.path))]
    if differing:
        token = secrets.token_hex(6)
        data = _archive(differing, present, token)
        with _brought(container, data, way) as (stdin, source):
            argv = ("bash", "-c", INSTALL, "install", str(len(differing)), token, source)
            names = ", ".join(posixpath.basename(file.path) for file in differing[:3])
            more = f" and {len(differing) - 3} more" if len(differing) > 3 else ""
            _install(
                container,
                Command(
                    argv, f"deploy {names}{more}", stdin=stdin, changes=True, timeout_s=_TIMEOUT_S
                ),
            )
    written = {file.path for file in differing}
    return Deployed(
        tuple(file.path for file in differing),
        tuple(file.path for file in files if file.path not in written),
    )


def _check(files: Sequence[File]) -> None:
    seen: set[str] = set()
    for file in files:
        folder, name = posixpath.split(file.path)
        wrong = (
            "its path is not absolute"
            if not file.path.startswith("/")
            else "its path names no file"
            if name in ("", ".", "..") or "\0" in file.path
            else "it is listed twice"
            if file.path in seen
            else f"its mode {file.mode!r} is not one like 0644"
            if not _MODE.match(file.mode)
            else f"its owner {file.owner!r} is not one like root:root"
            if file.owner is not None and not _OWNER.match(file.owner)
            else "its folder and the folder it is set aside in differ"
            if file.aside is not None and posixpath.dirname(file.aside) != folder
            else None
        )
        if wrong:
            raise ParameterError(f"{file.path!r} cannot be deployed: {wrong}.", hint="Correct it.")
        seen.add(file.path)


def _is_right(file: File, present: Present | None) -> bool:
    return (
        present is not None
        and present.regular
        and present.sha256 == file.sha256
        and present.mode == int(file.mode, 8)
        and file.owner in (None, present.owner_numbers, present.owner_names)
    )


def _archive(files: Sequence[File], present: dict[str, Present], token: str) -> bytes:
    """The list of files and, after it, the tar archive of their contents under temporary names."""
    told: list[bytes] = []
    packed: list[bytes] = []
    for file in files:
        folder, name = posixpath.split(file.path)
        part = posixpath.join(folder, f".{token}", name)
        before = present.get(file.path)
        owner = file.owner or (before.owner_numbers if before else "")
        fields = (file.path, file.sha256, owner, file.aside or "")
        told += [field.encode("utf-8", "surrogateescape") + b"\0" for field in fields]
        entry = tarfile.TarInfo(part)
        entry.size, entry.mode = len(file.data), int(file.mode, 8)
        packed += [entry.tobuf(tarfile.GNU_FORMAT), file.data]
        packed.append(bytes(-len(file.data) % tarfile.BLOCKSIZE))
    packed.append(bytes(2 * tarfile.BLOCKSIZE))  # the end of an archive
    return b"".join(told + packed)


@contextmanager
def _brought(container: Container, data: bytes, way: Way) -> Iterator[tuple[bytes, str]]:
    """The input of the script and the file in the container it reads instead, if any."""
    if way == "stream":
        yield data, ""
        return
    if not isinstance(container, PctContainer):
        raise ParameterError("Only a Proxmox host has a pct push.", hint='Use way="stream".')
    path = f"/var/tmp/recover-{secrets.token_hex(8)}"
    remove = Command(("rm", "-f", "--", path), purpose="remove the archive", changes=True)

    def clean() -> None:
        container.check(remove, hint=f"Remove {path} in the container by hand.")

    with and_then(clean):
        container.proxmox.push(data, path)
        want = hashlib.sha256(data).hexdigest()
        argv = ("bash", "-c", digest_script(path))
        result = container.run(Command(argv, purpose="check the archive"))
        if result.text.strip() != want:
            raise CommandFailed(
                "pct push said nothing, and what arrived is not what was sent.",
                result=result,
                hint="Every old file is in place. Check free space in the container's /var/tmp.",
                changed="no",
            )
        yield b"", path


def _install(container: Container, command: Command) -> None:
    result = container.run(command)
    if result.ok:
        return
    back = result.returncode != _NOT_PUT_BACK
    hint = (
        "Every old file is in place. Read the reason below."
        if back
        else ("Some files are new and some are old: compare them, then deploy again.")
    )
    raise CommandFailed(
        f"Failed with exit code {result.returncode}: {command.purpose}.",
        result=result,
        hint=hint,
        changed="no" if back else "yes",
    )
