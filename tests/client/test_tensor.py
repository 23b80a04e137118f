"""Handles: operators, methods, metas, values, placement."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest

import tensord as td

from ..behaviours.looking_inside import WAIT, address, assert_sound, held, machine_of, ones, records, transfers
from ..behaviours.made_ops import here, make_op, raising

BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
BITWISE = [operator.and_, operator.or_, operator.xor, operator.lshift, operator.rshift]
IN_PLACE = [
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.ifloordiv,
    operator.imod,
    operator.ipow,
]


@pytest.mark.parametrize("function", [*BINARY, *COMPARISONS])
@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
def test_binary_operators_are_numpys(sim_session, function, device):
    a, b = np.array([5.0, 2.0, 7.0]), np.array([2.0, 2.0, 3.0])
    x, y = sim_session.asarray(a, device=device), sim_session.asarray(b, device=device)
    for result, expected in (
        (function(x, y), function(a, b)),
        (function(x, 2.0), function(a, 2.0)),
        (function(x, 2), function(a, 2)),
        (function(3.0, y), function(3.0, b)),
    ):
        assert (result.shape, result.dtype, result.device) == (expected.shape, expected.dtype, device)
        np.testing.assert_array_equal(result.numpy(), expected)


@pytest.mark.parametrize("function", BITWISE)
def test_bitwise_operators_are_numpys(session, function):
    a, b = np.array([5, 2, 7]), np.array([2, 2, 3])
    x, y = session.asarray(a), session.asarray(b)
    np.testing.assert_array_equal(function(x, y).numpy(), function(a, b))
    np.testing.assert_array_equal(function(x, 2).numpy(), function(a, 2))
    np.testing.assert_array_equal(function(3, y).numpy(), function(3, b))
    np.testing.assert_array_equal((~x).numpy(), ~a)


@pytest.mark.parametrize("function", IN_PLACE)
def test_operators_in_place_keep_tensor_and_memory(session, function):
    a, b = np.array([5.0, 2.0, 7.0]), np.array([2.0, 2.0, 3.0])
    x, y = session.asarray(a), session.asarray(b)
    where = address(session, x, "cpu:0")
    for other, expected in ((y, b), (2.0, 2.0)):
        a = getattr(operator, function.__name__[1:] if function.__name__[1:] != "pow" else "pow")(a, expected)
        same = function(x, other)
        assert same is x
    np.testing.assert_array_equal(x.numpy(), a)
    assert address(session, x, "cpu:0") == where


def test_unary_operators_and_methods_are_numpys(session):
    a = np.array([[1.0, -2.0, 3.0], [4.0, 5.0, -6.0]])
    x = session.asarray(a)
    for result, expected in (
        (-x, -a),
        (+x, +a),
        (abs(x), abs(a)),
        (x.T, a.T),
        (x @ x.T, a @ a.T),
        (x.reshape(3, -1), a.reshape(3, -1)),
        (x.reshape((6,)), a.reshape(6)),
        (x.astype("int32"), a.astype("int32")),
        (x.sum(), a.sum()),
        (x.sum(axis=0), a.sum(axis=0)),
        (x.mean(axis=1, keepdims=True), a.mean(axis=1, keepdims=True)),
        (x.max(axis=(0, 1)), a.max()),
        (x.min(axis=0), a.min(axis=0)),
        (x.argmax(axis=1), a.argmax(axis=1)),
        (x[1], a[1]),
        (x[:, ::2], a[:, ::2]),
        (x[..., None, -1], a[..., None, -1]),
    ):
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(result.numpy(), expected)


def test_python_asks_for_values(session):
    x = session.asarray([[1.5, 2.0]])
    assert (len(x), x.ndim, x.size) == (1, 2, 2)
    assert float(x[0, 0]) == 1.5
    assert int(x[0, 1]) == 2
    assert bool(x[0, 1] > 1)
    assert x[0, 0].item() == 1.5
    assert type(x[0, 0].item()) is float
    assert hash(x) == hash(x)
    assert repr(x).startswith("<tensor ")
    assert "float64[1, 2] on cpu:0" in repr(x)


def test_items_are_set_in_place(session):
    a = np.arange(6.0).reshape(2, 3)
    x = session.asarray(a)
    row = x[0]
    x[0] = 7.0
    x[:, 1] = session.asarray([8.0, 9.0])
    a[0], a[:, 1] = 7, [8, 9]
    np.testing.assert_array_equal(x.numpy(), a)
    np.testing.assert_array_equal(row.numpy(), [0, 1, 2])  # values are independent


def test_a_value_is_a_copy_of_its_own(session):
    given = ones(4)
    x = session.asarray(given)
    given[:] = 5
    first, second = x.numpy(), x.numpy()
    first[:] = 7
    np.testing.assert_array_equal(second, ones(4))
    np.testing.assert_array_equal(x.numpy(), ones(4))


def test_numpy_sees_its_place_in_program_order(session):
    x = session.asarray(ones(4))
    with held(session, "cpu:0", "compute"):
        y = x * 2.0
        before = y._session._outbox.ask(lambda request, at: [3, y._id, request, at])
        y += 1.0
    np.testing.assert_array_equal(session._await(before), ones(4, value=2))
    np.testing.assert_array_equal(y.numpy(), ones(4, value=3))


def test_call_gives_a_list_and_writes_to_out(session):
    x, y, z = (session.asarray(ones(4, value=n)) for n in (1, 2, 0))
    results = session.call("add", [x, y])
    assert type(results) is list
    assert len(results) == 1
    same = session.call("add", [x, y], out=[z])
    assert same == [z] or same[0] is z
    np.testing.assert_array_equal(z.numpy(), ones(4, value=3))
    session.call("matmul", [x.reshape(2, 2), y.reshape(2, 2)], out=[session.asarray(ones(2, 2))])
    session.call("add", (x, 1.0), out=(x,))
    np.testing.assert_array_equal(x.numpy(), ones(4, value=2))
    assert_sound(session)


def test_an_op_runs_where_it_is_told_then_where_out_is_then_where_its_first_tensor_is(sim_session):
    s = sim_session
    x, y = s.asarray(ones(4), device="sim:0"), s.asarray(ones(4), device="sim:1")
    out = s.asarray(ones(4), device="cpu:0")
    assert s.call("add", [x, y])[0].device == "sim:0"
    assert s.call("add", [2.0, y])[0].device == "sim:1"
    assert s.call("add", [x, y], device="cpu:0")[0].device == "cpu:0"
    assert s.call("add", [x, y], out=[out])[0].device == "cpu:0"
    assert s.call("zeros", [], {"shape": 3})[0].device == "cpu:0"
    assert s.call("zeros", [], {"shape": 3}, device="sim:1")[0].device == "sim:1"
    s.sync()
    assert [r.device for r in records(s, "add")] == ["sim:0", "sim:1", "cpu:0", "cpu:0"]
    assert_sound(s)


def test_to_device_makes_a_tensor_with_another_home(sim_session):
    s = sim_session
    x = s.asarray(np.arange(4.0))
    y = x.to_device("sim:0")
    again = y.to_device("sim:0")
    assert (x.device, y.device, again.device) == ("cpu:0", "sim:0", "sim:0")
    np.testing.assert_array_equal((y + 1.0).numpy(), np.arange(4.0) + 1)
    assert transfers(s) == ["h2d cpu:0->sim:0"]
    assert x.residency() == {"cpu:0": "valid", "sim:0": "valid"}
    y += 1.0
    assert x.residency() == {"cpu:0": "valid", "sim:0": "valid"}
    np.testing.assert_array_equal(x.numpy(), np.arange(4.0))
    with held(s, "sim:1", "h2d"), held(s, "sim:1", "p2p"):
        z = x.to_device("sim:1")
        assert z.residency()["sim:1"] == "planned"
    z.wait(WAIT)
    assert s.asarray(x, device="sim:1").device == "sim:1"


def test_ready_and_error_never_wait(session, monkeypatch):
    make_op(monkeypatch, "boom", raising)
    x = session.asarray(ones(4))
    session.sync()
    with held(session, "cpu:0", "compute"):
        y, bad = x + x, session.call("boom", [x])[0]
        assert not y.is_ready()
        assert not bad.is_ready()
        assert y.error is None
        assert bad.error is None
        with pytest.raises(TimeoutError):
            y.wait(0.0)
    assert y.wait(WAIT) is y
    assert y.is_ready()
    assert y.error is None
    session.sync()
    assert bad.is_ready()
    assert type(bad.error) is td.KernelError
    with pytest.raises(td.KernelError):
        bad.wait()


def test_each_wait_raises_an_error_of_its_own(session, monkeypatch):
    """So that tracebacks of different waits do not pile up on one exception."""
    make_op(monkeypatch, "boom", raising)
    bad = session.call("boom", [session.asarray(ones(4))])[0]
    seen = []
    for wait in (bad.wait, bad.numpy, bad.item):
        with pytest.raises(td.KernelError) as caught:
            wait()
        seen.append(caught.value)
    assert len({id(error) for error in seen}) == 3
    assert len({(str(error), error.instruction) for error in seen}) == 1


def uses(x: Any) -> dict[str, tuple[Any, str]]:
    """Ways to issue an op, each with its line."""
    found = {}
    found["operator"] = (x + 1.0, here())
    found["reflected"] = (1.0 - x, here())
    found["unary"] = (-x, here())
    found["method"] = (x.sum(), here())
    found["index"] = (x[0:2] * 2.0, here())
    found["call"] = (x._session.call("multiply", [x, x])[0], here())
    return found


def test_locations_are_the_users_lines(session):
    """The second time as well, when the signature is known and the call takes the short way."""
    x = session.asarray(ones(4))
    for _ in range(3):
        made = uses(x)
        session.sync()
        by_op = {r.op: r.location for r in records(session, opcode="LocalCallOpKernel")}
        for way, op in {"operator": "add", "reflected": "subtract", "unary": "negative", "method": "sum"}.items():
            assert made[way][1] in by_op[op], way
        assert made["call"][1] in by_op["multiply"]
        assert all("in uses" in location for location in by_op.values())
    assert len(machine_of(session).engine.sessions[1].locations) < 20
