"""The loops of CuPy's ufuncs: the device code for one element, from which generated kernels are made.

A CuPy ufunc has a loop for each combination of dtypes. A loop is a C++ statement that computes `out0` from `in0`,
`in1`, ...; kernels with the same statement, compiled with CuPy's flags, give the same bits. As in CuPy, the first loop
to whose dtypes the operands can be cast is chosen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ...interpreter.types.meta import Meta, OperandMeta

NAMES: Final = {
    "bool": "bool",
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long long",
    "uint64": "unsigned long long",
    "float32": "float",
    "float64": "double",
}  # of dtypes in C
HEADERS: Final = "#include <cupy/complex.cuh>\n#include <cupy/carray.cuh>\n"  # needed by the loops' code


class UfuncLoop(NamedTuple):
    """One loop of a CuPy ufunc: its dtypes, the device code of one element (`in0`, ..., `out0`), and a preamble."""

    taken: tuple[Any, ...]
    given: Any
    code: str
    preamble: str


def loop_of(ufunc: Any, metas: Sequence[OperandMeta], result: Meta) -> UfuncLoop | None:
    """The loop that a CuPy ufunc uses for these operands. None if that is unknown, or generated kernels do not support
    it."""
    loop = first_loop(ufunc, [meta.dtype if isinstance(meta, Meta) else meta for meta in metas])
    return loop if loop is not None and loop.given == result.dtype else None


def first_loop(ufunc: Any, operands: Sequence[Any]) -> UfuncLoop | None:
    """The first loop to whose dtypes the operands can be cast. An operand is a dtype, or the type of a Python
    number."""
    tensors = [each for each in operands if isinstance(each, np.dtype)]
    if not tensors or any(dtype.name not in NAMES for dtype in tensors):
        return None
    of_number = np.result_type(*tensors)  # a Python number has no dtype of its own
    given = [each if isinstance(each, np.dtype) else of_number for each in operands]
    for loop in getattr(getattr(ufunc, "_ops", None), "ops", ()):
        if all(map(np.can_cast, given, loop.in_types)):
            known = len(loop.out_types) == 1 and all(d.name in NAMES for d in (*loop.in_types, *loop.out_types))
            code, before = str(loop.routine), str(ufunc._preamble)  # noqa: SLF001 - as CuPy's own jit
            return UfuncLoop(loop.in_types, loop.out_types[0], code, before) if known else None
    return None
