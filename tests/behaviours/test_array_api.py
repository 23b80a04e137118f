"""The array API's functions on the machine: which calls wait, what moves, how many instructions run, where errors go.

Tests of the computed values are in tests/conformance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensord as td
import tensord.array_api

from ..each_case import each_case
from ..equality import assert_equal, is_on_gpu
from .looking_inside import address, allocated, assert_sound, held, moved, moved_since, records, transfers

DEVICES = ["cpu:0", "sim:0"]
VALUES = np.array([3.0, -1.0, 3.0, 0.0, -1.0, 7.0])
MATRIX = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]])

# Name -> functions of a 1-d x whose result shapes depend on data.
DECIDED_BY_DATA: dict[str, Any] = {
    "unique_values": lambda xp, x: xp.unique_values(x),
    "unique_counts": lambda xp, x: xp.unique_counts(x).values,
    "unique_inverse": lambda xp, x: xp.unique_inverse(x).values,
    "unique_all": lambda xp, x: xp.unique_all(x).values,
    "nonzero": lambda xp, x: xp.nonzero(x)[0],
    "repeat": lambda xp, x: xp.repeat(x, xp.astype(xp.abs(x), xp.int64)),
    "mask": lambda _xp, x: x[x > 0],
}
NUMPYS: dict[str, Any] = {
    "unique_values": np.unique,
    "unique_counts": np.unique,
    "unique_inverse": np.unique,
    "unique_all": np.unique,
    "nonzero": lambda x: np.nonzero(x)[0],
    "repeat": lambda x: np.repeat(x, np.abs(x).astype(int)),
    "mask": lambda x: x[x > 0],
}


@each_case("device", DEVICES)
@each_case("name", DECIDED_BY_DATA)
def test_what_follows_a_shape_that_data_decide_is_submitted_without_waiting(sim_session, device, name):
    """Behaviour 10, with the standard's functions: whole chains of calls are issued while the device stands still."""
    s, xp = sim_session, sim_session.xp
    x = s.asarray(VALUES, device=device)
    s.sync()
    with held(s, device, "compute"):
        found = DECIDED_BY_DATA[name](xp, x)
        doubled = xp.multiply(found, 2)
        ordered = xp.sort(xp.concat([found, doubled]), descending=True)
        total = xp.sum(doubled[1:], dtype=xp.float64)
        few = doubled[doubled > 1][xp.asarray([0, -1], device=device)]
        again = xp.unique_values(xp.reshape(xp.stack([found, found]), (-1,)))
        away = xp.flip(found).to_device("sim:1")
        parts = (found, doubled, ordered, total, few, again, away)
        assert all("pending" in repr(part) for part in parts)
        assert not any(part.is_ready() for part in parts)
    expected = NUMPYS[name](VALUES)
    np.testing.assert_array_equal(found.numpy(), expected)
    np.testing.assert_array_equal(ordered.numpy(), np.sort(np.concatenate([expected, 2 * expected]))[::-1])
    assert total.item() == (2 * expected)[1:].sum()
    doubled_ = 2 * expected
    np.testing.assert_array_equal(few.numpy(), doubled_[doubled_ > 1][[0, -1]])
    np.testing.assert_array_equal(again.numpy(), np.unique(expected))
    np.testing.assert_array_equal(away.numpy(), expected[::-1])
    assert_sound(s)


def test_making_tensors_of_what_data_decide_does_not_wait(sim_session):
    s, xp = sim_session, sim_session.xp
    x = s.asarray(VALUES)
    s.sync()
    with held(s, "cpu:0", "compute"):
        found = xp.unique_values(x)
        cast = xp.asarray(found, dtype=xp.float32)
        nested = xp.asarray([[found, found]])
        filled = xp.full((2,), xp.max(found))
        assert not any(part.is_ready() for part in (found, cast, nested, filled))
    expected = np.unique(VALUES)
    assert cast.dtype == xp.float32
    np.testing.assert_array_equal(cast.numpy(), expected.astype(np.float32))
    np.testing.assert_array_equal(nested.numpy(), [[expected, expected]])
    np.testing.assert_array_equal(filled.numpy(), [7.0, 7.0])


