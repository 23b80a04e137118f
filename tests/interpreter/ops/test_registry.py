"""Rules that hold for every op in the registry."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensord.interpreter.ops  # noqa: F401 - fills the registry
from tensord.interpreter.errors import MetadataError
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import REGISTRY, VARIADIC, OpDef, has
from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case
from ...gpu.op_cases import Case, all_ops, cases, dtypes_of, seen

ELEMENTWISE = sorted(name for name, op in REGISTRY.items() if op.elementwise)
ATTRIBUTES = {"astype": [{"dtype": name} for name in DTYPES], "cast": [{"dtype": name} for name in DTYPES]}
OTHERS = ("bool", "int64", "float32")
SHAPE = (3, 4)
LAID_OUT = {"": 2, "int64": 2, "float64": 4, "complex64": 3}  # how many calls of each op are laid out in other ways
NUMPY_ERRS = {"isfinite", "isinf", "isnan", "signbit"}  # NumPy 2.4's own functions write wrong values between gaps


@each_case("name", sorted(REGISTRY))
def test_every_op_is_complete(name):
    op = REGISTRY[name]
    assert op.summary.endswith(".")
    assert (op.kernel is None) != (op.ufunc is None)
    assert op.outputs >= 1
    names = op.operand_names()
    assert len(names) == op.inputs if op.inputs != VARIADIC else op.operands
    assert op.dtypes
    assert all(dtypes <= set(DTYPES) for dtypes in op.dtypes)
    assert all(has(np, path) for path in op.needs)
    assert op.inputs >= 0 or op.inputs == VARIADIC
    if op.ufunc is not None:
        assert callable(getattr(np, op.ufunc))
        assert op.elementwise


@each_case("name", ELEMENTWISE)
def test_an_elementwise_op_may_write_over_any_input(name, make):
    """Each dtype beside its own and one more: all pairs occur over all ops."""
    checked = 0
    for attributes in ATTRIBUTES.get(name, [{}]):
        for turn, dtype in enumerate(DTYPES, ELEMENTWISE.index(name)):
            for others in (dtype, OTHERS[turn % len(OTHERS)]):
                checked += overwrite_each_input(REGISTRY[name], dtype, others, attributes, make)
    assert checked


def overwrite_each_input(op, dtype, others, attributes, make):
    """How many inputs could be written over; the result is the same as into fresh memory."""
    count = 0
    for position in range(op.least_operands()):
        inputs = operands(op, dtype, others, position, make)
        frozen = op.freeze(attributes)
        try:
            (out,) = infer_once(op, tuple(Meta.of(x.shape, x.dtype) for x in inputs), frozen)
        except MetadataError:
            continue
        assert out
        if out.shape != inputs[position].shape or out.dtype.itemsize != inputs[position].dtype.itemsize:
            continue
        count += compare_in_place(op, inputs, position, out.dtype, dict(frozen))
    return count


def operands(op, dtype, others, position, make):
    if op.name == "cross_entropy_grad":
        return [make(SHAPE, dtype, 1), np.array([0, 3, 1], others if others.startswith("int") else "int32")]
    return [
        np.abs(make(SHAPE, dtype if i == position else others, i)).astype(dtype if i == position else others)
        for i in range(op.least_operands())
    ]


def compare_in_place(op, inputs, position, dtype, attributes):
    bound = op.bind(np, len(inputs), attributes)
    expected = np.zeros(inputs[position].shape, dtype)
    with np.errstate(all="ignore"):
        bound(*inputs, expected)
        bound(*inputs, inputs[position].view(dtype))
    np.testing.assert_array_equal(inputs[position].view(dtype), expected)
    return 1


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::numpy.exceptions.ComplexWarning")
@each_case("op", [op for op in all_ops() if op.library is None], ids=lambda op: op.name)
def test_operands_may_have_any_layout_and_be_read_only_and_so_may_results(op):
    """Operands and results that lie backwards in memory and with gaps give the values of packed ones."""
    for dtype in LAID_OUT.keys() & set(dtypes_of(op)):
        for case in cases(op, dtype, most=LAID_OUT[dtype]):
            packed, loose = outcome(op, case, np.copy), outcome(op, case, loosened)
            assert len(packed) == len(loose), case
            for x, y in zip(packed, loose, strict=True):
                assert (x.shape, x.dtype) == (y.shape, y.dtype), case
                np.testing.assert_allclose(y, x, rtol=1e-5, atol=1e-6, err_msg=str(case))


def loosened(x: np.ndarray) -> np.ndarray:
    """The same array, every other element of a larger one, backwards along each of its axes, in Fortran's order."""
    backwards: Any = (..., *(slice(None, None, -2),) * x.ndim)
    found = np.zeros([2 * n for n in x.shape[::-1]], x.dtype).T[backwards]
    found[...] = x
    return found


def outcome(op: OpDef, case: Case, laid_out: Any) -> list[np.ndarray]:
    """The results of a call whose arrays are laid out so; none if it fails, as both have to then."""
    arrays = [seen(x, strided=case.strided) if isinstance(x, np.ndarray) else x for x in case.operands]
    operands = [laid_out(x) if isinstance(x, np.ndarray) else x for x in arrays]
    for operand in operands:
        if isinstance(operand, np.ndarray):
            operand.flags.writeable = False
    frozen = op.freeze(case.attributes)
    metas = tuple(Meta.of(x.shape, x.dtype) if isinstance(x, np.ndarray) else type(x) for x in operands)
    lay_out = np.copy if op.name in NUMPY_ERRS else laid_out
    outputs = [lay_out(np.ones(m.shape, m.dtype)) for m in infer_once(op, metas, frozen) if m is not None]
    try:
        returned = op.bind(np, len(operands), dict(frozen))(*operands, *outputs)
    except Exception as error:
        if "read-only" in str(error):
            raise
        return []
    return outputs or list(returned)
