"""Elementwise ops against NumPy, bit for bit."""

from __future__ import annotations

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tensord.interpreter.ops  # noqa: F401 - fills the registry
from tensord.interpreter.errors import MetadataError
from tensord.interpreter.ops.elementwise import CORRECTED
from tensord.interpreter.schema.opdef import REGISTRY
from tensord.interpreter.schema.promotion import promote
from tensord.interpreter.types.meta import DTYPES

from ...each_case import each_case
from ..conftest import meta_of

PLAIN = {name for name, op in REGISTRY.items() if op.ufunc and name != "clip"} - {
    entry.partition(":")[0] for entry in CORRECTED
}
UFUNCS = [*sorted(PLAIN), "maximum", "minimum"]
NUMBERS = [True, 2, 3.5, float("nan"), 1 + 2j]
SHAPES = [(3, 4), (4,), (3, 1)]


@st.composite
def operands(draw, count):
    """(shape, dtype) per tensor, or a Python scalar at one position."""
    shapes = draw(hnp.mutually_broadcastable_shapes(num_shapes=count, max_dims=3, min_side=0, max_side=3))
    tensors = [(shape, draw(st.sampled_from(sorted(DTYPES)))) for shape in shapes.input_shapes]
    if count > 1 and draw(st.booleans()):
        tensors[draw(st.integers(0, count - 1))] = draw(st.sampled_from(NUMBERS))
    return tensors


def build(make, specs):
    return [make(*spec, seed) if isinstance(spec, tuple) else spec for seed, spec in enumerate(specs)]


def mix(arguments):
    """Whether the operands' kinds promote. Pairs that do not are in test_promotion."""
    try:
        promote(tuple(map(meta_of, arguments)))
    except TypeError:
        return False
    return True


@each_case("name", UFUNCS)
def test_ufuncs(name, evaluate, make, assert_same):
    """Each dtype by itself, then beside itself, two others and each kind of number, at both positions."""
    dtypes, turn = sorted(DTYPES), UFUNCS.index(name)
    for position, dtype in enumerate(dtypes, turn):
        x = make(SHAPES[position % 3], dtype, 0)
        if REGISTRY[name].inputs == 1:
            compare(name, (x,), evaluate, assert_same)
            continue
        for other in (dtype, dtypes[(position * 5 + turn) % len(dtypes)], dtypes[(position + turn) % len(dtypes)]):
            y = make(SHAPES[(position + turn) % 3], other, 1)
            compare(name, (x, y), evaluate, assert_same)
        number = NUMBERS[(position + turn) % len(NUMBERS)]
        compare(name, (x, number), evaluate, assert_same)
        compare(name, (number, x), evaluate, assert_same)


def compare(name, arguments, evaluate, assert_same):
    """NumPy's result, or the error that tensord raises where NumPy raises one of its own."""
    if not mix(arguments):
        with pytest.raises(MetadataError, match=r"do(es)? not mix|no common|not defined"):
            evaluate(name, *arguments)
        return
    try:
        with np.errstate(all="ignore"):
            expected = getattr(np, REGISTRY[name].ufunc or name)(*arguments)
    except TypeError:
        with pytest.raises(MetadataError, match=f"{name}.*not defined"):
            evaluate(name, *arguments)
    except ValueError as error:  # an integer to a negative power: decided by the values
        with pytest.raises(ValueError, match=str(error)[:20]):
            evaluate(name, *arguments)
    else:
        assert_same(evaluate(name, *arguments), expected)


@each_case(("name", "ufunc"), [("floor", "floor"), ("ceil", "ceil"), ("trunc", "trunc"), ("round", "rint")])
@each_case("dtype", DTYPES)
def test_rounding_leaves_integers_alone(name, ufunc, dtype, evaluate, make, assert_same):
    x = make((2, 5), dtype, 0)
    if dtype.startswith("complex") and name != "round":
        with pytest.raises(MetadataError, match="not defined"):
            evaluate(name, x)
    else:
        assert_same(evaluate(name, x), x if x.dtype.kind in "biu" else getattr(np, ufunc)(x))


@given(st.data())
def test_where(evaluate, make, assert_same, data):
    (shape, _), *others = data.draw(operands(3).filter(lambda specs: isinstance(specs[0], tuple)))
    condition, x, y = build(make, [(shape, "bool"), *others])
    assume(mix((x, y)))
    assert_same(evaluate("where", condition, x, y), np.where(condition, x, y))


@each_case("condition", [True, False])
def test_where_a_number_decides_all_are_from_one_side(evaluate, make, assert_same, condition):
    x, y = make((3, 4), "float32", 1), make((3, 4), "float32", 2)
    assert_same(evaluate("where", condition, x, y.T.copy().T), x if condition else y)


@given(st.data())
def test_clip(evaluate, make, assert_same, data):
    x, lo, hi = build(make, data.draw(operands(3).filter(lambda specs: isinstance(specs[0], tuple))))
    assume(mix((x, lo, hi)))
    if any(np.asarray(value).dtype.kind in "bc" for value in (x, lo, hi)):
        with pytest.raises(MetadataError, match="real-valued"):
            evaluate("clip", x, lo, hi)
    else:
        assert_same(evaluate("clip", x, lo, hi), np.clip(x, lo, hi))


@each_case("name", ["astype", "cast"])
@each_case("dtype", DTYPES)
def test_astype(name, dtype, evaluate, make, assert_same):
    for wanted in DTYPES:
        x = make((2, 3), dtype, 3)
        if dtype.startswith("complex") and np.dtype(wanted).kind in "iuf":
            with pytest.raises(MetadataError, match="cannot become"):
                evaluate(name, x, dtype=wanted)
            continue
        with np.errstate(all="ignore"):
            expected = x.astype(wanted)
        assert_same(evaluate(name, x, dtype=wanted), expected)


@each_case("dtype", DTYPES)
def test_parts_of_numbers(dtype, evaluate, make, assert_same):
    x = make((3, 4), dtype, 1)
    if dtype == "bool":
        with pytest.raises(TypeError, match="numeric"):
            evaluate("real", x)
        return
    assert_same(evaluate("real", x), np.real(x))
    assert_same(evaluate("imag", x), np.imag(x))
