"""Writes docs/ops.md, the list of ops, from their definitions.

.venv/bin/python docs/make_ops.py > docs/ops.md
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.schema.op_table import Description, by_family, operands_by_dtypes
from tensord.interpreter.schema.opdef import REGISTRY
from tensord.interpreter.schema.opdoc import description_of

HEAD = """# Ops

`session.call(name, inputs, attributes)` issues an op by name; operators and methods of tensors, such as `x @ y` and
`x.sum()`, are short forms of such calls. Names of ops and attributes follow the Python array API standard as far as the
standard has them. `tensord ops NAME` describes one op in full.

Operands are tensors of the session with one of the dtypes after the colon, or Python scalars; `[x]` is optional, and
`x...` stands for one or more operands. An attribute without a default is required.

- **view**: the result shares its input's memory, if strides can express it, until one of the two is written. Values
  are independent: unlike with NumPy's views, writing to one never changes the other.
- **waits for data**: the shape of the result depends on data; `shape` and `dtype` of the handle wait for the data.
- **N results**: a call returns N tensors.
- **whole**: for [global tensors](global.md), each device computes the whole op ([layouts.md](layouts.md)).
- **composite**: on a device without a kernel for the op, the op is composed of other ops.
- **needs**: functions that a device's array module must have; NumPy has all of them, CuPy lacks some. If a function is
  missing, the op runs on a cpu device, unless it is composite.
- **needs `scipy.special`**: SciPy in the process that has the device (`pip install "tensord[special]"`); on a cuda
  device, CuPy's `cupyx.scipy.special`.

This list is generated from the definitions: `.venv/bin/python docs/make_ops.py > docs/ops.md`.
"""
BAR = "\\|"  # a bar in a cell
COLUMNS = ("op", "operands", "attributes", "result", "")


def code(text: str) -> str:
    """Text between backticks."""
    return f"`{text}`"


def operands(op: Description) -> str:
    """Operand names with their dtypes; neighbours with the same dtypes share them."""
    return "; ".join(f"{', '.join(map(code, names))}: {first['takes']}" for names, first in operands_by_dtypes(op))


def attributes(op: Description) -> str:
    """Each attribute with its default, if it has one."""
    return ", ".join(code(a["name"] if a["required"] else f"{a['name']}={a['default']!r}") for a in op["attributes"])


def remarks(op: Description) -> str:
    """Special properties of the op."""
    found = {
        "view": op["view"],
        "waits for data": op["dynamic"],
        f"{op['results']} results": op["results"] != 1,
        "composite": op["composite"],
        f"needs {', '.join(map(code, op['needs']))}": op["needs"],
        f"needs `{op['library']}`": op["library"],
        "whole": op["whole"] is not None,
    }
    return ", ".join(remark for remark, holds in found.items() if holds)


def row(cells: Sequence[str]) -> str:
    """One line of a table."""
    return f"| {' | '.join([cell.replace('|', BAR) for cell in cells])} |"


def document() -> str:
    """The whole file."""
    parts = [HEAD]
    for family, members in by_family(map(description_of, REGISTRY.values())).items():
        rows = [(code(op["name"]), operands(op), attributes(op), op["summary"], remarks(op)) for op in members]
        table = [row(COLUMNS), "|---" * len(COLUMNS) + "|", *map(row, rows)]
        parts.append("\n".join([f"## {family}\n", *table]) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(document())
