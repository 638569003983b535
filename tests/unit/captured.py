"""Captured payload documents as stages keep them, and every way of losing a part of one."""

import copy
import json
from pathlib import Path

from helpers.target import Target, load_target

H200 = Path(__file__).resolve().parent / "h200"
FOLDER = Path(__file__).resolve().parents[1] / "payloads" / "captured"


def document(name):
    """A captured payload document."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def h200(name):
    """A payload document captured on an H200 with torch 2.11.0, paths made neutral.

    Target and two drafters on one GPU. The compile cache was warm and proven so; the three threads
    ran into the tracing race all the same, in 3 of 3 processes.
    """
    return json.loads((H200 / f"{name}.json").read_text(encoding="utf-8"))


def measured(name):
    """What a room makes of a document that it hands on as it is."""
    return handed_on(document(name))


def handed_on(whole):
    """What a room makes of a document that it hands on as it is."""
    return {**whole["measured"], "params": whole["params"], "errors": whole["errors"]}


def target(**changed):
    """The sandbox's target with the roles that the documents were captured with.

    Each argument names a part of the target and gives the fields of it that differ.
    """
    raw = load_target("sandbox").model_dump()
    raw["workload"]["roles"] = document("benchmark")["params"]["roles"]
    raw["environment"]["python"] = "3.11"
    raw["torch"] |= {"version": "2.13.0+cpu", "cuda": None, "available": False, "device_count": 0}
    for part, fields in changed.items():
        raw[part] |= fields
    return Target.model_validate(raw)


def losses(evidence):
    """Copies of the evidence, each with one value gone or null; with the path of what was lost."""
    for where in _paths(evidence):
        for gone in (True, False):
            lost = copy.deepcopy(evidence)
            holder = lost
            for key in where[:-1]:
                holder = holder[key]
            if not gone:
                holder[where[-1]] = None
            elif isinstance(holder, dict):
                del holder[where[-1]]
            else:
                continue
            yield where, lost


def _paths(value, path=()):
    """Every key and the first two places of every list."""
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))[:2]
    else:
        return
    for key, inner in items:
        yield (*path, key)
        yield from _paths(inner, (*path, key))
