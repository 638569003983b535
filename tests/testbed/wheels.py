"""Real wheels for tests, written on the spot: a module, its needs, and a console script."""

import base64
import hashlib
import zipfile
from pathlib import Path

# Printed by every console script: the environment whose Python runs it, and what it imported.
SCRIPT_SOURCE = """
import sys

VERSION = {version!r}


def main():
    print(sys.prefix, __file__, VERSION)
"""


def write_wheel(
    folder: Path,
    name: str,
    version: str,
    *,
    requires: tuple[str, ...] = (),
    script: bool = True,
    files: dict[str, bytes] | None = None,
    damaged: bool = False,
) -> Path:
    """Write a wheel; ``damaged`` gives one of its files another checksum than the archive says."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {line}\n" for line in requires)
    identity = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    tags = "Wheel-Version: 1.0\nGenerator: testbed\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    content = {
        f"{module}.py": SCRIPT_SOURCE.format(version=version).encode(),
        f"{info}/METADATA": (identity + needs).encode(),
        f"{info}/WHEEL": tags.encode(),
        **(files or {}),
    }
    if script:
        content[f"{info}/entry_points.txt"] = (
            f"[console_scripts]\n{name} = {module}:main\n".encode()
        )
    content[f"{info}/RECORD"] = record(content, f"{info}/RECORD")
    path = folder / f"{module}-{version}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as wheel:
        for inside, data in content.items():
            entry = zipfile.ZipInfo(inside)
            entry.external_attr = (0o100755 if ".data/scripts/" in inside else 0o100644) << 16
            wheel.writestr(entry, data)
    if damaged:
        data = path.read_bytes()
        mark = f"VERSION = {version!r}".encode()
        path.write_bytes(data.replace(mark, mark.swapcase(), 1))
    return path


def record(content: dict[str, bytes], own_name: str) -> bytes:
    lines = []
    for name, data in content.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    return "\n".join([*lines, f"{own_name},,", ""]).encode()
