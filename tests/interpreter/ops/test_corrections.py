"""Ufuncs with other special cases than NumPy's: the rest is NumPy's, bit for bit.

The special cases themselves are in tests/conformance.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.extra.numpy as hnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.ops.corrections import next_by_bits
from tensord.interpreter.ops.elementwise import CORRECTED
from tensord.interpreter.schema.opdef import REGISTRY
from tensord.interpreter.schema.promotion import promote
from tensord.interpreter.types.meta import DTYPES

from ...each_case import each_case
from ...streams.fake_cuda.values import like_cupy
from ..conftest import meta_of
from .elsewhere import Elsewhere, evaluate_elsewhere

NAMES = sorted(entry.partition(":")[0] for entry in CORRECTED)
COMPLEX = ["complex64", "complex128"]
REAL = {"floor_divide", "nextafter"}  # not defined for complex numbers
INF, NAN = np.inf, np.nan
# Where the corrected op differs from NumPy: the values that are left out of the comparison here.
UNUSUAL: dict[str, Callable[..., Any]] = {
    "expm1": lambda x: ~np.isfinite(x) | (x == 0),
    "floor_divide": lambda x1, x2: np.isinf(x1) | np.isinf(x2),
    "log1p": lambda x: np.abs(x) < 0.25,
    "pow": lambda x1, x2: np.isnan(np.power(x1, x2)),
    "power": lambda x1, x2: np.isnan(np.power(x1, x2)),
    "sign": np.isnan,
}


@each_case("name", NAMES)
@settings(max_examples=5)
@given(st.data())
def test_ordinary_values_have_numpys_results(name, evaluate, make, assert_same, data):
    op = REGISTRY[name]
    shapes = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=op.inputs, max_dims=3, min_side=0, max_side=3))
    dtypes = [data.draw(st.sampled_from(sorted(DTYPES))) for _ in range(op.inputs)]
    operands = list(map(make, shapes.input_shapes, dtypes, range(op.inputs)))
    if op.inputs == 2 and data.draw(st.booleans()):
        operands[data.draw(st.integers(0, 1))] = data.draw(st.sampled_from([2, 3.5, -1.5, INF, 1 + 2j]))
    ufunc = getattr(np, op.ufunc or name)
    try:
        promote(tuple(map(meta_of, operands)))
        with np.errstate(all="ignore"):
            expected = np.asarray(ufunc(*operands))
    except TypeError:
        with pytest.raises(MetadataError, match=r"do(es)? not mix|no common|not defined"):
            evaluate(name, *operands)
        return
    except ValueError as error:  # an integer to a negative power
        with pytest.raises(ValueError, match=str(error)[:20]):
            evaluate(name, *operands)
        return
    found = evaluate(name, *operands)
    if expected.dtype.kind == "c" and name in {"atan", "atanh", "reciprocal"}:
        other = np.divide(1, operands[0]) if name == "reciprocal" else expected
        np.testing.assert_allclose(found, other, rtol=4 * np.finfo(other.dtype).eps)
        return
    with np.errstate(all="ignore"):
        unusual = UNUSUAL[name](*operands) if expected.dtype.kind in "fc" and name in UNUSUAL else False
    assert_same(np.where(unusual, 0, found), np.where(unusual, 0, expected))


@pytest.mark.parametrize("dtype", COMPLEX)
def test_a_scalar_to_a_complex_power_is_a_number_of_the_tensors_dtype(dtype, evaluate, assert_same):
    found = evaluate("pow", 0.0, np.array([complex(-1, 0), 2], dtype))
    assert_same(found, np.array([complex(INF, NAN), 0], dtype))


@each_case("dtype", ["float16", "float32", "float64"])
def test_a_power_is_no_root_however_the_exponent_is_shared(dtype, evaluate, assert_same):
    base = np.array([[-INF, -0.0, 4], [0.25, -1, NAN]], dtype)
    expected = np.array([[INF, 0.0, 2], [0.5, NAN, NAN]], dtype)
    half = np.array(0.5, dtype)
    for shared in (0.5, half, half[None], np.array([[0.5], [0.5]], dtype), np.broadcast_to(half, (2, 3))):
        assert_same(evaluate("pow", base, shared), expected)
    assert_same(evaluate("pow", base[:, :1], np.array([0.5, 2], dtype)), np.array([[INF, INF], [0.5, 0.0625]], dtype))
    assert_same(evaluate("pow", np.array(-0.0, dtype), 0.5), np.array(0, dtype))
    assert_same(evaluate("pow", -INF, half), np.array(INF, dtype))
    assert_same(evaluate("pow", base[:0], 0.5), expected[:0])


@each_case("dtype", ["float32", "complex128"])
@each_case("name", NAMES)
def test_an_array_module_that_is_not_asked_for_values_gives_the_same(name, dtype, evaluate):
    if name in REAL and dtype == "complex128":
        return
    values = np.array([0.5, -0.0, 0.0, 3, -2, INF, -INF, NAN], dtype.replace("complex128", "float64"))
    if dtype == "complex128":
        values = np.stack([part.ravel() for part in np.meshgrid(values, values)], -1).view(dtype)[:, 0]
    operands = np.meshgrid(*[values] * REGISTRY[name].inputs)
    for each in (operands, [operand.ravel()[1] for operand in operands]):
        here, there = evaluate(name, *map(np.asarray, each)), evaluate_elsewhere(name, *map(np.asarray, each))
        if name in {"sign", "reciprocal"}:  # quotients; those by infinities are open: decision 0023
            finite = np.isfinite(each[0])
            here, there = here[finite], there[finite]
        np.testing.assert_allclose(here, there)


@each_case("name", NAMES)
def test_a_result_may_be_stored_in_a_narrower_dtype_of_its_kind(name):
    op = REGISTRY[name]
    for wide, narrow in (("float64", "float32"), ("complex128", "complex64"), ("float64", "complex64")):
        if "complex" in wide and name in REAL:
            continue
        operands = [np.array([0.3, 2, INF, -1.5], wide) for _ in range(op.inputs)]
        expected, found = np.empty(4, wide), np.empty(4, narrow)
        with np.errstate(all="ignore"):
            op.bind(np, op.inputs, {})(*operands, expected)
            op.bind(np, op.inputs, {})(*operands, found)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_counting_bits_gives_the_next_float_of_all_there_are(dtype):
    special = np.array(
        [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, np.finfo(dtype).max, np.finfo(dtype).tiny], dtype
    )
    some = np.arange(0, 1 << 16, 37, dtype="uint16").view("float16").astype(dtype)
    x, y = (array.ravel() for array in np.meshgrid(np.concatenate([some, special]), special))
    with np.errstate(all="ignore"):
        expected, found = np.nextafter(x, y), next_by_bits(np, x, y)
    np.testing.assert_array_equal(found, expected)
    numbers = ~(np.isnan(expected) | (x == y))  # the sign of a NaN, and of zero after zero, is open
    np.testing.assert_array_equal(np.signbit(found[numbers]), np.signbit(expected[numbers]))


EDGES = [0.0, -0.0, 1.0, -1.0, 2.5, -2.5, 7.0, INF, -INF, NAN]


@each_case("dtype", ["float16", "float32", "float64"])
def test_remainders_elsewhere_are_those_of_numpy(dtype):
    x1, x2 = np.meshgrid(*[np.array(EDGES, dtype)] * 2)
    for operands in ((x1, x2), (x1, -2.5), (7.0, x2), (x1, -3)):
        with np.errstate(all="ignore"):
            expected = np.remainder(*operands)
        found = evaluate_elsewhere("remainder", *operands)
        np.testing.assert_array_equal(found, expected)
        zero = expected == 0
        np.testing.assert_array_equal(np.signbit(found)[zero], np.signbit(expected)[zero])


def test_limits_that_are_nan_make_nan_elsewhere():
    x, low, high = (each.ravel() for each in np.meshgrid(EDGES, EDGES, EDGES))
    np.testing.assert_array_equal(evaluate_elsewhere("clip", x, low, high), np.clip(x, low, high))


@each_case("name", ["logical_and", "logical_or", "logical_xor", "logical_not"])
@each_case("scalar", [None, 1 + 2j, 0j, 2, 0.0])
def test_complex_numbers_have_truth_elsewhere(name, scalar):
    x = np.array([0, 1, 1j, NAN, complex(0, NAN)])
    operands = (x,) if name == "logical_not" else (x, x[::-1].copy() if scalar is None else scalar)
    np.testing.assert_array_equal(evaluate_elsewhere(name, *operands), getattr(np, name)(*operands))


def test_a_python_bool_is_a_bool_to_nextafter_elsewhere():
    x = np.array([True, False])
    np.testing.assert_array_equal(evaluate_elsewhere("nextafter", x, True), np.nextafter(x, True))


@each_case("dtype", ["float16", "float32", "float64"])
def test_quotients_elsewhere_are_those_of_numpy(dtype):
    edges = [edge for edge in EDGES if not np.isinf(edge)]
    x1, x2 = np.meshgrid(*[np.array([*edges, 0.1, 0.3, np.finfo(dtype).max, np.finfo(dtype).tiny], dtype)] * 2)
    for operands in ((x1, x2), (x1, 0.1), (1.0, x2)):
        with np.errstate(all="ignore"):
            expected = np.floor_divide(*operands)
        np.testing.assert_array_equal(evaluate_elsewhere("floor_divide", *operands), expected)


PARTS = [0.0, -0.0, 1e-5, 1.0, -1.0, -2.5, 30.0, INF, -INF, NAN]


def complex_grid():
    values = np.empty((len(PARTS),) * 2, "complex128")
    values.real, values.imag = np.array(PARTS)[:, None], PARTS
    return values.ravel()


@each_case("name", ["log", "log2", "log10", "log1p", "expm1", "acosh", "reciprocal"])
def test_functions_of_complex_numbers_elsewhere_are_those_of_numpy(name, evaluate):
    x = complex_grid()
    with np.errstate(all="ignore"):
        expected = evaluate(name, x)
    stated = ~np.isinf(x) if name == "reciprocal" else ...  # quotients by infinities are open
    for found in (
        evaluate_elsewhere(name, x),
        np.concatenate([evaluate_elsewhere(name, x[n : n + 1]) for n in range(x.size)]),
    ):
        np.testing.assert_allclose(found[stated], expected[stated], rtol=1e-14, atol=1e-300)
        if name != "reciprocal":
            for part in ("real", "imag"):
                there, here = (np.isnan(getattr(each, part)) for each in (found, expected))
                np.testing.assert_array_equal(there, here)
        plain = np.isfinite(expected) & (name != "reciprocal")
        for part in ("real", "imag"):
            signs = [np.signbit(getattr(each, part)[plain]) for each in (found, expected)]
            np.testing.assert_array_equal(*signs)


@each_case("dtypes", [("complex128", "complex128"), ("complex64", "float32"), ("float64", "complex128")])
def test_quotients_of_complex_numbers_elsewhere_are_those_of_numpy(dtypes):
    x1, x2 = (each.ravel() for each in np.meshgrid(complex_grid(), complex_grid()))
    x1, x2 = (x.astype(d) if "complex" in d else x.real.astype(d) for x, d in zip((x1, x2), dtypes, strict=True))
    for operands in ((x1, x2), (x1, 0j), (1, x2), (x1, 2), (x1[:1].reshape(()), x2[:1].reshape(()))):
        if not any(np.result_type(x).kind == "c" for x in operands):
            continue
        with np.errstate(all="ignore"):
            expected = np.divide(*operands)
        stated = np.broadcast_to(~np.isinf(operands[1]), expected.shape)  # quotients by infinities are open
        found = evaluate_elsewhere("divide", *operands)
        np.testing.assert_allclose(found[stated], expected[stated], rtol=4 * np.finfo(expected.dtype).eps)


@each_case("exponent", [1, 1.0, 1 + 0j])
def test_to_the_power_of_one_complex_numbers_elsewhere_stay_what_they_are(exponent):
    x = np.array([1 + 2j, complex(0.5, 3.4e38), 0j], "complex64")
    np.testing.assert_array_equal(evaluate_elsewhere("pow", x, exponent), x)
    np.testing.assert_array_equal(evaluate_elsewhere("pow", 2.0, np.array([1 + 0j, 2])), [2, 4])


LARGEST = float(np.finfo("float32").max)
AT_THE_LIMITS: dict[str, list[complex]] = {
    "acosh": [complex(0, NAN)],
    "log": [complex(INF, NAN), complex(NAN, -INF)],
    "sign": [LARGEST, complex(0, -LARGEST)],
    "tan": [complex(INF, 0.0), complex(NAN, -0.0), complex(-1.0, INF)],
    "tanh": [complex(0.0, INF), complex(-0.0, NAN), complex(INF, -1.0)],
}


@each_case("name", AT_THE_LIMITS)
def test_special_complex_numbers_elsewhere_are_those_of_the_standard(name, evaluate):
    x = np.array([*AT_THE_LIMITS[name], 1 + 1j], "complex64")
    found, expected = evaluate_elsewhere(name, x), evaluate(name, x)
    for part in ("real", "imag"):
        np.testing.assert_allclose(getattr(found, part), getattr(expected, part), rtol=1e-6)
        zero = getattr(expected, part) == 0
        there, here = (np.signbit(getattr(each, part))[zero] for each in (found, expected))
        np.testing.assert_array_equal(there, here)


def test_whole_results_in_a_wider_dtype_are_exact_elsewhere():
    x, y = np.array([2**53 + 1, -7, 7]), np.array([1, 2, 0])
    for name in ("floor_divide", "remainder"):
        op, out = REGISTRY[name], np.empty(3)
        with np.errstate(all="ignore"):
            op.bind(Elsewhere(), 2, {})(like_cupy(x), like_cupy(y), like_cupy(out))
            expected = getattr(np, name)(x, y)
        np.testing.assert_array_equal(out, expected.astype(float))
