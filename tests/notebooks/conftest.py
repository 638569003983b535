"""Executes small notebooks, for the tests of the engine."""

import pytest

from helpers.book.engine import drop_prestarted
from helpers.book.execution import execute
from tests.notebooks.notebook_kit import write_notebook


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out" / "a.ipynb"


@pytest.fixture
def run(tmp_path, out):
    """Execute a notebook made of these cells; a cell more always follows them."""
    out.parent.mkdir()

    def execute_cells(*cells, **options):
        notebook = write_notebook(tmp_path / "a.ipynb", *cells, "print('last')")
        return execute(notebook, out, options.pop("values", {}), **options)

    yield execute_cells
    drop_prestarted()
