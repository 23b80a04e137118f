"""Functions that SciPy and scikit-learn expect of a namespace, and that the standard does not have."""

from __future__ import annotations

import numpy as np
import pytest

import tensord as td

from ...each_case import each_case


@each_case("dtype", ["int8", "int64", "float32"])
def test_any_int_that_fits_may_be_chosen_or_assigned_by_a_mask(session, dtype):
    """The mask has another dtype, which does not affect the result's."""
    xp = session.xp
    x = xp.asarray([1, 2, 3], dtype=dtype)
    mask = x > 1
    assert xp.where(mask, x, -1).numpy().tolist() == [-1, 2, 3]
    assert xp.where(mask, -100, x).numpy().tolist() == [1, -100, -100]
    x[mask] = -7
    x[xp.asarray([0])] = -128
    assert x.numpy().tolist() == [-128, -7, -7]
    assert x.dtype == dtype


def test_an_int_that_does_not_fit_is_refused_at_the_call(session):
    xp = session.xp
    x = xp.asarray([1, 2, 3], dtype="int8")
    for choose in (lambda: xp.where(x > 1, x, 300), lambda: x.__setitem__(x > 1, 300)):
        with pytest.raises(OverflowError, match="300 does not fit int8"):
            choose()


def test_a_numpy_scalar_counts_as_a_number(session):
    xp = session.xp
    x = xp.asarray([1.0, 2.0], dtype="float32")
    chosen = xp.where(x > 1.0, np.float64(5.0), x)
    assert (chosen.dtype, chosen.numpy().tolist()) == (np.float32, [1.0, 5.0])
    assert xp.result_type(x, np.float64(1.0)) == np.float32
    assert xp.result_type(np.int64(1), np.dtype("int8")) == np.int8
    with pytest.raises(TypeError, match="at least one argument must be a tensor or a dtype"):
        xp.result_type(np.float64(1.0))


@each_case("shape", [3, (), (0,), (2, 3)])
def test_a_tensor_may_be_filled_with_the_value_of_another(sim_session, shape):
    xp = sim_session.xp
    value = xp.asarray(2.5, dtype="float32", device="sim:0")
    for filled, dtype, device in (
        (xp.full(shape, value), "float32", "sim:0"),
        (xp.full(shape, value, dtype=xp.float64, device="sim:1"), "float64", "sim:1"),
        (xp.full_like(xp.ones(shape), value), "float64", "cpu:0"),
        (xp.full_like(xp.ones(shape), value, dtype=xp.complex64, device="sim:1"), "complex64", "sim:1"),
    ):
        assert (filled.dtype, filled.device) == (dtype, device)
        np.testing.assert_array_equal(filled.numpy(), np.full(shape, 2.5, dtype))


def test_what_was_filled_with_a_tensor_s_value_is_written_to_alone(session):
    xp = session.xp
    value = xp.asarray(2.5)
    x = xp.full(3, value)
    value += 1.0
    x[0] = 0.0
    assert x.numpy().tolist() == [0.0, 2.5, 2.5]
    assert value.item() == 3.5


def test_only_one_value_fills_a_tensor(session):
    xp = session.xp
    for fill in (lambda: xp.full((2, 3), xp.ones(3)), lambda: xp.full_like(xp.ones(3), xp.ones(1))):
        with pytest.raises(td.MetadataError, match="full: the fill value must be a number, not an array of shape"):
            fill()
    pending = xp.unique_values(xp.asarray([1, 1]))
    assert xp.full(2, xp.max(pending)).numpy().tolist() == [1, 1]


def test_what_numpy_makes_of_a_dtype_s_limits_is_python_s(session):
    """SciPy computes with them, and puts them into tensors of another dtype."""
    xp = session.xp
    for limit in (xp.finfo(xp.float32).eps, xp.finfo(xp.float32).max, xp.iinfo(xp.uint8).max, xp.pi, xp.nan):
        assert type(limit) in {int, float}


@each_case("wanted", ["float32", "int16", "uint8"])
def test_imaginary_parts_are_dropped_as_numpy_drops_them_with_its_warning(session, wanted):
    """The standard forbids it to astype alone; a call that names a real dtype elsewhere gets the error at its line."""
    xp, values = session.xp, np.array([[1 + 2j, 3 - 1j], [5 + 1j, 7 + 0j]])
    x = xp.asarray(values)
    calls = {
        "asarray": (lambda: xp.asarray(x, dtype=wanted), values.real),
        "asarray of an array": (lambda: xp.asarray(values, dtype=wanted), values.real),
        "sum": (lambda: xp.sum(x, dtype=wanted), np.sum(values.real)),
        "prod": (lambda: xp.prod(x, dtype=wanted), np.prod(values.real)),
        "cumulative_sum": (lambda: xp.cumulative_sum(x, axis=0, dtype=wanted), np.cumsum(values.real, axis=0)),
        "cumulative_prod": (lambda: xp.cumulative_prod(x, axis=0, dtype=wanted), np.cumprod(values.real, axis=0)),
        "trace": (lambda: xp.linalg.trace(x, dtype=wanted), np.trace(values.real)),
    }
    for name, (call, expected) in calls.items():
        with pytest.warns(np.exceptions.ComplexWarning, match="discards the imaginary part") as told:
            found = call()
        assert told[0].filename == __file__, name
        assert found.dtype == wanted, name
        np.testing.assert_array_equal(found.numpy(), expected.astype(wanted), name)
    with pytest.raises(TypeError, match="cannot become"):
        xp.astype(x, wanted)


def test_dtypes_are_those_of_numpys_namespace(session):
    """None is no dtype, though NumPy's dtype objects take it for float64."""
    xp = session.xp
    for name, dtype in xp.__array_namespace_info__().dtypes().items():
        assert getattr(xp, name) == dtype == xp.zeros(1, dtype=getattr(xp, name)).dtype
        assert xp.isdtype(dtype, getattr(xp, name))
        assert getattr(xp, name) is not None
        assert getattr(xp, name) != None  # noqa: E711 - that is the question