def test_numbers_among_tensors_are_put_where_the_first_tensor_is(sim_session):
    xp = sim_session.xp
    x = xp.asarray(2.0, device="sim:0")
    joined = xp.asarray([[1, x], [x, 3]])
    assert (joined.device, joined.numpy().tolist()) == ("sim:0", [[1.0, 2.0], [2.0, 3.0]])
    assert xp.asarray([1, x], device="sim:1").device == "sim:1"


def test_arrays_in_another_byte_order_are_taken(session):
    array = np.arange(3, dtype=">i4")
    x = session.xp.asarray(array)
    assert x.dtype == np.dtype("int32")
    np.testing.assert_array_equal(x.numpy(), array)


def test_a_tolerance_may_be_a_numpy_scalar(session):
    x = session.asarray(MATRIX)
    assert session.xp.linalg.matrix_rank(x, rtol=np.float64(1e-3)).item() == 3
    np.testing.assert_allclose(session.xp.linalg.pinv(x, rtol=np.float32(1e-3)).numpy(), np.linalg.pinv(MATRIX))


VIEWS: dict[str, Any] = {
    "slicing": lambda _xp, x: x[1:, ::-1, None, 0],
    "permute_dims": lambda xp, x: xp.permute_dims(x, (2, 0, 1)),
    "moveaxis": lambda xp, x: xp.moveaxis(x, (0, 1), (-1, 0)),
    "reshape": lambda xp, x: xp.reshape(x, (4, -1)),
    "expand_dims": lambda xp, x: xp.expand_dims(x, axis=1),
    "squeeze": lambda xp, x: xp.squeeze(xp.expand_dims(x, axis=0), axis=0),
    "broadcast_to": lambda xp, x: xp.broadcast_to(x, (5, 2, 3, 4)),
    "broadcast_arrays": lambda xp, x: xp.broadcast_arrays(x, x[0])[1],
    "flip": lambda xp, x: xp.flip(x, axis=(0, 2)),
    "matrix_transpose": lambda xp, x: xp.matrix_transpose(x),
    "T": lambda _xp, x: x[0].T,
    "mT": lambda _xp, x: x.mT,
    "unstack": lambda xp, x: xp.unstack(x, axis=2)[1],
    "diagonal": lambda xp, x: xp.linalg.diagonal(x, offset=1),
    "meshgrid": lambda xp, x: xp.meshgrid(x[0, 0], x[0, :, 0])[0],
}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", VIEWS)
def test_views_move_nothing_and_are_no_instructions(sim_session, device, name):
    s, xp = sim_session, sim_session.xp
    values = np.arange(24.0).reshape(2, 3, 4)
    x = s.asarray(values, device=device)
    s.sync()
    before, memory, pointer = moved(s), allocated(s, device), address(s, x, device)
    view = VIEWS[name](xp, x)
    s.sync()
    assert records(s, opcode="LocalCallOpKernel") == []
    assert records(s, opcode="Copy") == []
    assert moved_since(s, before) == {}
    assert allocated(s, device) == memory
    assert address(s, view, device) == pointer
    expected = view.numpy()
    x *= 0
    np.testing.assert_array_equal(view.numpy(), expected)  # values are independent
    assert expected.any()
    assert_sound(s)


