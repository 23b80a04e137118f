"""What holds for every op, whoever adds it."""

from __future__ import annotations

import numpy as np

import tensord.interpreter.ops  # noqa: F401 - fills the registry
from tensord.interpreter.errors import MetadataError
from tensord.interpreter.schema.infer import infer_once
from tensord.interpreter.schema.opdef import REGISTRY, VARIADIC, has
from tensord.interpreter.types.meta import DTYPES, Meta

from ...each_case import each_case

ELEMENTWISE = sorted(name for name, op in REGISTRY.items() if op.elementwise)
ATTRIBUTES = {"astype": [{"dtype": name} for name in DTYPES], "cast": [{"dtype": name} for name in DTYPES]}
OTHERS = ("bool", "int64", "float32")
SHAPE = (3, 4)


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
    """Each dtype beside its own and one more: over all ops every pair is there."""
    checked = 0
    for attributes in ATTRIBUTES.get(name, [{}]):
        for turn, dtype in enumerate(DTYPES, ELEMENTWISE.index(name)):
            for others in (dtype, OTHERS[turn % len(OTHERS)]):
                checked += overwrite_each_input(REGISTRY[name], dtype, others, attributes, make)
    assert checked


def overwrite_each_input(op, dtype, others, attributes, make):
    """How many inputs could be written over; the result is the same as into fresh memory."""
    count = 0
    for position in range(op.inputs):
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
        for i in range(op.inputs)
    ]


def compare_in_place(op, inputs, position, dtype, attributes):
    bound = op.bind(np, len(inputs), attributes)
    expected = np.zeros(inputs[position].shape, dtype)
    with np.errstate(all="ignore"):
        bound(*inputs, expected)
        bound(*inputs, inputs[position].view(dtype))
    np.testing.assert_array_equal(inputs[position].view(dtype), expected)
    return 1
