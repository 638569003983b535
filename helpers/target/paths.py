"""How a path in a target file must be written: one way only, and nothing above what it names.

This room knows nothing of what lies there.
"""

from __future__ import annotations

import posixpath
from typing import Annotated

from pydantic import AfterValidator


def plain_path(path: str) -> str:
    """One way to write a path: names are made from it by adding to its end. **Changes:** nothing."""
    plain = posixpath.normpath(path)
    if not path.startswith("/") or plain in ("/", "//") or not path.isprintable():
        raise ValueError("must be an absolute path, and not the root folder")
    if ".." in path.split("/"):
        raise ValueError("must not contain '..'")
    return plain


def plain_name(path: str) -> str:
    """A path inside the repository. **Changes:** nothing."""
    if path != posixpath.normpath(path) or path.startswith(("/", "../")) or path in (".", ".."):
        raise ValueError("must be a plain path inside the repository")
    return path


def below_root_or_home(path: str) -> str:
    """A relative path would mean another folder wherever a command starts. **Changes:** nothing."""
    if path.startswith("~/"):
        return f"~{plain_path(path.removeprefix('~'))}"
    return plain_path(path)


AbsolutePath = Annotated[str, AfterValidator(plain_path)]
