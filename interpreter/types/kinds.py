"""The Python array API standard's kinds of dtypes, and the check of operands against them.

Source: the standard's `isdtype` and its sentences "should have a numeric data type".
"""

from __future__ import annotations

from typing import TypeAlias

from .meta import DTYPE_NAMES, DTYPES, Meta, Metas

DTypes: TypeAlias = frozenset[str]

BOOLEAN: DTypes = frozenset({"bool"})
SIGNED: DTypes = frozenset({"int8", "int16", "int32", "int64"})
UNSIGNED: DTypes = frozenset({"uint8", "uint16", "uint32", "uint64"})
INTEGER: DTypes = SIGNED | UNSIGNED
REAL_FLOATING: DTypes = frozenset({"float16", "float32", "float64"})
COMPLEX_FLOATING: DTypes = frozenset({"complex64", "complex128"})
FLOATING: DTypes = REAL_FLOATING | COMPLEX_FLOATING
REAL: DTypes = INTEGER | REAL_FLOATING
NUMERIC: DTypes = REAL | COMPLEX_FLOATING
INTEGER_OR_BOOLEAN: DTypes = INTEGER | BOOLEAN
ANY: DTypes = NUMERIC | BOOLEAN
# No dtype at all: the operand is a Python scalar.
SCALAR: DTypes = frozenset()
# LAPACK has no half precision.
LAPACK: DTypes = FLOATING - {"float16"}
LAPACK_REAL: DTypes = REAL_FLOATING - {"float16"}

_NAMES: dict[DTypes, str] = {
    BOOLEAN: "boolean",
    SIGNED: "signed integer",
    UNSIGNED: "unsigned integer",
    INTEGER: "integer",
    REAL_FLOATING: "real floating-point",
    COMPLEX_FLOATING: "complex floating-point",
    FLOATING: "floating-point",
    REAL: "real-valued",
    REAL | BOOLEAN: "real-valued or boolean",
    NUMERIC: "numeric",
    INTEGER_OR_BOOLEAN: "integer or boolean",
    ANY: "all",
    LAPACK: "float32, float64, complex64 and complex128",
    LAPACK_REAL: "float32 and float64",
}


def kind_name(dtypes: DTypes) -> str:
    """The name of the kind of these dtypes, else their own names."""
    return _NAMES.get(dtypes) or ", ".join(name for name in DTYPES if name in dtypes)


def check_kinds(metas: Metas, dtypes: tuple[DTypes, ...], names: tuple[str, ...]) -> None:
    """TypeError unless each tensor among the operands has one of its dtypes."""
    for position, meta in enumerate(metas):
        accepted = dtypes[min(position, len(dtypes) - 1)]
        if accepted is not ANY and isinstance(meta, Meta) and DTYPE_NAMES[meta.dtype] not in accepted:
            which = names[min(position, len(names) - 1)] if len(metas) > 1 and names else "it"
            if not accepted:
                raise TypeError(f"{which} has to be a Python scalar, not a tensor")
            raise TypeError(f"not defined for {meta.dtype.name}: {which} takes {kind_name(accepted)} dtypes")
