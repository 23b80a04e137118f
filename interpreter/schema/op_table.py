"""Descriptions of ops, as a table (`interpreter.op_descriptions`) and as text. Imports no kernels."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, TypeAlias

# A dict of JSON's types: name, family, summary, operands, attributes, results, and special properties.
Description: TypeAlias = dict[str, Any]


def table_of(descriptions: Iterable[Description]) -> str:
    """The text of a table: the dtypes of each kind of operands, and an op on each line."""
    kinds: dict[str, list[str]] = {}
    lines = []
    for op in descriptions:
        kinds |= {operand["takes"]: operand["dtypes"] for operand in op["operands"]}
        operands = [{**operand, "dtypes": None} for operand in op["operands"]]
        lines.append(json.dumps({**op, "operands": operands}))
    return f'{{"kinds": {json.dumps(kinds)},\n"ops": [\n' + ",\n".join(lines) + "\n]}\n"


def by_family(descriptions: Iterable[Description]) -> dict[str, list[Description]]:
    """The descriptions of each family; families and ops are in the order of their definition."""
    families: dict[str, list[Description]] = {}
    for op in descriptions:
        families.setdefault(op["family"], []).append(op)
    return families


def same_dtypes(description: Description) -> list[tuple[list[str], Description]]:
    """Groups of neighbouring operands with the same dtypes: their shown names, and the description of the first."""
    grouped = (list(group) for _, group in groupby(description["operands"], key=lambda operand: operand["takes"]))
    return [([shown(operand) for operand in group], group[0]) for group in grouped]


def shown(operand: Mapping[str, Any]) -> str:
    """An operand's name as in a signature: `[name]` if it may be left out, `name...` if there may be more."""
    return {"required": "{}", "optional": "[{}]", "repeated": "{}..."}[operand["use"]].format(operand["name"])


def similar(name: str, names: Iterable[str]) -> str:
    """`; did you mean multiply?` for a name that is not among the names; empty if none of them is similar."""
    from difflib import get_close_matches

    near = get_close_matches(name[:80], list(names), n=3, cutoff=0.7)
    return f"; did you mean {' or '.join(near)}?" if near else ""
