"""A notebook's parameters as one typed document, checked before anything runs.

papermill guesses types from texts, only warns of an unknown name, and writes a value that it does
not know as a string. This room must not know what a parameter means.
"""

from __future__ import annotations

import ast
import difflib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import nbformat
from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, ValidationError, create_model

from helpers.book.cells import Notebook
from helpers.errors import ParameterError

TypeForm = Any  # a type as pydantic takes it: a class, a union, a Literal
_TYPES: dict[str, TypeForm] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": list[JsonValue],
    "dict": dict[str, JsonValue],
    "None": None,
}
_SECRET = re.compile(
    r"(^|_)"
    r"(pass(word|wd|phrase)?|pwd|secrets?|credentials?|(api|access|private|secret|ssh)_?key|token)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Parameter:
    """One name of a parameters cell.

    Attributes:
        name: the name.
        annotation: its type as written, or as its default shows it.
        accepts: that type, for pydantic.
        default: its value when none is given; ``...`` when one must be.
    """

    name: str
    annotation: str
    accepts: TypeForm
    default: object


def read_parameters(notebook: Path) -> tuple[Parameter, ...]:
    """What a notebook's ``parameters`` cell declares.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        ParameterError: there is no such notebook or cell, or the cell is not plain.
    """
    return declared_in(_read(notebook), notebook.name)


def check_parameters(notebook: Path, given: Mapping[str, object]) -> dict[str, JsonValue]:
    """Check values for a notebook's parameters, all of them, before anything runs.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        notebook: the notebook whose ``parameters`` cell declares them.
        given: the values by name.

    Returns:
        The values as given; what they leave out keeps its default.

    Raises:
        ParameterError: a name is unknown or looks like a secret, a value is of the wrong type or
            one that papermill would mangle, or a required one is missing. All of it is listed.
    """
    return check_values(read_parameters(notebook), given, notebook.name)


def check_values(
    declared: tuple[Parameter, ...], given: Mapping[str, object], notebook_name: str
) -> dict[str, JsonValue]:
    """As ``check_parameters``, for parameters read already. **Changes:** nothing."""
    known = {parameter.name: parameter for parameter in declared}
    wrong = [_unknown(name, list(known)) for name in given if name not in known]
    for name, value in given.items():
        wrong += [f"{name}{what}" for what in _mangled(value)] if name in known else []
    wrong = wrong or _mistyped(declared, given)
    if wrong:
        lines = "\n".join(f"    {complaint}" for complaint in wrong)
        takes = ", ".join(f"{p.name}: {p.annotation}" for p in declared) or "none"
        raise ParameterError(
            f"Parameters of {notebook_name} are wrong:\n{lines}",
            hint=f"Correct them and start again. It takes {takes}.",
        )
    return TypeAdapter(dict[str, JsonValue]).validate_python(dict(given))


def declared_in(notebook: Notebook, name: str) -> tuple[Parameter, ...]:
    """As ``read_parameters``, for a notebook in memory. **Changes:** nothing."""
    hint = f"Correct the parameters cell of {name}."
    cells = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    if len(cells) != 1:
        count = len(cells) or "no"
        raise ParameterError(f"{name} has {count} cells tagged 'parameters', not one.", hint=hint)
    try:
        read = [_declaration(statement) for statement in ast.parse(cells[0].source).body]
    except (SyntaxError, ValueError) as error:
        raise ParameterError(f"The parameters cell of {name}: {error}", hint=hint) from error
    found = tuple(parameter for parameter in read if parameter is not None)
    for parameter in found:
        if _SECRET.search(parameter.name):
            raise ParameterError(
                f"{name} declares {parameter.name!r}, which looks like a secret; a parameter"
                " stands in clear in the executed notebook.",
                hint="Name an environment variable, a file or a command in the target instead.",
            )
    return found


def _read(notebook: Path) -> Notebook:
    try:
        return nbformat.read(notebook, as_version=4)  # type: ignore[no-untyped-call]  # nbformat is untyped
    except FileNotFoundError as error:
        raise ParameterError(f"There is no notebook {notebook}.", hint="Give its path.") from error
    except nbformat.reader.NotJSONError as error:
        hint = "Restore it from git and start again."
        raise ParameterError(f"{notebook} is not a notebook.", hint=hint) from error


def _declaration(statement: ast.stmt) -> Parameter | None:
    """The parameter that a statement of the cell declares; None for a text standing by itself."""
    match statement:
        case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
            default = ... if value is None else ast.literal_eval(value)
            return Parameter(name, ast.unparse(annotation), _accepted(annotation), default)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            default = ast.literal_eval(value)
            shown = "anything" if default is None else type(default).__name__
            return Parameter(name, shown, _TYPES.get(shown, JsonValue), default)
        case ast.Expr(value=ast.Constant(value=str())):
            return None
    raise ValueError(f"{ast.unparse(statement)!r} is not the plain assignment of a literal value")


def _accepted(annotation: ast.expr) -> TypeForm:
    """The type that an annotation names, without running anything of the notebook."""
    match annotation:
        case ast.Constant(value=None):
            return None
        case ast.Constant(value=str(text)):
            return _accepted(ast.parse(text, mode="eval").body)
        case ast.Name(id=name) if name in _TYPES:
            return _TYPES[name]
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _accepted(left) | _accepted(right)
        case ast.Subscript(value=ast.Name(id="list"), slice=item):
            return list[_accepted(item)]  # type: ignore[misc]  # made at run time
        case ast.Subscript(value=ast.Name("dict"), slice=ast.Tuple([ast.Name(id="str"), item])):
            return dict[str, _accepted(item)]  # type: ignore[misc]  # made at run time
        case ast.Subscript(value=ast.Name(id="Literal"), slice=choices):
            return Literal[ast.literal_eval(choices)]
    raise ValueError(
        f"the type {ast.unparse(annotation)!r} is not one of {', '.join(_TYPES)}, a union of them,"
        " list[...], dict[str, ...] or Literal[...]"
    )


def _mistyped(declared: tuple[Parameter, ...], given: Mapping[str, object]) -> list[str]:
    fields: dict[str, Any] = {  # a parameter may have a name that pydantic keeps for itself
        f"p{index}": (parameter.accepts, Field(default=parameter.default, alias=parameter.name))
        for index, parameter in enumerate(declared)
    }
    strictly = ConfigDict(strict=True, validate_default=True, loc_by_alias=False)
    try:
        create_model("Parameters", __config__=strictly, **fields).model_validate(dict(given))
    except ValidationError as error:
        kinds = {int(str(e["loc"][0])[1:]): e["type"] for e in error.errors()}
        return [_mismatch(declared[index], kind, given) for index, kind in kinds.items()]
    return []


def _mismatch(parameter: Parameter, kind: str, given: Mapping[str, object]) -> str:
    if kind == "missing":
        return f"{parameter.name} must be given ({parameter.annotation})"
    value = given.get(parameter.name, parameter.default)
    is_text = str in (parameter.accepts, *get_args(parameter.accepts))
    guessed = is_text and isinstance(value, int | float)
    advice = " (papermill's -p guesses types; its -r gives a text as it is)" if guessed else ""
    is_now = f"{type(value).__name__} {value!r}"
    return f"{parameter.name} must be {parameter.annotation}, and is {is_now}{advice}"


def _mangled(value: object, at: str = "") -> list[str]:
    """What papermill would not write into the notebook as it is."""
    if type(value) is float and not math.isfinite(value):
        return [f"{at} is {value}, which is not JSON"]
    if type(value) is str:
        broken = any("\ud800" <= character <= "\udfff" for character in value)
        return [f"{at} holds half a surrogate pair, which cannot be written"] if broken else []
    if type(value) is dict:
        keys = [f"{at} has the key {key!r}, not a text" for key in value if type(key) is not str]
        return keys + [c for key, item in value.items() for c in _mangled(item, f"{at}[{key!r}]")]
    if type(value) is list:
        return [c for index, item in enumerate(value) for c in _mangled(item, f"{at}[{index}]")]
    if value is None or type(value) in (bool, int, float):
        return []
    return [f"{at} is a {type(value).__name__}, which papermill would write as something else"]


def _unknown(name: str, known: list[str]) -> str:
    if _SECRET.search(name):
        return f"{name} looks like a secret; no parameter holds one, a target names where it is"
    near = difflib.get_close_matches(name, known, n=1)
    return f"{name} is unknown" + (f"; did you mean {near[0]}?" if near else "")
