"""Writes docs/ops.md, the list of ops, from their definitions.

.venv/bin/python docs/make_ops.py > docs/ops.md
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.schema.op_table import Description, by_family, same_dtypes
from tensord.interpreter.schema.opdef import REGISTRY
from tensord.interpreter.schema.opdoc import description_of

HEAD = """# Ops

`session.call(name, inputs, attributes)` issues an op by name; operators and methods of tensors, such as `x @ y` and
`x.sum()`, are short for the same. Names of ops and attributes are those of the Python array API standard where it has
them. `tensord ops NAME` says all about one of them.

Operands are tensors of the session with one of the dtypes after the colon, or Python scalars; `[x]` may be left out, of
`x...` there may be more. An attribute without a default has to be given.

- **view**: where strides can express it, the result shares its input's memory until one of the two is written. Values
  are independent: unlike with NumPy's views, writing to one never changes the other.
- **waits for data**: the data decide the result's shape; `shape` and `dtype` of the handle wait for it.
- **N results**: a call gives as many tensors.
- **whole**: of [global tensors](global.md), each device computes all of the op ([layouts.md](layouts.md)).
- **composite**: on a device without a kernel for it, it is made of other ops.
- **needs**: functions that a device's array module has to have; NumPy has all, CuPy lacks some. Where they are missing,
  the op runs on a cpu device, unless it is composite.
- **needs `scipy.special`**: SciPy where the device is (`pip install "tensord[special]"`), on a cuda device CuPy's
  `cupyx.scipy.special`.

This list is written from the definitions: `.venv/bin/python docs/make_ops.py > docs/ops.md`.
"""
BAR = "\\|"  # a bar in a cell
COLUMNS = ("op", "operands", "attributes", "result", "")


def code(text: str) -> str:
    """Text between backticks."""
    return f"`{text}`"


def operands(op: Description) -> str:
    """Names and what they take, neighbours that take the same together."""
    return "; ".join(f"{', '.join(map(code, names))}: {first['takes']}" for names, first in same_dtypes(op))


def attributes(op: Description) -> str:
    """Each attribute with its default, if it has one."""
    return ", ".join(code(a["name"] if a["required"] else f"{a['name']}={a['default']!r}") for a in op["attributes"])


def remarks(op: Description) -> str:
    """What is special about it."""
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
