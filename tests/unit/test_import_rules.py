"""Who may import whom. A line here is a wall of the house."""

import ast
from pathlib import Path

import pytest

HELPERS = Path(__file__).resolve().parents[2] / "helpers"

# wing -> wings it may import (itself always)
MAY = {
    "errors": set(),
    "verdict": set(),
    "plan": set(),
    "target": {"errors"},
    "reach": {"errors", "target"},
    "record": {"errors", "verdict", "plan"},
    "judge": {"verdict", "target"},
    "recover": {"reach", "verdict", "target", "plan", "errors"},
    "book": {"errors", "verdict", "plan", "target", "reach", "record", "judge", "recover"},
    "sandbox": {"errors", "target", "verdict", "plan", "reach", "judge", "recover"},
    "cli": {
        "errors",
        "plan",
        "target",
        "book",
        "record",
        "sandbox",
        "cli_baseline",
        "cli_output",
        "cli_record",
        "cli_sandbox",
    },
    "cli_baseline": {"book"},
    "cli_record": {"book", "record"},
    "cli_sandbox": {"target", "sandbox", "cli_output"},
    "cli_output": {"errors", "plan", "target", "verdict", "book", "record", "sandbox"},
    "": {"book"},
}
PURE = {
    "os",
    "io",
    "time",
    "socket",
    "subprocess",
    "pathlib",
    "datetime",
    "torch",
    "requests",
    "threading",
}


def modules():
    for path in sorted(HELPERS.rglob("*.py")):
        inside = path.relative_to(HELPERS)
        if inside.parts[0] == "payloads" or inside.parts[:2] in (
            ("sandbox", "repository"),
            ("sandbox", "hacks"),
        ):
            continue
        if inside.parts[:3] == ("sandbox", "bed", "standin"):
            continue  # copied into a bed and run there by the system's Python
        yield path


def wing_of(dotted: str) -> str:
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 else ""


def imports(path: Path, *, with_typing_only: bool = False):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = set()
    if not with_typing_only:
        for node in ast.walk(tree):
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                skipped |= {id(n) for n in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            if node.module == "helpers":
                yield from (f"helpers.{alias.name}" for alias in node.names)
            elif node.module:
                yield node.module
                yield from (
                    f"{node.module}.{a.name}" for a in node.names if is_module(node.module, a.name)
                )


def is_module(package: str, name: str) -> bool:
    return package.startswith("helpers") and (
        HELPERS.parent.joinpath(*package.split("."), f"{name}.py").is_file()
    )


def own_wing(path: Path) -> str:
    first = path.relative_to(HELPERS).parts[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


@pytest.mark.parametrize("path", list(modules()), ids=lambda p: str(p.relative_to(HELPERS)))
def test_a_module_imports_only_what_its_wing_may(path):
    wing = own_wing(path)
    for name in imports(path):
        if name.split(".")[0] == "helpers" and (theirs := wing_of(name)) not in ("", wing):
            assert theirs in MAY[wing], f"{wing or 'helpers'} must not import {name}"
        assert not name.startswith("helpers.payloads"), "payloads are read as files, never imported"


@pytest.mark.parametrize("path", sorted((HELPERS / "judge").glob("*.py")), ids=lambda p: p.name)
def test_a_judge_is_pure(path):
    for name in imports(path):
        assert name.split(".")[0] not in PURE, f"a judge must not import {name}"
    source = path.read_text(encoding="utf-8")
    assert "open(" not in source


@pytest.mark.parametrize("path", sorted((HELPERS / "payloads").glob("*.py")), ids=lambda p: p.name)
def test_a_payload_imports_nothing_of_ours(path):
    assert not [n for n in imports(path) if n.split(".")[0] == "helpers"]


def test_no_import_circle():
    edges = {}
    for path in modules():
        dotted = ".".join(
            ("helpers", *path.relative_to(HELPERS).with_suffix("").parts)
        ).removesuffix(".__init__")
        edges[dotted] = {n for n in imports(path) if n.startswith("helpers.")}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]):
        assert name not in trail, " -> ".join((*trail, name))
        if name in done:
            return
        for target in edges.get(name, ()):
            if target in edges and target != name:
                visit(target, (*trail, name))
        done.add(name)

    for name in edges:
        visit(name, ())


def test_rooms_stay_small():
    big = {}
    for path in HELPERS.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        lines = len(path.read_text(encoding="utf-8").splitlines())
        if lines > 300:
            big[str(path.relative_to(HELPERS))] = lines
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and code_lines(node) > 40:
                big[f"{path.relative_to(HELPERS)}:{node.name}"] = code_lines(node)
    assert not big


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines of a function without its docstring."""
    body = node.body[1:] if ast.get_docstring(node) else node.body
    return (node.end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_no_room_is_called_utils():
    assert not [
        p for p in HELPERS.rglob("*.py") if p.stem in ("utils", "util", "base", "common", "misc")
    ]
