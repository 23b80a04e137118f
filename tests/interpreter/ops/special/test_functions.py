"""The special functions against the library that has them: values, dtypes, shapes, errors, and no warnings."""

from __future__ import annotations

import warnings
from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import MetadataError
from tensord.interpreter.ops.special import composed
from tensord.interpreter.ops.special.kernels import LIBRARY, LIMITS, MAX_ORDER, WHOLE_OPERANDS
from tensord.interpreter.schema.opdef import find, ops_of
from tensord.interpreter.types.meta import Meta

from ....each_case import each_case

scipy_special = pytest.importorskip("scipy.special")
NAMES = ops_of(LIBRARY)
VALUES = np.array([0.0, -0.0, 1e-9, 0.3, 0.5, 0.999, 1.0, 1.5, 2.5, 6.0, 20.0, -1e-9, -0.3, -1.0, -3.5])
ENDS = np.array([np.inf, -np.inf, np.nan])
LARGE = np.array([1e10, -1e10, 1e300])


def operands(name: str) -> list[np.ndarray]:
    """All combinations of values, for every operand; whole numbers where SciPy takes others only with a warning."""
    count = find(name).inputs
    positions, _ = WHOLE_OPERANDS.get(name, ((), 0))
    values = np.append(VALUES[:: 2 if count == 3 else 1], ENDS)
    pools = [np.arange(-2.0, 13.0) if n in positions else values for n in range(count)]
    if name in LIMITS:
        pools = [
            pool[(pool >= least) & (pool <= most)] for pool, (least, most) in zip(pools, LIMITS[name], strict=True)
        ]
    return [np.array(column) for column in zip(*product(*pools), strict=True)]


def by_scipy(name: str, given: list[np.ndarray]) -> Any:
    positions, _ = WHOLE_OPERANDS.get(name, ((), 0))
    given = [x.astype(np.int64) if n in positions else x for n, x in enumerate(given)]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(scipy_special, LIBRARY.names.get(name, name))(*given)


@each_case("name", NAMES)
def test_values_are_scipys(evaluate, name):
    given = operands(name)
    np.testing.assert_array_equal(evaluate(name, *given), by_scipy(name, given))


@each_case("name", NAMES)
@each_case("dtype", ["float16", "float32", "int8", "uint64"])
def test_each_dtype_is_computed_in_float64_and_rounded_once(evaluate, name, dtype):
    given = [np.array([0, 1, 2, 3]).astype(dtype)] * find(name).inputs
    expected = by_scipy(name, [x.astype(np.float64) for x in given])
    with np.errstate(all="ignore"):
        expected = expected.astype(dtype if dtype.startswith("f") else np.float64)
    found = evaluate(name, *given)
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@each_case("name", NAMES)
def test_shapes_are_broadcast_and_numbers_taken(evaluate, name):
    shapes = [(3, 1), (1, 2), ()][: find(name).inputs]
    given = [np.full(shape, 0.5) for shape in shapes]
    found = evaluate(name, *given)
    assert found.shape == np.broadcast_shapes(*shapes)
    np.testing.assert_array_equal(
        found,
        by_scipy(name, [np.trunc(x) if n in WHOLE_OPERANDS.get(name, ((),))[0] else x for n, x in enumerate(given)]),
    )
    assert evaluate(name, np.array(1.0), *[2.0] * (len(shapes) - 1)).shape == ()
    assert evaluate(name, *[np.ones((0, 2))] * len(shapes)).shape == (0, 2)


@each_case("name", NAMES)
def test_complex_and_mixed_operands_are_refused(infer, name):
    x, count = Meta.of((2,), "float64"), find(name).inputs
    for wrong in [Meta.of((2,), "complex64"), *([Meta.of((2,), "int64")] if count > 1 else [])]:
        with pytest.raises(MetadataError, match=name):
            infer(name, *[x] * (count - 1), wrong)


@each_case("name", NAMES)
def test_no_operand_gives_a_warning(evaluate, name):
    pools = [np.concatenate([VALUES[::2], ENDS, LARGE])] * find(name).inputs
    evaluate(name, *(np.array(column) for column in zip(*product(*pools), strict=True)))


@each_case("name", WHOLE_OPERANDS)
def test_what_has_to_be_whole_is_cut_off_and_nan_where_it_is_too_large(evaluate, name):
    positions, most = WHOLE_OPERANDS[name]
    given = [np.array([0.25, 0.25, 0.25])] * find(name).inputs
    for n in positions:
        given[n] = np.array([3.7, 3.0, most + 1.0])
    found = evaluate(name, *given)
    assert found[0] == found[1]
    assert np.isnan(found[2])


def test_orders_and_degrees_that_would_take_seconds_are_nan(evaluate):
    far = np.array([MAX_ORDER + 1.0])
    assert np.isnan(evaluate("lpmv", far, np.array([0.3]), np.array([0.5])))
    assert np.isnan(evaluate("lpmv", np.array([1.0]), far, np.array([0.5])))
    assert np.isnan(evaluate("yn", far, np.array([0.5])))
    assert np.isnan(evaluate("hyp1f1", np.array([0.3]), np.array([1.0]), np.array([np.inf])))
    for name in ("hurwitz_zeta", "polygamma"):
        assert np.isnan(evaluate(name, np.array([2.0]), np.array([-1e15 - 0.5])))


