"""Small real wheels, built on the spot, under the names of packages that do not belong here.

They carry the names that a target forbids and nothing of what those packages hold, so that a venv
can be polluted for real without downloading gigabytes. This room knows the wheel format (PEP 427)
and nothing of sandboxes.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path

# A local version (PEP 440): whoever reads `pip freeze` sees that this is not the real package.
STAND_IN_VERSION = "1.0+standin"

# Distributions whose module is called otherwise than themselves.
_MODULES = {"flashinfer-python": "flashinfer"}
# One date for every file: the same name and version make the same bytes, and uv's cache knows them
# again.
_DATE = (2026, 1, 1, 0, 0, 0)


def stand_in(folder: Path, distribution: str) -> Path:
    """Build the stand-in of a package: a module that imports, and a console script of its name.

    **Runs on:** operator. **Changes:** one ``.whl`` file in ``folder``.

    Args:
        folder: where the wheel goes.
        distribution: the name to take, for instance ``flashinfer-python``.
    """
    module = _MODULES.get(distribution, distribution.replace("-", "_"))
    source = (
        f'"""Stands in for {distribution} in a sandbox; nothing of the real package is here."""\n\n'
        f'__version__ = "{STAND_IN_VERSION}"\n\n\n'
        f"def main() -> None:\n"
        f'    print("{distribution}", __version__)\n'
    )
    script = f"[console_scripts]\n{distribution} = {module}:main\n"
    return build_wheel(
        folder,
        distribution,
        STAND_IN_VERSION,
        files={f"{module}/__init__.py": source},
        summary=f"Stands in for {distribution} in a sandbox",
        entry_points=script,
    )


def build_wheel(
    folder: Path,
    distribution: str,
    version: str,
    *,
    files: Mapping[str, str],
    summary: str,
    entry_points: str = "",
) -> Path:
    """Write a pure-Python wheel.

    **Runs on:** operator. **Changes:** one ``.whl`` file in ``folder``.

    Args:
        folder: where the wheel goes.
        distribution: its name.
        version: its version.
        summary: what it says of itself, one line.
        files: path in site-packages → text.
        entry_points: text of ``entry_points.txt``; empty = none.

    Returns:
        The wheel's path. The same arguments make the same bytes.
    """
    stem = f"{re.sub(r'[-_.]+', '_', distribution).lower()}-{version}"
    info = f"{stem}.dist-info"
    metadata = (
        f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\nSummary: {summary}\n"
    )
    tags = (
        "Wheel-Version: 1.0\nGenerator: recover-sandbox\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    content = {**files, f"{info}/METADATA": metadata, f"{info}/WHEEL": tags}
    if entry_points:
        content[f"{info}/entry_points.txt"] = entry_points
    record = "".join(_record_line(name, text) for name, text in content.items())
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    path = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, text in content.items():
            wheel.writestr(_entry(name), text)
    return path


def _record_line(name: str, text: str) -> str:
    data = text.encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, date_time=_DATE)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    return entry
