"""Installed against declared: the closure of what is needed, extras, markers, conflicts."""

import pytest

from helpers.errors import ParameterError
from helpers.recover.requirements import compare

MARKERS = {
    "implementation_name": "cpython",
    "implementation_version": "3.11.7",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_release": "6.1",
    "platform_system": "Linux",
    "platform_version": "1",
    "python_full_version": "3.11.7",
    "python_version": "3.11",
    "sys_platform": "linux",
}


def has(name, version="1.0", *requires):
    metadata = f"{name}-{version}.dist-info"
    return {"name": name, "version": version, "requires": list(requires), "metadata": metadata}


def found(distributions, declared, forbidden=()):
    compared = compare(distributions, MARKERS, declared, forbidden)
    return {kind: names for kind, names in compared.items() if names}


@pytest.mark.parametrize(
    ("distributions", "declared", "expected"),
    [
        ([has("a")], ["a"], {}),
        ([has("a", "1.0", "b"), has("b", "1.0", "c>=1"), has("c")], ["a"], {}),
        ([has("a"), has("b")], ["a"], {"extra": ["b 1.0"]}),
        ([has("a", "2.0")], ["a==1.0"], {"drifted": ["a 2.0 (declared: a==1.0)"]}),
        ([], ["a==1.0"], {"missing": ["a==1.0"]}),
        ([has("torch", "2.13.0+cpu")], ["torch==2.13.0"], {}),
        (
            [has("torch", "2.13.0+cpu")],
            ["torch==2.13.0+cu128"],
            {"drifted": ["torch 2.13.0+cpu (declared: torch==2.13.0+cu128)"]},
        ),
        ([has("a", "1.0rc1")], ["a>=1.0rc0"], {}),
        (
            [has("a", "no version at all")],
            ["a==1"],
            {"drifted": ["a no version at all (declared: a==1)"]},
        ),
        ([has("some-name")], ["Some_Name"], {}),
        ([has("pip"), has("setuptools"), has("wheel"), has("a")], ["a"], {}),
        ([has("a", "1.0", "w; sys_platform == 'win32'")], ["a"], {}),
        ([has("a", "1.0", "w; sys_platform == 'win32'"), has("w")], ["a"], {"extra": ["w 1.0"]}),
        ([has("a", "1.0", "b; extra == 'fast'"), has("b")], ["a"], {"extra": ["b 1.0"]}),
        ([has("a", "1.0", "b; extra == 'fast'"), has("b")], ["a[fast]"], {}),
        (
            [has("a", "1.0", "b; extra == 'fast'")],
            ["a[fast]"],
            {"conflicts": ['a needs b; extra == "fast", which is missing']},
        ),
        (
            [has("a", "1.0", "a[more]; extra == 'all'", "b; extra == 'more'"), has("b")],
            ["a[all]"],
            {},
        ),
        ([has("a", "1.0", "b>=2"), has("b")], ["a"], {"conflicts": ["a needs b>=2, found 1.0"]}),
        ([has("a", "1.0", "b"), has("b", "1.0", "a")], ["a"], {}),
        (
            [has("a", "1.0", "((")],
            ["a"],
            {"conflicts": ["a asks for '((', which is no requirement"]},
        ),
        ([has("a"), has("a", "2.0")], ["a"], {"conflicts": ["a is there twice: 1.0, 2.0"]}),
        (
            [has("a"), has("n") | {"name": None, "metadata": "junk.dist-info"}],
            ["a"],
            {"conflicts": ["junk.dist-info: damaged metadata"]},
        ),
        ([has("a")], ["a", "w; sys_platform == 'win32'"], {}),
    ],
)
def test_installed_against_declared(distributions, declared, expected):
    assert found(distributions, declared) == expected


def test_a_forbidden_package_is_forbidden_and_not_merely_extra():
    assert found([has("a"), has("sglang")], ["a"], ["SGLang"]) == {"forbidden": ["sglang 1.0"]}


def test_what_a_forbidden_package_needs_is_extra():
    installed = [has("a"), has("sglang", "1.0", "b"), has("b")]
    assert found(installed, ["a"], ["sglang"]) == {"forbidden": ["sglang 1.0"], "extra": ["b 1.0"]}


def test_a_declaration_that_is_no_requirement_is_the_targets_mistake():
    with pytest.raises(ParameterError, match="'numpy = 2' is no requirement"):
        compare([], MARKERS, ["numpy = 2"], [])
