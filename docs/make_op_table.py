"""Writes the table of ops that the command line reads, from their definitions.

.venv/bin/python docs/make_op_table.py > interpreter/schema/ops.json
"""

from __future__ import annotations

import sys

from tensord.interpreter import ops as _ops  # noqa: F401 - fills the registry
from tensord.interpreter.schema.op_table import table_of
from tensord.interpreter.schema.opdef import REGISTRY
from tensord.interpreter.schema.opdoc import description_of

if __name__ == "__main__":
    sys.stdout.write(table_of(map(description_of, REGISTRY.values())))