ARGUMENTS = (-0.3, -0.5, -0.7, -1.0, -1.5, -100.5, 0.0, 0.3, 0.5, 2.0, 30.0, np.nan)
GRID = {
    "beta": (ARGUMENTS, ARGUMENTS),
    "betaln": (ARGUMENTS, ARGUMENTS),
    "exp1": ((-1.0, 0.0, 1e-300, 0.3, 1.0, 2.5, 700.0, np.inf, -np.inf, np.nan),),
    "fdtri": ((1.0, 2.5, 0.0, -1.0, np.nan, np.inf), (1.0, 6.0, 0.0, np.inf), (0.0, 1e-9, 0.3, 1.0, 1.5, -0.5, np.nan)),
    "yn": (np.arange(-4, 5), (-1.0, 0.0, 0.3, 5.0, np.nan)),
    "betaincinv": ((0.3, 1.0, 2.5, -1.0, 0.0), (0.3, 1.0, 6.0), (0.0, 1e-3, 0.3, 0.9, 1.0, np.nan, -0.5, 1.5)),
    "betaincc": ((0.3, 1.0, 2.5, 20.0), (0.3, 1.0, 6.0), (0.0, 1e-3, 0.3, 0.9, 1.0, np.nan, -0.5, 1.5)),
    "stdtr": ((0.5, 1.0, 7.0, 200.0, np.inf, 0.0, -1.0), (-30.0, -2.0, -0.1, 0.0, 0.3, 5.0, np.inf, -np.inf, np.nan)),
    "stdtrit": (
        (0.5, 1.0, 7.0, 60.0, np.inf, -1.0),
        (0.0, 1e-9, 0.01, 0.4, 0.5, 0.51, 0.8, 0.999, 1.0, 1.5, -0.5, np.nan),
    ),
    "riemann_zeta": ((-2.5, 0.0, 0.5, 1.0, 2.0, 40.0, np.nan),),
    "sinc": ((0.0, 0.3, 1.0, -2.5, np.inf, -np.inf, np.nan),),
}


@each_case("name", composed.COMPOSED)
def test_what_is_composed_for_cupy_has_scipys_values(name):
    given = [np.array(column) for column in zip(*product(*GRID[name]), strict=True)]
    with np.errstate(all="ignore"):
        found = composed.COMPOSED[name](np, scipy_special, *given)
    np.testing.assert_allclose(found, by_scipy(name, given), rtol=1e-11, atol=1e-15)


@each_case(("name", "least"), [("betaincinv", 1e-310), ("fdtri", 2.3e-308), ("stdtrit", 1e-309)])
def test_cupys_loop_that_never_ends_is_not_entered(name, least):
    """The loop needs parameters of `betaincinv` above zero, one of which has an infinite reciprocal."""
    asked = []

    def betaincinv(a, b, p):
        asked.extend([a, b])
        return scipy_special.betaincinv(a, b, p)

    of = SimpleNamespace(**{**vars(scipy_special), "betaincinv": betaincinv})
    given = [np.full(3, least)] * (find(name).inputs - 1)
    with np.errstate(all="ignore"):
        composed.COMPOSED[name](np, of, *given, np.array([1e-9, 0.3, 0.999]))
        assert len(asked) >= 2
        assert np.isfinite(1 / np.array(asked)).all()


def test_quantiles_of_many_degrees_of_freedom():
    df, p = np.meshgrid([101.0, 250.0, 1e4, 1e8, 1e300], [1e-9, 1e-4, 0.3, 0.5, 0.7, 1 - 1e-9])
    with np.errstate(all="ignore"):
        found = composed.stdtrit(np, scipy_special, df, p)
    np.testing.assert_allclose(found, scipy_special.stdtrit(df, p), rtol=1e-6, atol=1e-15)


def test_quantiles_in_far_tails():
    """t**2 is beyond the range of float64: the first term of the series alone is the quantile there."""
    df, p = np.array([0.05, 0.5, 1.0]), np.array([1e-9, 1e-100, 1e-290])
    with np.errstate(all="ignore"):
        found = composed.stdtrit(np, scipy_special, df, p)
    a = df / 2
    logarithm = (np.log(2 * p) + np.log(a) + scipy_special.betaln(a, 0.5)) / a
    np.testing.assert_allclose(found, -np.sqrt(df) * np.exp(-logarithm / 2), rtol=1e-9)


def test_cupys_exp1_never_has_a_nan():
    """With a NaN, CuPy's kernel would not end."""
    seen: list[Any] = []

    def exp1(x: Any) -> Any:
        seen.append(x)
        return scipy_special.exp1(x)

    library = SimpleNamespace(exp1=exp1)
    assert np.isnan(composed.exp1(np, library, np.array([0.5, np.nan]))).tolist() == [False, True]
    assert not np.isnan(seen).any()
