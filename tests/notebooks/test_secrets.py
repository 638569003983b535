"""A secret that a notebook shows is in no byte of what is kept of it."""

import base64
import json
from pathlib import Path
from urllib.parse import quote

import pytest

from helpers.book.binding import _observer
from helpers.book.execution import execute
from helpers.reach.command import Command
from helpers.reach.local import LocalContainer
from helpers.record.redact import redactor
from helpers.record.run_folder import RunFolder
from tests.notebooks.notebook_kit import errors, shown, write_notebook
from tests.testbed.run_folders import asked

# Letters that JSON, HTML and URLs each write differently.
SECRET = 'tr0ub4dor"&3/<correct>'
FORMS = [
    SECRET,
    json.dumps(SECRET)[1:-1],
    quote(SECRET, safe=""),
    base64.b64encode(SECRET.encode()).decode(),
    "tr0ub4dor",
    "<correct>",
]


@pytest.fixture(autouse=True)
def secret(monkeypatch):
    """The secret stands in the environment, as an operator has it there."""
    monkeypatch.setenv("WANDB_API_KEY", SECRET)
    redactor.cache_clear()
    yield
    redactor.cache_clear()


def assert_nowhere(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for form in FORMS:
                assert form.encode() not in content, f"{form} in {path}"


def test_what_a_notebook_shows(tmp_path):
    source = write_notebook(
        tmp_path / "source.ipynb",
        "import base64, os, sys, time, urllib.parse\nsecret = os.environ['WANDB_API_KEY']",
        # Letter by letter, each a message of its own.
        "for letter in 'wandb login ' + secret:\n"
        "    print(letter, end='', flush=True); time.sleep(0.01)\n"
        "print(' done')",
        "print(base64.b64encode(secret.encode()).decode(), urllib.parse.quote(secret, safe=''))",
        # So much that only its ends are kept in the notebook, with the secret right where it is cut.
        "print('.' * 63990 + secret + '.' * 200000)",
        "from IPython.display import display, HTML\n"
        "display({'text/plain': f'key {secret}', 'text/html': f'<b>{secret}</b>'}, raw=True)",
        "secret",
        "raise RuntimeError(f'401 for key {secret} of project x')",
    )
    kept = tmp_path / "kept"
    kept.mkdir()
    ended = execute(source, kept / "out.ipynb", {"x": 1}, spill_folder=kept / "logs")
    assert ended.outcome == "failed"
    assert_nowhere(kept)
    assert "wandb login [secret WANDB_API_KEY #" in shown(kept / "out.ipynb")
    assert "] done" in shown(kept / "out.ipynb")
    name, said = errors(kept / "out.ipynb")[0]
    assert name == "RuntimeError"
    assert said.startswith("401 for key [secret WANDB_API_KEY #")
    assert said.endswith("] of project x")
    assert list((kept / "logs").iterdir()), "the long output has a file of its own"


def test_what_a_command_prints_and_is_given(tmp_path):
    folder = RunFolder.create(tmp_path, asked())
    (folder.path / "logs").mkdir(exist_ok=True)
    container = LocalContainer("tests", _observer("10_environment", folder))
    argv = ("sh", "-c", f"printf '%s\\n' '{SECRET}'; printf '%s' '{SECRET}' | base64 >&2")
    result = container.run(Command(argv, purpose=f"say {SECRET}"))
    assert SECRET in result.text, "what is decided by is not masked"
    assert_nowhere(folder.path)
    folder.write_evidence("10_environment", {"said": result.text, "argv": list(argv)})
    assert_nowhere(folder.path)
    assert "[secret WANDB_API_KEY #" in json.dumps(folder.evidence("10_environment"))
    assert folder.journal.problems() == []
