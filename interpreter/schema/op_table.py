"""Descriptions of ops: as the JSON of a table, and as parts of texts for `tensord ops` and docs/ops.md.

`opdoc.description_of` makes a description from a definition. A built package contains the table, so that the command
line lists the ops without importing their kernels; hence this module imports none. In the table, the dtypes of a kind
of operands ("takes") are listed once; `op_descriptions.read_table` puts them back into each operand.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any, TypeAlias

# A dict of JSON's types: of an op, or of one of its operands; `opdoc.description_of` lists the keys.
Description: TypeAlias = dict[str, Any]


def json_table(descriptions: Iterable[Description]) -> str:
    """The JSON of a table: the dtypes of each kind of operands, and an op on each line."""
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


def operands_by_dtypes(description: Description) -> list[tuple[list[str], Description]]:
    """Groups of neighbouring operands with the same dtypes: their names as in a signature, and the description of the
    first."""
    grouped = (list(group) for _, group in groupby(description["operands"], key=lambda operand: operand["takes"]))
    return [([shown(operand) for operand in group], group[0]) for group in grouped]


def shown(operand: Mapping[str, Any]) -> str:
    """An operand's name as in a signature: `[name]` if it may be left out, `name...` if there may be more."""
    return {"required": "{}", "optional": "[{}]", "repeated": "{}..."}[operand["use"]].format(operand["name"])
