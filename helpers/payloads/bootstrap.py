"""Start a payload from what arrives on standard input, and leave no file behind.

The operator's side sends this text to ``python -B -c`` and, on standard input, one JSON document::

    {"files": {"protocol.py": "<source>", "inventory.py": "<source>"},
     "sha256": {"protocol.py": "<hex>", "inventory.py": "<hex>"},
     "run": "inventory.py",
     "params": {}}

Every hash is checked before anything runs.  The files can import one another by name, in any order.
Their made-up folder is one that Dynamo does not skip, and their lines are known to ``linecache``,
so that what a payload compiles really is compiled and a traceback shows its lines.  ``__file__`` is
left unset in the payload itself, as with any ``python -c``: worker processes would look for that
file.  Exit code 1 and a line on standard error: the document was damaged on its way.  This file
stays printable ASCII (some ways into a container corrupt anything else) and runs on Python 3.9 and
newer.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import importlib.util
import json
import linecache
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

FOLDER = "/payload/"


class Sent(importlib.abc.MetaPathFinder, importlib.abc.ExecutionLoader):
    """Finds and loads the files that were sent; they win over what is installed by that name."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None, /
    ) -> ModuleSpec | None:
        """Say that a sent file is a module; None for everything else."""
        if name + ".py" in files:
            return importlib.util.spec_from_loader(name, self)
        return None

    def get_filename(self, name: str) -> str:
        """Give a file's made-up path."""
        return FOLDER + name + ".py"

    def get_source(self, name: str) -> str:
        """Give a file's text."""
        return files[name + ".py"]


request = json.loads(sys.stdin.buffer.read().decode("utf-8"))
files: dict[str, str] = request["files"]
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for name, source in files.items():
    if hashlib.sha256(source.encode("utf-8")).hexdigest() != request["sha256"].get(name):
        sys.exit(
            "payload bootstrap: " + name + " was damaged on its way here (its SHA-256 differs)"
        )
    linecache.cache[FOLDER + name] = (len(source), None, source.splitlines(True), FOLDER + name)
sys.path[:] = [folder for folder in sys.path if folder]
sys.meta_path.insert(0, Sent())
main = ModuleType("__main__")
sys.modules["__main__"] = main
sys.argv = [request["run"], json.dumps(request["params"])]
code = compile(files[request["run"]], FOLDER + request["run"], "exec", dont_inherit=True)
exec(code, main.__dict__)
