"""A runbook is read by a tired person: its shape is the same in every one, and tested."""

import ast
import re
from pathlib import Path

import nbformat
import pytest

from helpers.book.rooms import STAGES

RUNBOOKS = Path(__file__).resolve().parents[2] / "runbooks"
CARD = ("changes", "takes", "undo", "needs", "next")
TAGS = (
    "operation-note",
    "parameters",
    "bind",
    "facts",
    "plan",
    "action",
    "verification",
    "rollback",
    "close",
)
NOTEBOOKS = sorted(RUNBOOKS.glob("*.ipynb"))


def notebook(path):
    return nbformat.read(path, as_version=4)


def tag(cell):
    return next(iter(cell.metadata.get("tags", [])), None)


def code(nb):
    return [c for c in nb.cells if c.cell_type == "code"]


def test_every_stage_has_its_notebook_and_no_other_lies_around():
    assert {p.stem for p in NOTEBOOKS} == set(STAGES)


@pytest.fixture(params=NOTEBOOKS, ids=lambda p: p.stem)
def path(request):
    return request.param


def test_it_is_stored_without_outputs(path):
    for cell in code(notebook(path)):
        assert cell.outputs == []
        assert cell.execution_count is None


def test_its_tags_stand_in_order(path):
    tags = [tag(c) for c in notebook(path).cells]
    assert [t for t in tags if t in TAGS] == list(TAGS)


def test_it_is_small(path):
    nb = notebook(path)
    assert len(nb.cells) <= 18
    lines = {c.id: len(c.source.splitlines()) for c in code(nb)}
    assert all(n <= 5 for n in lines.values()), lines
    assert sum(lines.values()) <= 40


def test_it_has_at_least_as_much_prose_as_code(path):
    nb = notebook(path)
    prose = sum(len(c.source) for c in nb.cells if c.cell_type == "markdown")
    assert prose >= sum(len(c.source) for c in code(nb))


def test_a_cell_has_no_logic(path):
    forbidden = (
        ast.FunctionDef,
        ast.ClassDef,
        ast.For,
        ast.While,
        ast.Try,
        ast.If,
        ast.With,
        ast.Lambda,
    )
    for cell in code(notebook(path)):
        assert not re.search(r"^\s*[!%]", cell.source, re.M), "no shell and no magic in a cell"
        tree = ast.parse(cell.source)
        assert not [n for n in ast.walk(tree) if isinstance(n, forbidden)], cell.source
        imported = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        assert all(n.module == "helpers" for n in imported)


def test_it_opens_with_what_changes_how_long_and_how_to_undo_it(path):
    first = notebook(path).cells[0].source
    assert first.startswith(f"# {path.stem[:2]} · ")
    for field in CARD:
        row = re.search(rf"^\| \*\*{field}\*\* \| (.+) \|$", first, re.M)
        assert row, f"the card lacks {field}"
        assert len(row[1]) > 5
    assert re.search(r"\d+ (s|min)", first), "says how long it takes"


def test_it_says_when_when_not_and_what_is_normal(path):
    text = notebook(path).cells[1].source
    for heading in ("**Run it**", "**Not", "**Normal:**"):
        assert heading in text


def test_its_bind_cell_opens_its_own_stage(path):
    cell = next(c for c in code(notebook(path)) if tag(c) == "bind")
    assert f'open_stage("{path.stem}"' in cell.source


def test_nothing_is_changed_by_default(path):
    cell = next(c for c in code(notebook(path)) if tag(c) == "parameters")
    assert re.search(r"^apply: bool = False", cell.source, re.M)
    # papermill cannot read a parameter whose line holds a second equals sign, and says so every time
    assert all(line.count("=") == 1 for line in cell.source.splitlines())


def test_its_links_lead_somewhere(path):
    for cell in notebook(path).cells:
        for link in re.findall(r"\]\(([^)#]+)\)", cell.source):
            assert (RUNBOOKS / link).exists(), link