ONE_INSTRUCTION: dict[str, Any] = {
    "var": lambda xp, x: xp.var(x, axis=0, correction=1),
    "std": lambda xp, x: xp.std(x),
    "mean": lambda xp, x: xp.mean(x, axis=1, keepdims=True),
    "clip": lambda xp, x: xp.clip(x, 0.0, 1.0),
    "clip on one side": lambda xp, x: xp.clip(x, max=1.0),
    "vector_norm": lambda xp, x: xp.linalg.vector_norm(x, ord=3),
    "matrix_norm": lambda xp, x: xp.linalg.matrix_norm(x, ord="nuc"),
    "pinv": lambda xp, x: xp.linalg.pinv(x),
    "matrix_rank": lambda xp, x: xp.linalg.matrix_rank(x, rtol=1e-3),
    "svd": lambda xp, x: xp.linalg.svd(x, full_matrices=False).S,
    "slogdet": lambda xp, x: xp.linalg.slogdet(x).logabsdet,
    "matrix_power": lambda xp, x: xp.linalg.matrix_power(x, -3),
    "tensordot": lambda xp, x: xp.tensordot(x, x, axes=((0,), (1,))),
    "cumulative_sum": lambda xp, x: xp.cumulative_sum(x, axis=1, include_initial=True),
    "diff": lambda xp, x: xp.diff(x, axis=0, n=2, prepend=x),
    "unique_all": lambda xp, x: xp.unique_all(x).counts,
    "mask": lambda xp, x: x[xp.asarray([True, False, True])],
    "tensors of integers": lambda xp, x: x[xp.asarray([0, 2]), xp.asarray([1, -1])],
    "searchsorted": lambda xp, x: xp.searchsorted(x[0], x[1], sorter=xp.asarray([2, 1, 0])),
    "fftn": lambda xp, x: xp.fft.fftn(x, norm="ortho"),
    "take_along_axis": lambda xp, x: xp.take_along_axis(x, xp.asarray([[0], [1], [2]]), axis=1),
    "meshgrid of reshaped": lambda xp, x: xp.add(*xp.meshgrid(x[0], x[1])),
}


@pytest.mark.parametrize("name", ONE_INSTRUCTION)
def test_a_composite_function_is_one_instruction(session, name):
    found = ONE_INSTRUCTION[name](session.xp, session.asarray(MATRIX))
    found.wait()
    assert len(records(session, opcode="LocalCallOpKernel")) == 1


@pytest.mark.parametrize(
    ("op", "call"),
    [
        ("eigh", lambda xp, x: xp.linalg.eigh(x).eigenvalues),
        ("svd", lambda xp, x: xp.linalg.svd(x).U),
        ("argsort", lambda xp, x: xp.argsort(x, axis=0)),
        ("unique_inverse", lambda xp, x: xp.unique_inverse(x).inverse_indices),
        ("fft", lambda xp, x: xp.fft.fft(x)),
    ],
)
def test_what_a_device_lacks_runs_on_the_cpu_visibly_and_comes_back(make_session, op, call):
    """Behaviour 21, with the standard's functions: the result has the home that it would have without the fallback."""
    lacking = make_session(devices=["cpu:0", {"name": "sim:0", "missing": [op]}, "sim:1"])
    x = lacking.asarray(MATRIX, device="sim:0")
    found, whole = call(lacking.xp, x), call(lacking.xp, x.to_device("sim:1"))
    assert found.device == "sim:0"
    assert_equal("sim:1", op, found.numpy(), whole.numpy())
    found.wait()  # it comes back where an op needs it
    assert {r.device for r in records(lacking, op)} == {"cpu:0", "sim:1"}
    assert len(transfers(lacking)) >= 3
    assert_sound(lacking)


FAULTS: dict[str, tuple[type[Exception], Any]] = {
    "take": (IndexError, lambda xp, x: xp.take(x, xp.asarray([0, 3]), axis=0)),
    "take_along_axis": (IndexError, lambda xp, x: xp.take_along_axis(x, xp.asarray([[7]]), axis=1)),
    "index": (IndexError, lambda xp, x: x[xp.asarray([-4]), xp.asarray([0])]),
    "repeat": (ValueError, lambda xp, x: xp.repeat(x, xp.asarray([1, -1, 2]), axis=0)),
    "inv": (ValueError, lambda xp, x: xp.linalg.inv(xp.zeros_like(x))),
    "solve": (ValueError, lambda xp, x: xp.linalg.solve(x * 0, x)),
    "cholesky": (ValueError, lambda xp, x: xp.linalg.cholesky(-x)),
    "pow": (ValueError, lambda xp, x: xp.pow(xp.astype(x, xp.int64), -1)),
}


