"""The descriptions of all ops. A built package reads them from a table, so that listing ops imports no kernels.

A build writes the table from the definitions (`setup.py`): python -m tensord.interpreter.op_descriptions > ops.json. In
a checkout there is no table, and the definitions are read.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final

from .schema.op_table import Description, json_table

TABLE_FILE: Final = Path(__file__).with_name("schema") / "ops.json"


def read_table() -> dict[str, Description]:
    """Name -> the description of that op, in the order of definition."""
    try:
        text = TABLE_FILE.read_text()
    except FileNotFoundError:
        text = make_table()
    table = json.loads(text)
    for op in table["ops"]:
        for operand in op["operands"]:
            operand["dtypes"] = table["kinds"][operand["takes"]]
    return {op["name"]: op for op in table["ops"]}


def make_table() -> str:
    """The table of the definitions."""
    from . import ops as _ops  # noqa: F401 - fills the registry
    from .schema.opdef import REGISTRY
    from .schema.opdoc import description_of

    return json_table(map(description_of, REGISTRY.values()))


if __name__ == "__main__":
    sys.stdout.write(make_table())
