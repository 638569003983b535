"""Target files: found by name or path, read from YAML, refused with every wrong field named.

In a target of kind ``sandbox``, ``{root}`` stands for the sandbox's folder and ``{python}`` for this
Python's version (3.x).
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from yaml.composer import ComposerError

from helpers.errors import ParameterError
from helpers.target.declared import DEFAULT_SANDBOX_ROOT, Target


class _EachKeyOnce(yaml.SafeLoader):
    """YAML's safe loader; where a key stands twice in a mapping, it does not take the last one."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and (key.tag, key.value) in seen:
                said = f"the key {key.value!r} stands there twice"
                raise ComposerError("in a mapping", node.start_mark, said, key.start_mark)
            seen.add((key.tag, str(key.value)))
        return node


TARGETS_FOLDER = Path(__file__).resolve().parents[2] / "runbooks" / "targets"


def target_names() -> list[str]:
    """Names of the target files in ``runbooks/targets``. **Changes:** nothing."""
    return sorted(p.stem for p in TARGETS_FOLDER.glob("*.yaml"))


def find_target(name: str) -> Path:
    """The file of a target given by name or by path.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        ParameterError: there is no such file; the nearest name is in the hint.
    """
    if "/" in name or name.endswith((".yaml", ".yml")):
        path = Path(name).expanduser().resolve()
        if path.is_file():
            return path
        raise ParameterError(
            f"There is no target file {path}.", hint="Give the path of a target's YAML file."
        )
    path = TARGETS_FOLDER / f"{name}.yaml"
    if path.is_file():
        return path
    near = difflib.get_close_matches(name, target_names(), n=1)
    hint = f"Did you mean {near[0]}?" if near else f"Known targets: {', '.join(target_names())}."
    raise ParameterError(f"There is no target called {name!r}.", hint=hint)


def load_target(name: str) -> Target:
    """Load and check a target, given by name or by path.

    **Runs on:** operator. **Changes:** nothing.

    Raises:
        ParameterError: the file is missing, is not YAML, or declares something wrong; every wrong field
            is named.
    """
    path = find_target(name)
    hint = f"Correct {path} and start again."
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), _EachKeyOnce)  # a safe loader
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ParameterError(f"{path.name} is not readable YAML: {error}", hint=hint) from error
    if not isinstance(raw, dict):
        raise ParameterError(f"{path.name} must be a mapping of fields.", hint=hint)
    try:
        return Target.model_validate({**_expand(raw, _placeholders(raw)), **_as_given(raw)})
    except ValidationError as error:
        lines = [f"  {'.'.join(map(str, e['loc']))}: {_complaint(e)}" for e in error.errors()]
        raise ParameterError(
            f"{path.name} declares something wrong:\n" + "\n".join(lines), hint=hint
        ) from error


def _complaint(error: Any) -> str:
    if error["type"] == "extra_forbidden":
        return "unknown field"
    return f"{error['msg']} (got {error['input']!r})"


def _as_given(raw: dict[str, Any]) -> dict[str, Any]:
    """What a placeholder stands for is said in ``reach``: it holds none itself."""
    return {"reach": raw["reach"]} if "reach" in raw else {}


def _placeholders(raw: dict[str, Any]) -> dict[str, str]:
    reach = raw.get("reach")
    if isinstance(reach, dict) and reach.get("kind") == "pct":
        return {}
    given = reach.get("root") if isinstance(reach, dict) else None
    root = Path(given).expanduser().resolve() if isinstance(given, str) else DEFAULT_SANDBOX_ROOT
    return {"{root}": str(root), "{python}": f"{sys.version_info.major}.{sys.version_info.minor}"}


def _expand(value: Any, placeholders: dict[str, str]) -> Any:
    if isinstance(value, str):
        for placeholder, meaning in placeholders.items():
            value = value.replace(placeholder, meaning)
        return value
    if isinstance(value, list):
        return [_expand(item, placeholders) for item in value]
    if isinstance(value, dict):
        return {key: _expand(item, placeholders) for key, item in value.items()}
    return value
