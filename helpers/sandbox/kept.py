"""What takes minutes to make and stays true: kept for the next sandbox in the same folder.

A compile cache is bound to the paths it was made with, so it serves no other folder; whether it
still fits is said by the record it carries (``recover.warm_record``), and of a baseline by its key
(``recover.baseline``). This room only copies.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from helpers.sandbox.folder import SandboxFolder


def restore_cache(folder: SandboxFolder, cache: Path) -> bool:
    """Copy the kept compile cache into place, if there is one. **Changes:** makes ``cache``."""
    if not _cache(folder).is_dir():
        return False
    # Dates go with the files: a cache older than a script is a symptom, and must not be made one
    # here.
    shutil.copytree(_cache(folder), cache, symlinks=True)
    return True


def keep_cache(folder: SandboxFolder, cache: Path) -> None:
    """Keep a copy of a proven compile cache in place of the one before. **Changes:** ``kept/``."""
    part = folder.kept / "cache.part"
    shutil.rmtree(part, ignore_errors=True)
    shutil.copytree(cache, part, symlinks=True)
    if _cache(folder).is_dir():
        shutil.rmtree(_cache(folder))
    part.rename(_cache(folder))


def restore_baselines(folder: SandboxFolder, baselines: Path) -> None:
    """Copy the kept baselines into place. **Changes:** makes ``baselines``."""
    baselines.mkdir(parents=True, exist_ok=True)
    for path in sorted(_baselines(folder).glob("*.json")):
        shutil.copy2(path, baselines / path.name)


def keep_baseline(folder: SandboxFolder, path: Path) -> None:
    """Keep a baseline. **Changes:** ``kept/``."""
    _baselines(folder).mkdir(parents=True, exist_ok=True)
    shutil.copy2(path, _baselines(folder) / path.name)


def training_log(folder: SandboxFolder, key: str) -> bytes | None:
    """The log of training in the healthy state of a kept baseline. **Changes:** nothing."""
    log = _baselines(folder) / f"{key}.training.log"
    return log.read_bytes() if log.is_file() else None


def keep_training_log(folder: SandboxFolder, key: str, log: bytes) -> None:
    """Keep a log beside its baseline, if that is kept. **Changes:** ``kept/``."""
    if (_baselines(folder) / f"{key}.json").is_file():
        (_baselines(folder) / f"{key}.training.log").write_bytes(log)


def _cache(folder: SandboxFolder) -> Path:
    return folder.kept / "cache"


def _baselines(folder: SandboxFolder) -> Path:
    return folder.kept / "baselines"
