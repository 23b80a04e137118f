"""Writes docs/ops.md, the list of ops, from their definitions.

.venv/bin/python docs/make_ops.py > docs/ops.md
"""

from __future__ import annotations

import sys
from itertools import groupby

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.opdef import REGISTRY, REQUIRED, VARIADIC, OpDef

HEAD = """# Ops

`session.call(name, inputs, attributes)` issues an op by name; operators and methods of tensors, such as `x @ y` and
`x.sum()`, are short for the same. Names of ops and attributes are those of the Python array API standard where it has
them. Inputs are tensors of the session or Python scalars.

- **view**: where strides can express it, the result shares its input's memory until one of the two is written. Values
  are independent: unlike with NumPy's views, writing to one never changes the other.
- **waits for data**: the data decide the result's shape; `shape` and `dtype` of the handle wait for it.
- **composite**: on a device without a kernel for it, it is made of other ops.

This list is written from the definitions: `.venv/bin/python docs/make_ops.py > docs/ops.md`.
"""

# Families whose module's name is no title.
TITLES = {"dynamic": "Shapes decided by data", "linalg": "Matrices", "nn": "Neural networks"}


def family(op: OpDef) -> str:
    """The module that defines it."""
    return op.infer.__module__.rpartition(".")[2]


def attributes(op: OpDef) -> str:
    """Each attribute with its default, if it has one."""
    shown = (f"`{a.name}`" if a.default is REQUIRED else f"`{a.name}={a.default!r}`" for a in op.attributes)
    return ", ".join(shown)


def remarks(op: OpDef) -> str:
    """What is special about it."""
    found = {"view": op.view is not None, "waits for data": op.dynamic, "composite": op.compose is not None}
    return ", ".join(name for name, holds in found.items() if holds)


def row(op: OpDef) -> str:
    """One line of a table."""
    inputs = "1 or more" if op.inputs == VARIADIC else str(op.inputs)
    summary = op.summary.replace("|", "\\|")
    return f"| `{op.name}` | {inputs} | {attributes(op)} | {summary} | {remarks(op)} |"


def document() -> str:
    """The whole file."""
    parts = [HEAD]
    for name, members in groupby(REGISTRY.values(), family):
        table = "| op | inputs | attributes | result | |\n|---|---|---|---|---|"
        parts.append("\n".join([f"## {TITLES.get(name, name.capitalize())}\n", table, *map(row, members)]) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    sys.stdout.write(document())
