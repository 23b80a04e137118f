"""Descriptions of ops, made from their definitions: for the documentation, and for the table that the command line
reads."""

from __future__ import annotations

from ..types.kinds import BOOLEAN, FLOATING, REAL, REAL_FLOATING, DTypes, kind_name
from ..types.meta import DTYPES
from .op_table import Description
from .opdef import REQUIRED, OpDef

SCALAR = "Python scalar"

# Module or folder of `ops` -> family, unless the family is called like the module.
_FAMILIES = {
    "cumulative": "Reductions",
    "curves": "Curves and histograms",
    "decompositions": "Linear algebra",
    "diagonals": "Linear algebra",
    "dynamic": "Shapes decided by data",
    "einsum": "Linear algebra",
    "fft": "Fourier transforms",
    "histograms": "Curves and histograms",
    "indexing": "Indexing",
    "joining": "Joining and assigning",
    "linalg": "Linear algebra",
    "nn": "Neural networks",
    "norms": "Linear algebra",
    "quantiles": "Reductions",
    "random": "Random numbers",
    "searching": "Sorting and searching",
    "sets": "Shapes decided by data",
    "solving": "Linear algebra",
    "sorting": "Sorting and searching",
}


def description_of(op: OpDef) -> Description:
    """The description of an op.

    An operand has "name"; "use", which is "required", "optional" or "repeated"; "takes", the name of its kind of
    dtypes; and "dtypes", their names (empty for a Python scalar). An attribute is {"name", "required", "default"}.
    """
    return {
        "name": op.name,
        "family": family_of(op),
        "summary": op.summary,
        "operands": [_operand(op, position, name) for position, name in enumerate(op.operand_names())],
        "attributes": [
            {"name": a.name, "required": a.default is REQUIRED, "default": None if a.default is REQUIRED else a.default}
            for a in op.attributes
        ],
        "results": op.outputs,
        "dynamic": op.dynamic,
        "view": op.view is not None,
        "elementwise": op.elementwise,
        "partial": op.writes_part,
        "composite": op.compose is not None,
        "ufunc": op.ufunc,
        "needs": list(op.needs),
        "library": None if op.library is None else op.library.name,
        "whole": op.layouts if isinstance(op.layouts, str) else None,
    }


def family_of(op: OpDef) -> str:
    """The name of the op's family. It follows from the module of the kernel (or of `infer`), or from its folder in
    `ops`: an op of `ops/nn/losses.py` is in the family of "nn", "Neural networks".
    """
    *folders, module = (op.kernel or op.infer).__module__.split(".")
    module = folders[-1] if folders and folders[-1] != "ops" and "ops" in folders else module
    return _FAMILIES.get(module, module.replace("_", " ").capitalize())


def _operand(op: OpDef, position: int, name: str) -> Description:
    accepted: DTypes = op.dtypes[min(position, len(op.dtypes) - 1)]
    return {
        "name": name,
        "use": _use(op, position),
        "takes": _takes(accepted),
        "dtypes": [dtype for dtype in DTYPES if dtype in accepted],
    }


def _use(op: OpDef, position: int) -> str:
    if op.most_operands() is None and position == len(op.operand_names()) - 1:
        return "repeated"
    return "required" if position < op.least_operands() else "optional"


def _takes(accepted: DTypes) -> str:
    rest = accepted - BOOLEAN
    if rest != accepted and rest in (REAL, REAL_FLOATING, FLOATING):  # with bool, these kinds have no name
        return f"{kind_name(rest)} or boolean"
    return kind_name(accepted) if accepted else SCALAR
