"""Partial tensors: `asarray(values, padded_to=shape, fill=0)`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensord as td

from ...each_case import each_case


def padded(values: Any, shape: tuple[int, ...], fill: Any = 0) -> Any:
    """NumPy's."""
    part = np.asarray(values)
    whole = np.full(shape, fill, part.dtype)
    whole[tuple(slice(n) for n in part.shape)] = part
    return whole


@each_case(
    ("values", "shape", "fill"),
    [
        (np.arange(6.0).reshape(2, 3), (4, 5), 0),
        (np.arange(6.0).reshape(2, 3), (2, 5), -1.5),
        (np.arange(6).reshape(2, 3), (4, 3), 7),
        (np.arange(6, dtype="uint8").reshape(2, 3), (4, 3), 255),
        (np.ones((2, 2), bool), (3, 3), True),
        (np.ones((2, 2), bool), (3, 3), 0),
        (np.ones((2, 2), bool), (3, 3), 1),
        (np.ones((2, 2), "float32"), (3, 3), np.finfo("float32").max),
        (np.ones((2, 2), "float32"), (3, 3), 3.4028235e38),  # the printed form of the largest float32
        (np.ones((2, 2), "complex64"), (3, 3), -np.inf),
        (np.ones((2, 2), "complex64"), (3, 3), 1j),
        (np.ones((2, 2), "float32"), (2, 2), 5),
        (np.ones((0, 3), "float32"), (2, 4), 5),
        (np.ones((0, 3)), (0, 4), 5),
        (np.float64(2), (), 0),
        ([1, 2, 3], (5,), 0),
        (np.ones((1, 2, 3, 1)), (2, 3, 4, 2), np.float64(0.5)),
        (np.ones((2,)), (3,), float("nan")),
    ],
)
@each_case("device", ["cpu:0", "sim:0"])
def test_the_values_come_first_and_the_fill_is_the_rest(sim_session, values, shape, fill, device):
    x = sim_session.asarray(values, device, padded_to=shape, fill=fill)
    expected = padded(values, shape, fill)
    assert (x.shape, x.dtype, x.device) == (expected.shape, expected.dtype, device)
    np.testing.assert_array_equal(x.numpy(), expected)


def test_a_dtype_is_that_of_the_whole(session):
    x = session.asarray([1, 2], dtype="float32", padded_to=4, fill=0.5)
    assert x.dtype == np.float32
    assert x.tolist() == [1, 2, 0.5, 0.5]


def test_a_tensor_may_be_a_part_too(sim_session):
    x = sim_session.asarray([1.0, 2.0])
    y = sim_session.asarray(x, "sim:0", padded_to=(3,), fill=9)
    x += 1
    assert (y.device, y.tolist()) == ("sim:0", [1, 2, 9])


def test_a_part_of_a_host_array_is_not_copied(session):
    array = session.empty_host((256, 256))
    array[...] = 3
    x = session.asarray(array[:200], padded_to=(256, 256), fill=-1)
    assert x.sum().item() == 3 * 200 * 256 - 56 * 256
    session.sync()
    assert array.flags.writeable  # the tensor's memory is its own


@each_case(
    ("options", "message"),
    [
        ({"padded_to": (3,)}, r"values of shape \(2, 3\) do not fit into a tensor of shape \(3,\) \(padded_to\)"),
        ({"padded_to": (2, 3, 1)}, "do not fit"),
        ({"padded_to": (1, 5)}, r"values of shape \(2, 3\) do not fit into a tensor of shape \(1, 5\)"),
        ({"padded_to": (-1, 5)}, "padded_to: .*negative"),
        ({"padded_to": "text"}, "padded_to: expected"),
        ({"padded_to": 2.5}, "padded_to: expected"),
        ({"padded_to": (1 << 40, 1 << 40)}, "too large"),
        ({"padded_to": (3, 5), "fill": 1.5}, "fill: .*float does not fill int64"),
        ({"padded_to": (3, 5), "fill": 1j}, "fill: .*complex does not fill int64"),
        ({"padded_to": (3, 5), "fill": 1 << 80}, "fill: "),
        ({"padded_to": (3, 5), "fill": "text"}, "fill: str is not a number"),
        ({"padded_to": (3, 5), "fill": None}, "fill: NoneType is not a number"),
    ],
)
def test_what_does_not_fit_is_an_error_at_the_call(session, options, message):
    with pytest.raises(td.MetadataError, match=message) as caught:
        session.asarray(np.arange(6).reshape(2, 3), **options)
    assert "test_padding.py" in str(caught.value.location)
    assert caught.value.op == "asarray"
    assert session.sync() == 0


@each_case(
    ("dtype", "fill"),
    [
        ("bool", 2),
        ("bool", -1),
        ("bool", np.int64(2)),
        ("bool", 0.5),
        ("uint8", 300),
        ("uint8", -1),
        ("int32", 0.5),
        ("int32", 1 << 31),
        ("float64", 1j),
        pytest.param("float64", 10**5000, id="more digits than Python prints"),
        ("float32", 1e300),
        ("float32", 10**39),
        ("complex64", complex(0, -1e300)),
    ],
)
def test_a_fill_that_the_dtype_does_not_hold_is_refused(session, dtype, fill):
    with pytest.raises(td.MetadataError, match=f"asarray: fill: .* {dtype}") as caught:
        session.asarray([True], dtype=dtype, padded_to=(3,), fill=fill)
    assert "test_padding.py" in str(caught.value.location)


def test_a_routine_pads_in_each_run(session):
    @session.routine
    def padded_sum(x):
        y = session.asarray([1.0, 2.0], padded_to=(4,), fill=0.5)
        y += x
        return y

    x = session.asarray(np.ones(4))
    assert [padded_sum(x).tolist() for _ in range(3)] == [[2, 3, 1.5, 1.5]] * 3
    assert [step.op for step in padded_sum.program(x).steps if step.op in {"full", "setitem"}] == ["full", "setitem"]
