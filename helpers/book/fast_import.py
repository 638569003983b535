"""Import this before nbformat or papermill: it saves more than a second of start-up.

jsonschema compiles a grammar of internationalised addresses when it is imported, for a check that
no notebook schema uses, as soon as the package ``rfc3987_syntax`` is there; JupyterLab brings it
(https://github.com/python-jsonschema/jsonschema/issues/1428). A name that is None in
``sys.modules`` cannot be imported, and jsonschema passes over an optional import that fails.
Nothing else in this process can use that package either, and nothing else here wants to.
"""

from __future__ import annotations

import sys

# typeshed says that modules are never None; the import system documents that they may be.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
