from __future__ import annotations

import enum
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from papermill.translators import PythonTranslator

from helpers.book.parameters import check_parameters, read_parameters
from helpers.errors import ParameterError
from tests.notebooks.notebook_kit import write_notebook

CELL = """
target: str = "sandbox"  # a target's name or file
run: str | None = None
apply: bool = False
steps: int | None = None
tolerance: float = 0.9
shapes: list[int] = [1, 2]
sizes: "dict[str, float]" = {}
how: Literal["fast", "slow"] = "fast"
anything = None
plain = 3
token_budget: int = 4096
"""


@pytest.fixture
def notebook(tmp_path):
    return write_notebook(tmp_path / "30_verify.ipynb", "print(target)", parameters=CELL)


def test_declared_names_types_and_defaults_are_read_without_running_anything(notebook):
    read = {p.name: (p.annotation, p.default) for p in read_parameters(notebook)}
    assert read["run"] == ("str | None", None)
    assert read["tolerance"] == ("float", 0.9)
    assert read["plain"] == ("int", 3)
    assert next(iter(read)) == "target"


@pytest.mark.parametrize(
    "given_values",
    [
        {},
        {"target": "ct200", "run": None, "apply": True},
        {"run": "20261130T081203Z-sandbox-7f3a", "steps": 5, "tolerance": 1},
        {"shapes": [], "sizes": {"a": 1.5}, "how": "slow", "plain": 4},
        {"anything": {"a": [1, None, "x"]}},
        {"token_budget": 1},
    ],
)
def test_values_that_fit_are_given_back_as_they_are(notebook, given_values):
    assert check_parameters(notebook, given_values) == given_values


@pytest.mark.parametrize(
    ("given_values", "complaint"),
    [
        ({"targt": "x"}, "targt is unknown; did you mean target?"),
        ({"zzz": 1}, "zzz is unknown"),
        ({"target": 123}, r"target must be str, and is int 123 .*-r gives a text as it is"),
        ({"run": 1.5}, r"run must be str \| None"),
        ({"apply": "yes"}, "apply must be bool"),
        ({"apply": 1}, "apply must be bool"),
        ({"steps": True}, r"steps must be int \| None"),
        ({"steps": 2.0}, r"steps must be int \| None"),
        ({"tolerance": "0.9"}, "tolerance must be float"),
        ({"shapes": [1, "2"]}, r"shapes must be list\[int\]"),
        ({"how": "medium"}, "how must be Literal"),
        ({"plain": "3"}, "plain must be int"),
        ({"tolerance": float("nan")}, "tolerance is nan, which is not JSON"),
        ({"anything": [float("inf")]}, r"anything\[0\] is inf"),
        ({"anything": (1, 2)}, "anything is a tuple"),
        ({"anything": Path("/")}, "anything is a .*Path"),
        ({"anything": {1, 2}}, "anything is a set"),
        ({"anything": b"x"}, "anything is a bytes"),
        ({"anything": {1: 2}}, "has the key 1, not a text"),
        ({"anything": {"a": {"b": (1,)}}}, r"anything\['a'\]\['b'\] is a tuple"),
        ({"target": "\udc80"}, "half a surrogate pair"),
        ({"hf_token": "x"}, "hf_token looks like a secret"),
        ({"password": "x"}, "password looks like a secret"),
        ({"AWS_SECRET_ACCESS_KEY": "x"}, "AWS_SECRET_ACCESS_KEY looks like a secret"),
    ],
)
def test_values_that_do_not_fit_are_refused(notebook, given_values, complaint):
    with pytest.raises(ParameterError, match=complaint) as caught:
        check_parameters(notebook, given_values)
    assert caught.value.changed == "no"
    assert "It takes target: str, run: str | None" in caught.value.hint


class Colour(enum.StrEnum):
    RED = "red"


def test_a_text_of_a_special_kind_is_not_taken_for_a_text(notebook):
    with pytest.raises(ParameterError, match="target is a Colour"):
        check_parameters(notebook, {"target": Colour.RED})


def test_everything_wrong_is_listed_at_once(notebook):
    with pytest.raises(ParameterError) as caught:
        check_parameters(notebook, {"apply": 3, "steps": "x", "plain": None})
    for name in ("apply", "steps", "plain"):
        assert f"{name} must be" in str(caught.value)


def test_a_parameter_without_a_default_must_be_given(tmp_path):
    notebook = write_notebook(tmp_path / "a.ipynb", parameters="target: str\nmodel_config: int = 1")
    with pytest.raises(ParameterError, match=r"target must be given \(str\)"):
        check_parameters(notebook, {})
    assert check_parameters(notebook, {"target": "a", "model_config": 2})


@pytest.mark.parametrize(
    ("cell", "complaint"),
    [
        ("hf_token: str = ''", "looks like a secret"),
        ("db_password = None", "looks like a secret"),
        ("import os", "not the plain assignment of a literal"),
        ("x: int = len('abc')", "malformed node"),
        ("x: Path = None", "'Path' is not one of"),
        ("x: int = 'a'", "x must be int, and is str 'a'"),
        ("x = = 1", "invalid syntax"),
    ],
)
def test_a_parameters_cell_that_is_not_plain_is_refused(tmp_path, cell, complaint):
    notebook = write_notebook(tmp_path / "a.ipynb", parameters=cell)
    with pytest.raises(ParameterError, match=complaint):
        check_parameters(notebook, {})


def test_a_notebook_without_a_parameters_cell_or_that_is_none_is_refused(tmp_path):
    with pytest.raises(ParameterError, match="has no cells tagged 'parameters'"):
        check_parameters(write_notebook(tmp_path / "a.ipynb", "1", parameters=None), {})
    with pytest.raises(ParameterError, match="There is no notebook"):
        check_parameters(tmp_path / "b.ipynb", {})
    (tmp_path / "c.ipynb").write_text("no JSON")
    with pytest.raises(ParameterError, match="is not a notebook"):
        check_parameters(tmp_path / "c.ipynb", {})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(value=JSON)
def test_what_is_accepted_arrives_in_the_notebook_as_it_was(tmp_path_factory, value):
    notebook = tmp_path_factory.getbasetemp() / "property.ipynb"
    if not notebook.exists():
        write_notebook(notebook, parameters="value = None")
    try:
        accepted = check_parameters(notebook, {"value": value})
    except ParameterError:
        assert "nan" in repr(value) or "inf" in repr(value)
        return
    namespace: dict[str, object] = {}
    exec(PythonTranslator.codify(accepted), namespace)  # the cell that papermill injects
    assert namespace["value"] == value
    assert repr(namespace["value"]) == repr(value)
