"""Installed against declared: missing, drifted, forbidden, beyond need, in conflict.

Pure: metadata and declarations in, lists out. It must not know how the metadata was read, nor what
is done about a difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from helpers.errors import ParameterError
from helpers.recover.work import Json

# What seeds a virtual environment. It is nobody's requirement and no pollution.
SEEDED = frozenset({"pip", "setuptools", "wheel"})


def compare(
    distributions: Iterable[Mapping[str, Any]],
    markers: Mapping[str, str],
    declared: Iterable[str],
    forbidden: Iterable[str],
) -> Json:
    """Hold an environment's packages against a declaration.

    **Runs on:** operator. **Changes:** nothing.

    Args:
        distributions: what the payload ``distributions`` measured.
        markers: the environment's marker variables.
        declared: the requirements that should be there, with what they need, and nothing else.
        forbidden: names that must not be there.

    Returns:
        ``missing``, ``drifted``, ``forbidden``, ``extra`` and ``conflicts``: lists of sentences'
        parts, for instance ``numpy 1.26.4 (declared: numpy==2.4.6)``.

    Raises:
        ParameterError: a declared line is no requirement.
    """
    installed: dict[str, Mapping[str, Any]] = {}
    conflicts: list[str] = []
    for distribution in distributions:
        name = distribution["name"]
        if name is None or distribution["version"] is None:
            conflicts.append(f"{distribution['metadata']}: damaged metadata")
        elif name in installed:
            conflicts.append(
                f"{name} is there twice: {installed[name]['version']}, {distribution['version']}"
            )
        else:
            installed[name] = distribution
    wanted = [r for r in map(_declared, declared) if _applies(r, markers, "")]
    missing = [str(r) for r in wanted if canonicalize_name(r.name) not in installed]
    drifted = [
        f"{canonicalize_name(r.name)} {found['version']} (declared: {r})"
        for r in wanted
        if (found := installed.get(canonicalize_name(r.name)))
        and not _satisfied(r, found["version"])
    ]
    needed = _closure(wanted, installed, markers)
    banned = {canonicalize_name(name) for name in forbidden}
    extra = set(installed) - set(needed) - SEEDED - banned
    for name, distribution in installed.items():
        conflicts += _conflicts(distribution, needed.get(name, {""}), installed, markers)
    return {
        "missing": list(missing),
        "drifted": list(drifted),
        "forbidden": [f"{n} {installed[n]['version']}" for n in sorted(banned & set(installed))],
        "extra": [f"{n} {installed[n]['version']}" for n in sorted(extra)],
        "conflicts": list(conflicts),
    }


def _declared(line: str) -> Requirement:
    try:
        return Requirement(line)
    except InvalidRequirement as error:
        raise ParameterError(
            f"{line!r} is no requirement: {error}",
            hint="Correct environment.packages in the target file (for instance numpy==2.4.6).",
        ) from error


def _closure(
    wanted: Iterable[Requirement],
    installed: Mapping[str, Mapping[str, Any]],
    markers: Mapping[str, str],
) -> dict[str, set[str]]:
    """Every installed package that the wanted ones need, with the extras that are asked of it."""
    needed: dict[str, set[str]] = {}
    waiting = list(wanted)
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name not in installed:
            continue
        extras = {"", *(canonicalize_name(extra) for extra in requirement.extras)}
        fresh = extras - needed.setdefault(name, set())
        needed[name] |= fresh
        waiting += [r for r in _requires(installed[name]) for e in fresh if _applies(r, markers, e)]
    return needed


def _requires(distribution: Mapping[str, Any]) -> Iterator[Requirement]:
    for line in distribution["requires"]:
        try:
            yield Requirement(line)
        except InvalidRequirement:
            continue  # reported as a conflict


def _applies(requirement: Requirement, markers: Mapping[str, str], extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({**markers, "extra": extra})


def _satisfied(requirement: Requirement, version: str) -> bool:
    # An installed pre-release was wanted by somebody; whether it may be chosen is the installer's
    # business.
    try:
        return requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False


def _conflicts(
    distribution: Mapping[str, Any],
    extras: set[str],
    installed: Mapping[str, Mapping[str, Any]],
    markers: Mapping[str, str],
) -> Iterator[str]:
    name = distribution["name"]
    for line in distribution["requires"]:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            yield f"{name} asks for {line!r}, which is no requirement"
            continue
        if not any(_applies(requirement, markers, extra) for extra in extras):
            continue
        found = installed.get(canonicalize_name(requirement.name))
        if found is None:
            yield f"{name} needs {requirement}, which is missing"
        elif not _satisfied(requirement, found["version"]):
            yield f"{name} needs {requirement}, found {found['version']}"
