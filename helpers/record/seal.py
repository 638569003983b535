"""The seal of a run: what every file was when the run ended, so that a later change shows.

``manifest.json`` names each file of the run folder with its size and SHA-256, and the journal's
length and head. It is signed with the operator's ssh key when there is one that asks for nothing
(``ssh-keygen -Y sign``), and then nobody without that key can make another one that fits.

What a seal cannot show: who changed a file, when, or that the whole folder including an unsigned
manifest was written anew. This room must not know what the files mean.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from helpers.errors import ParameterError
from helpers.record.atomic import write_atomic
from helpers.record.journal import line_hash
from helpers.record.run_folder import RunFolder
from helpers.record.signature import check_signature, sign

SCHEMA = 1
MANIFEST = "manifest.json"
SIGNATURE = f"{MANIFEST}.sig"
_JOURNAL = "journal.jsonl"


class SealedFile(BaseModel):
    """One file as it was."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes: int
    sha256: str


class SealedJournal(BaseModel):
    """The journal as it was: it may have grown since, and must begin the same."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    lines: int
    head: str


class Manifest(BaseModel):
    """``manifest.json``.

    Attributes:
        files: by path within the run folder; the journal is not among them, since it may grow.
        earlier: SHA-256 of the manifest that this one replaced; None for the first.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: int = SCHEMA
    run_id: str
    sealed_at: str
    journal: SealedJournal
    files: dict[str, SealedFile]
    earlier: str | None


@dataclass(frozen=True)
class Seal:
    """What sealing came to.

    Attributes:
        manifest_sha256: stands for the whole record; worth keeping elsewhere.
        signed_by: fingerprint of the key, None when it is not signed.
        unsigned_because: why not, in words; empty when it is signed.
    """

    manifest_sha256: str
    signed_by: str | None
    unsigned_because: str


@dataclass(frozen=True)
class Verified:
    """What a look at a sealed run found.

    Attributes:
        differences: what is not as it was sealed, the first one first; empty when all is.
        since: what came after the seal and takes nothing away from it.
        signature: what the signature says, in words.
        signed: True = it fits the manifest, False = it does not, None = there is none.
    """

    differences: tuple[str, ...]
    since: tuple[str, ...]
    signature: str
    signed: bool | None

    @property
    def whole(self) -> bool:
        """Whether everything is as it was sealed."""
        return not self.differences and self.signed is not False


def seal(folder: RunFolder) -> Seal:
    """Seal a run folder as it is now.

    **Runs on:** operator. **Changes:** ``manifest.json`` and its signature in the run folder; an
    earlier manifest is kept under ``manifests/``.

    Raises:
        OSError: a file could not be read or written; the earlier seal is kept under ``manifests/``.
    """
    lines = _journal_lines(folder.path)
    manifest = Manifest(
        run_id=folder.asked.run_id,
        sealed_at=datetime.now(UTC).isoformat(timespec="seconds"),
        journal=SealedJournal(lines=len(lines), head=folder.journal.head()),
        files={name: _sealed(folder.path / name) for name in _names(folder.path)},
        earlier=manifest_sha256(folder),
    )
    text = manifest.model_dump_json(indent=1) + "\n"
    _keep_earlier(folder.path)
    (folder.path / SIGNATURE).unlink(
        missing_ok=True
    )  # the earlier one's: it never stands beside this
    write_atomic(folder.path / MANIFEST, text)
    signed_by, why_not = sign(folder.path / MANIFEST)
    return Seal(hashlib.sha256(text.encode()).hexdigest(), signed_by, why_not)


def manifest_sha256(folder: RunFolder) -> str | None:
    """Hash of the manifest, which stands for the whole record; None where there is none.

    **Changes:** nothing.
    """
    file = folder.path / MANIFEST
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else None


def verify(folder: RunFolder, allowed_signers: Path | None = None) -> Verified:
    """Compare a run folder with its seal.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        folder: the run.
        allowed_signers: an ssh ``allowed_signers`` file; without it a signature proves only that
            whoever holds the named key made it.

    Raises:
        ParameterError: the run has no seal, or one that is no manifest of this version.
    """
    manifest = _read(folder.path)
    now = set(_names(folder.path))
    differences = [*_journal_differences(folder, manifest.journal)]
    for name, was in sorted(manifest.files.items()):
        if name not in now:
            differences.append(f"{name} is missing")
        elif (found := _sealed(folder.path / name)) != was:
            differences.append(
                f"{name} has changed: SHA-256 {found.sha256[:16]}… of {found.bytes} bytes, "
                f"sealed was {was.sha256[:16]}… of {was.bytes}"
            )
    differences += [f"{name} was added" for name in sorted(now - set(manifest.files))]
    more = len(_journal_lines(folder.path)) - manifest.journal.lines
    since = [f"the journal has grown by {more} lines since"] if more > 0 else []
    signed, said = check_signature(folder.path / MANIFEST, allowed_signers)
    return Verified(tuple(differences), tuple(since), said, signed)


def _read(path: Path) -> Manifest:
    file = path / MANIFEST
    if not file.is_file():
        raise ParameterError(
            f"{path} has no seal: there is no {MANIFEST}.",
            hint="A run is sealed when it ends. Its journal can still be checked: `recover status RUN`.",
        )
    try:
        manifest = Manifest.model_validate_json(file.read_text(encoding="utf-8"))
    except (ValidationError, UnicodeDecodeError) as error:
        raise ParameterError(
            f"{file} is not a manifest: {error}",
            hint="It was changed after it was written, or is of another version of this package.",
        ) from error
    return manifest


def _names(path: Path) -> Iterator[str]:
    """Every file that a seal covers; lock files and half-written ones are nobody's record."""
    for found in sorted(path.rglob("*")):
        name = found.relative_to(path).as_posix()
        own = name in (MANIFEST, SIGNATURE, _JOURNAL) or name.startswith("manifests/")
        if (found.is_file() or found.is_symlink()) and not own and not _passing(found.name):
            yield name


def _passing(name: str) -> bool:
    return name.startswith(".") and (name.endswith((".lock", ".part")) or name == ".live")


def _sealed(path: Path) -> SealedFile:
    if path.is_symlink():  # a link is sealed as what it says, never as what it leads to
        content = os.fsencode(path.readlink())
        return SealedFile(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return SealedFile(bytes=path.stat().st_size, sha256=digest)


def _journal_lines(path: Path) -> list[bytes]:
    journal = path / _JOURNAL
    return journal.read_bytes().splitlines() if journal.is_file() else []


def _journal_differences(folder: RunFolder, was: SealedJournal) -> Iterator[str]:
    lines = _journal_lines(folder.path)
    if len(lines) < was.lines:
        yield f"{_JOURNAL} was cut: it has {len(lines)} lines, sealed were {was.lines}"
    elif was.lines and line_hash(lines[was.lines - 1]) != was.head:
        yield f"{_JOURNAL} has changed: line {was.lines} is not the one that was sealed"
    for problem in folder.journal.problems():
        yield f"{_JOURNAL}: {problem}"


def _keep_earlier(path: Path) -> None:
    """Keep the seal that is there beside the next one, which takes its place only when it is whole."""
    if not (path / MANIFEST).is_file():
        return
    kept = path / "manifests"
    kept.mkdir(exist_ok=True)
    number = 1 + len(list(kept.glob("*.json")))
    for name in (SIGNATURE, MANIFEST):
        if (path / name).is_file():
            (kept / f"{number:03d}-{name}").hardlink_to(path / name)
