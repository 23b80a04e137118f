"""Every op has the same results on CuPy's values and on NumPy's, but for differences that a GPU is allowed.

The cases and the comparison are those of the proof of a GPU (`tests/gpu/stage_ops.py`). Functions of a library are left
out: on CuPy's values that is SciPy again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tensord.interpreter.schema.opdef import ArrayModule, OpDef

from ...each_case import each_case
from ...gpu.op_cases import Case, all_ops, cases, dtypes_of, seen
from ...gpu.stage_ops import Results, differences, summary
from .elsewhere import Elsewhere, run_on

# Numbers of cases: the first ten of each have special values and all layouts, later ones other attributes. Each op has
# one dtype of integers, with a sign or without.
DTYPES = {"": 48, "float32": 24, "complex64": 10}
INTEGERS = ({"int8": 10}, {"uint64": 10})
OPS = [op for op in all_ops() if op.library is None]


def outcome(op: OpDef, xp: ArrayModule, case: Case) -> Results:
    operands = [seen(x, strided=case.strided) if isinstance(x, np.ndarray) else x for x in case.operands]
    try:
        return run_on(xp, op.name, *operands, **case.attributes)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def wrong_of(op: OpDef, case: Case) -> list[Any]:
    there, here = outcome(op, Elsewhere(), case), outcome(op, np, case)
    if are_identical(there, here):
        return []
    found = differences(op, case, there, here)
    return [found] if isinstance(found, str) else [one.text for one in found if one.bad]


def are_identical(there: Results, here: Results) -> bool:
    """Whether both are identical, bit for bit. Most are, and measuring the distance takes longer than the calls."""
    if isinstance(there, str) or isinstance(here, str):
        return False
    return [(x.shape, x.dtype, x.tobytes()) for x in there] == [(x.shape, x.dtype, x.tobytes()) for x in here]


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::numpy.exceptions.ComplexWarning")
@each_case(("turn", "op"), enumerate(OPS), ids=lambda case: case[1].name)
def test_an_op_gives_on_cupys_values_what_it_gives_on_numpys(turn, op):
    most = DTYPES | INTEGERS[turn % 2]
    made = [
        case
        for dtype in dtypes_of(op)
        if dtype in most
        for case in cases(op, dtype, subnormal=False, most=most[dtype])
        if case.what != "long"
    ]
    wrong = [f"{case}: {each}" for case in made for each in wrong_of(op, case)]
    assert not wrong, summary(wrong, len(made))