@each_case("device", DEVICES)
@each_case("name", FAULTS)
def test_what_the_data_do_wrong_is_raised_at_the_wait_with_the_line_of_the_call(sim_session, device, name):
    if name == "pow" and is_on_gpu(device):
        pytest.skip("CuPy has values for integers to negative powers: tests/special_values.py")
    kind, call = FAULTS[name]
    x = sim_session.asarray(MATRIX, device=device)
    bad = call(sim_session.xp, x)
    after, beside = bad + 1, x + 1
    for poisoned in (bad, after):
        with pytest.raises(td.KernelError) as caught:
            poisoned.numpy()
        assert isinstance(caught.value, kind)
        assert "test_array_api.py" in (caught.value.location or "")
    np.testing.assert_array_equal(beside.numpy(), MATRIX + 1)
    assert_sound(sim_session)


def test_assigning_through_an_index_out_of_bounds_poisons_and_an_overwrite_heals(session):
    x = session.asarray(VALUES)
    x[session.asarray([9])] = 1.0
    with pytest.raises(IndexError, match="out of bounds"):
        x.numpy()
    session.call("zeros", (), {"shape": x.shape}, out=[x])
    np.testing.assert_array_equal(x.numpy(), np.zeros(6))


FORBIDDEN: dict[str, tuple[type[Exception], Any]] = {
    "mixed kinds": (TypeError, lambda xp, x: xp.add(x, xp.asarray([1, 2, 3]))),
    "a float with integers": (TypeError, lambda xp, x: xp.astype(x, xp.int64) + 1.5),
    "no bits in floats": (TypeError, lambda xp, x: xp.bitwise_and(x, x)),
    "no tensor at all": (TypeError, lambda xp, _x: xp.sin(1.0)),
    "an array of this process": (TypeError, lambda xp, x: xp.add(x, MATRIX)),
    "shapes": (ValueError, lambda xp, x: xp.matmul(x, x[:2])),
    "an axis": (IndexError, lambda xp, x: xp.sum(x, axis=2)),
    "an axis, as NumPy users know it": (ValueError, lambda xp, x: xp.flip(x, axis=-3)),
    "an index": (IndexError, lambda _xp, x: x[3]),
    "too many indices": (IndexError, lambda _xp, x: x[0, 0, 0]),
    "a mask's shape": (IndexError, lambda xp, x: x[xp.asarray([True, False])]),
    "floats as an index": (IndexError, lambda _xp, x: x[1.5]),
    "reshape": (ValueError, lambda xp, x: xp.reshape(x, (2, 5))),
    "a dtype": (TypeError, lambda xp, x: xp.astype(x, "text")),
    "an int that does not fit": (OverflowError, lambda xp, x: xp.astype(x, xp.int8) + 1000),
    "half precision in LAPACK": (TypeError, lambda xp, x: xp.linalg.inv(xp.astype(x, xp.float16))),
    "a matrix that is not square": (ValueError, lambda xp, x: xp.linalg.det(x[:2])),
    "a device": (ValueError, lambda xp, _x: xp.zeros(3, device="gpu")),
    "copies that cannot be avoided": (ValueError, lambda xp, _x: xp.asarray(MATRIX, copy=False)),
    "a copy to another dtype": (ValueError, lambda xp, x: xp.asarray(x, dtype=xp.int8, copy=False)),
    "a dtype of a tensor": (TypeError, lambda xp, x: xp.asarray(x, dtype="text")),
    "DLPack without a copy": (ValueError, lambda xp, _x: xp.from_dlpack(MATRIX, copy=False)),
    "no operand": (TypeError, lambda xp, x: xp.add(x, "1")),
    "no bound": (TypeError, lambda xp, x: xp.clip(x, min=[1.0])),
    "no order": (TypeError, lambda xp, x: xp.clip(x + 1j, min=0.0)),
    "no fill value": (TypeError, lambda xp, _x: xp.full(3, None)),
    "a fill value of many elements": (ValueError, lambda xp, x: xp.full(3, x)),
    "a grid of matrices": (ValueError, lambda xp, x: xp.meshgrid(x)),
    "a grid's indexing": (ValueError, lambda xp, x: xp.meshgrid(x[0], indexing="yx")),
    "a kind of dtypes": (ValueError, lambda xp, x: xp.isdtype(x.dtype, "text")),
    "kinds of the namespace": (ValueError, lambda xp, _x: xp.__array_namespace_info__().dtypes(kind="text")),
    "promotion of kinds": (TypeError, lambda xp, x: xp.result_type(x, xp.int8)),
    "promotion of nothing": (TypeError, lambda xp, _x: xp.result_type(1, 2.0)),
    "limits of a dtype": (TypeError, lambda xp, _x: xp.finfo(xp.int8)),
    "a version": (ValueError, lambda _xp, x: x.__array_namespace__(api_version="1999.12")),
    "a seed": (TypeError, lambda _xp, x: x._core.as_session().random.seed("a")),
    "lengths of transforms": (TypeError, lambda xp, x: xp.fft.fftn(x + 0j, s=1.5)),
    "a number to clip": (TypeError, lambda xp, x: xp.clip(3, xp.astype(x[0], xp.uint8), 5)),
    "more than a machine word": (OverflowError, lambda xp, x: xp.logical_and(x, 2**63)),
    "no sequence to join": (TypeError, lambda xp, _x: xp.concat(5)),
    "no sequence to stack": (TypeError, lambda xp, _x: xp.stack(np.array(5))),
    "no axes of transforms": (TypeError, lambda xp, x: xp.fft.fftn(x, axes=np.array(0.5))),
    "indexing of a grid that is not a name": (ValueError, lambda xp, x: xp.meshgrid(x[0], x[0], indexing=["xy"])),
    "a device that is not a name": (ValueError, lambda xp, x: xp.asarray(x, device=MATRIX)),
    "a device of the like": (ValueError, lambda xp, x: xp.zeros_like(x, device=MATRIX)),
    "a device of no name at all": (ValueError, lambda xp, x: xp.full_like(x, 1, device="")),
    "another dtype in place": (TypeError, lambda xp, x: xp.astype(x, xp.int64).__itruediv__(2)),
    "another shape in place": (ValueError, lambda _xp, x: x[0].__iadd__(x)),
}


