"""Declared packages against installed ones: shared by the judges of stages 00 and 10."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from helpers.judge.reading import holds, items, none_of, text
from helpers.target import Environment
from helpers.verdict import Check


def versions(packages: object) -> dict[str, str | None] | None:
    """Version by normalised name, from the inventory's list; None when there is no list."""
    listed = items(packages)
    if listed is None:
        return None
    named = [(text(package, "name"), text(package, "version")) for package in listed]
    return {name: version for name, version in named if name is not None}


def declared(packages: object, environment: Environment) -> list[Check]:
    """One check for each declared package: is it there, in a declared version?"""
    installed = versions(packages)
    return [_package(line, installed) for line in environment.packages]


def _package(line: str, installed: dict[str, str | None] | None) -> Check:
    source = "environment.packages in the target"
    try:
        wanted = Requirement(line)
    except InvalidRequirement as error:
        return holds(
            f"package {line}",
            None,
            measured=None,
            expected=line,
            source=source,
            meaning=f"No requirement: {error}.",
        )
    found = None if installed is None else installed.get(canonicalize_name(wanted.name))
    if installed is None:
        right, meaning = None, "The packages could not be read."
    elif canonicalize_name(wanted.name) in installed and found is None:
        right, meaning = None, f"{wanted.name} is there, but its metadata is damaged."
    elif found is None:
        right, meaning = False, f"{wanted.name} is not installed."
    else:
        right = _satisfies(wanted, found)
        meaning = f"{wanted.name} is there in another version than declared."
    return holds(
        f"package {wanted.name}",
        right,
        measured="not installed" if right is False and found is None else found,
        expected=line,
        source=source,
        meaning=meaning,
    )


def _satisfies(wanted: Requirement, version: str) -> bool:
    try:
        return wanted.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False


def forbidden(packages: object, environment: Environment) -> Check:
    """Nothing that the target forbids is installed."""
    installed = versions(packages)
    return none_of(
        "nothing forbidden",
        None if installed is None else _present(installed, environment.forbidden),
        expected=f"none of {', '.join(environment.forbidden)}"
        if environment.forbidden
        else "nothing is forbidden",
        source="environment.forbidden in the target",
        meaning="Packages of another purpose live here too; each brings versions of its own.",
    )


def _present(installed: Mapping[str, str | None], names: Iterable[str]) -> list[str]:
    return [
        f"{n} {installed[n]}"
        for n in sorted({canonicalize_name(name) for name in names})
        if n in installed
    ]