@each_case("name", FORBIDDEN)
def test_what_is_forbidden_raises_at_the_call_and_nothing_is_sent(session, name):
    kind, call = FORBIDDEN[name]
    x = session.asarray(MATRIX)
    session.sync()
    before = session.stats()["session"]["errors"]
    with pytest.raises(td.TensordError) as caught:
        call(session.xp, x)
    assert isinstance(caught.value, kind)
    assert "test_array_api.py" in (caught.value.location or "")
    assert session.stats()["session"]["errors"] == before
    np.testing.assert_array_equal(x.numpy(), MATRIX)


def test_tensors_of_two_sessions_do_not_mix(make_session):
    mine, theirs = make_session(), make_session()
    x, y = mine.xp.ones(3), theirs.xp.ones(3)
    calls: list[Any] = [
        lambda: x + y,
        lambda: mine.xp.add(x, y),
        lambda: theirs.xp.add(x, x),
        lambda: mine.xp.sin(y),
        lambda: mine.xp.concat([x, y]),
        lambda: mine.xp.asarray(y),
        lambda: x[y > 0],
        lambda: x.__setitem__(0, y[0]),
    ]
    for call in calls:
        with pytest.raises(td.MetadataError, match="belongs to another session; publish it and look it up"):
            call()


def test_asking_a_function_again_is_a_lookup(session):
    """Behaviour 12, with attributes of every type that functions have."""
    xp, x = session.xp, session.asarray(MATRIX)

    def calls() -> None:
        xp.add(x, x)
        xp.sum(x, axis=(0, 1), dtype=xp.float32)
        xp.reshape(x, (1, 9))
        xp.astype(x, np.dtype("float32"))
        xp.zeros((2, 3), dtype=xp.int8)
        xp.linalg.matrix_norm(x, ord=float("inf"))
        x[1:, ..., None]
        x[xp.asarray([0]), 1]

    calls()
    before = session._core.calls._signatures._infer.misses
    for _ in range(3):
        calls()
    assert session._core.calls._signatures._infer.misses == before


def test_the_module_has_no_names_of_its_own():
    assert {name for name in vars(td.array_api) if not name.startswith("_")} == {"fft", "linalg", "special"}
