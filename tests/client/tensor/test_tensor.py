"""Handles: operators, methods, metas, values, placement."""

from __future__ import annotations

import copy
import enum
import inspect
import operator
import pickle
import re
import sys
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.tensor import operators
from tensord.interpreter.wire.messages import Fetch

from ...behaviours.looking_inside import WAIT, address, assert_sound, held, machine_of, ones, records, transfers
from ...behaviours.made_ops import here, make_op, raising
from ...each_case import each_case
from ...equality import assert_equal

BINARY = [operator.add, operator.sub, operator.mul, operator.truediv, operator.floordiv, operator.mod, operator.pow]
COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
IN_PLACE = [
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.ifloordiv,
    operator.imod,
    operator.ipow,
]


@each_case("function", IN_PLACE)
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
        before = y._core.outbox.ask(lambda request, at: Fetch(y._id, request, at, 0))
        y += 1.0
    np.testing.assert_array_equal(session._core.outbox.await_reply(before), ones(4, value=2))
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
    assert isinstance(bad.error, td.KernelError)
    with pytest.raises(td.KernelError):
        bad.wait()


def test_each_wait_raises_an_error_of_its_own(session, monkeypatch):
    """Tracebacks of different waits do not pile up on one exception."""
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
    found["call"] = (x._core.as_session().call("multiply", [x, x])[0], here())
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
    assert len(machine_of(session).engine.directory.sessions[1].source.lines) < 20


# --- copies, and Python's protocols


@each_case("make", [copy.copy, copy.deepcopy, td.Tensor.copy, lambda x: copy.deepcopy([x])[0]])
def test_a_copy_is_a_tensor_of_its_own(session, make):
    a = np.arange(4.0)
    x = session.asarray(a)
    y = make(x)
    y += 1.0
    np.testing.assert_array_equal(x.numpy(), a)
    np.testing.assert_array_equal(y.numpy(), a + 1)
    del y
    np.testing.assert_array_equal((x * 2.0).numpy(), a * 2)
    z = make(x)
    del x
    np.testing.assert_array_equal(z.numpy(), a)
    assert_sound(session)


def test_a_copy_of_a_tensor_whose_shape_data_decide_does_not_wait(session):
    with held(session, "cpu:0", "compute"):
        y = copy.copy(session.call("unique_values", [session.asarray([3, 1, 3])])[0])
        assert not y.is_ready()
    assert y.tolist() == [1, 3]


def test_a_tensor_is_not_pickled(session):
    with pytest.raises(TypeError, match=r"publish it by name .*\.numpy\(\)"):
        pickle.dumps(session.asarray(ones(4)))


def test_a_handle_that_was_never_made_is_dropped_in_silence(monkeypatch):
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", seen.append)
    never = td.Tensor.__new__(td.Tensor)
    del never
    assert not seen


def test_iteration_gives_the_rows(session):
    a = np.arange(6.0).reshape(3, 2)
    x = session.asarray(a)
    rows = list(x)
    assert [row.shape for row in rows] == [(2,)] * 3
    np.testing.assert_array_equal([row.numpy() for row in rows], a)
    first, *_ = x
    first += 9.0
    np.testing.assert_array_equal(x.numpy(), a)
    with pytest.raises(TypeError, match="iteration over a 0-d tensor"):
        iter(x.sum())


def test_containing_is_equality_with_an_element(session):
    x = session.asarray([[1, 2], [3, 4]])
    assert 3 in x
    assert np.int64(3) in x
    assert 5 not in x
    assert "3" not in x


def test_a_tensor_of_one_element_is_a_number_to_python(session):
    x = session.asarray([[1.25]])
    assert (float(x), int(x), complex(x), bool(x), x.item()) == (1.25, 1, 1.25 + 0j, True, 1.25)
    assert f"{x:.3f} {x:>6}" == "1.250   1.25"
    assert f"{x}" == str(x)
    assert "abc"[session.asarray(2)] == "c"
    assert hex(session.asarray(255, dtype="uint8")) == "0xff"


@each_case(
    ("use", "error", "text"),
    [
        (bool, ValueError, r"shape \(2, 3\) has no truth value of its own: use .any\(\) or .all\(\)"),
        (float, TypeError, r"float\(\) is for tensors of one element, not of shape \(2, 3\)"),
        (int, TypeError, r"int\(\) is for tensors of one element, not of shape \(2, 3\)"),
        (complex, TypeError, r"complex\(\) is for tensors of one element, not of shape \(2, 3\)"),
        (operator.index, TypeError, r"an index is for tensors of one element, not of shape \(2, 3\)"),
        (td.Tensor.item, ValueError, r"item\(\) is for tensors of one element .* not of shape \(2, 3\)"),
        (lambda x: f"{x:.2f}", TypeError, r"the format '.2f' is for tensors of one element, not of shape \(2, 3\)"),
        (lambda x: operator.index(x[0, 0] > 0), TypeError, "a tensor of bool is not an index"),
        (lambda x: operator.index(x[0, 0] / 2), TypeError, "a tensor of float64 is not an index"),
    ],
)
def test_more_than_one_element_is_no_number(session, use, error, text):
    with pytest.raises(error, match=text):
        use(session.asarray([[1, 2, 3], [4, 5, 6]]))


def test_more_methods_are_numpys(session):
    a = np.array([[1.0, -2.0, 0.0], [4.0, 5.0, -6.0]])
    x = session.asarray(a)
    for result, expected in (
        (x.prod(axis=1), a.prod(axis=1)),
        (x.argmin(axis=0), a.argmin(axis=0)),
        (x.all(), a.all()),
        (x.any(axis=0, keepdims=True), a.any(axis=0, keepdims=True)),
        (x.var(axis=0, correction=1), a.var(axis=0, ddof=1)),
        (x.std(), a.std()),
        (x.permute_dims([1, 0]), a.T),
        (x.reshape([3, 2]), a.reshape(3, 2)),
        (x[:, None].squeeze(), a),
        (x[:, None].squeeze(axis=1), a),
    ):
        assert (result.shape, result.dtype) == (expected.shape, expected.dtype)
        assert_equal(result.device, "std", result.numpy(), expected)
    assert x.nbytes == a.nbytes
    assert x.tolist() == a.tolist()


# --- where NumPy and tensors meet


@each_case("function", [*BINARY, *COMPARISONS])
def test_a_numpy_scalar_counts_as_a_number_of_python(session, function):
    a = np.array([5.0, 2.0, 7.0], np.float32)
    x = session.asarray(a)
    for result, expected in (
        (function(x, np.float64(2)), function(a, 2.0)),
        (function(x, np.int8(2)), function(a, 2)),
        (function(np.float64(2), x), function(2.0, a)),
        (function(np.float32(2), x), function(2.0, a)),
    ):
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result.numpy(), expected)


def test_a_numpy_scalar_is_taken_in_place_and_as_an_item(session):
    x = session.asarray([1, 2, 3])
    same = x
    x += np.int64(1)
    x[0] = np.int32(9)
    assert x is same
    assert x.tolist() == [9, 3, 4]
    assert (np.int64(1) << x[1]).item() == 8


@each_case(
    ("use", "text"),
    [
        (lambda x: x + np.ones(4), "a NumPy array is not an operand: .*asarray.*numpy"),
        (lambda x: np.ones(4) + x, "a NumPy array is not an operand: .*asarray.*numpy"),
        (lambda x: x @ np.ones(4), "a NumPy array is not an operand"),
        (lambda x: np.ones(4) < x, "a NumPy array is not an operand"),
        (lambda x: x.__iadd__(np.ones(4)), "a NumPy array is not an operand"),
        (lambda x: x.__setitem__(0, np.ones(4)), "a NumPy array is not an operand"),
        (lambda x: x + np.str_("a"), "a NumPy array is not an operand"),
        (np.sum, r"numpy.sum does not take tensors: use session.xp.sum, or .numpy\(\)"),
        (np.exp, r"numpy.exp does not take tensors: use session.xp.exp, or .numpy\(\)"),
        (np.linalg.norm, "numpy.norm does not take tensors: use session.xp.linalg.vector_norm"),
        (np.add.reduce, "numpy.add does not take tensors"),
        (lambda x: np.concatenate([x, x]), "numpy.concatenate does not take tensors"),
        (lambda x: np.add(x, x), r"numpy.add does not take tensors: use session.xp.add"),
        (lambda x: np.add(1.0, x, out=np.ones(4)), "numpy.add does not take tensors"),
        (lambda x: np.add(np.float64(1), x, dtype=np.float32), "numpy.add does not take tensors"),
        (np.asarray, "a tensor is not an array of this process"),
    ],
)
def test_numpy_does_not_take_tensors_and_says_what_to_do(session, use, text):
    with pytest.raises(TypeError, match=text):
        use(session.asarray(ones(4)))


def test_an_int_of_any_size_is_a_float_beside_floats(session):
    x, huge = session.asarray(ones(3)), 2**70
    for result, expected in (
        (x + huge, [huge + 1.0] * 3),
        (huge - x, [huge - 1.0] * 3),
        (x < huge, [True] * 3),
        (session.xp.where(x > 1, x, huge), [float(huge)] * 3),
        (session.xp.full(2, -huge, dtype="complex64"), [complex(-huge)] * 2),
    ):
        assert result.tolist() == expected
    x += huge
    x[0] = -huge
    assert x.tolist() == [-float(huge), huge + 1.0, huge + 1.0]
    for refused in (
        lambda: x + 10**400,
        lambda: session.asarray([1, 2]) + huge,
        lambda: session.nn.dropout(x, huge, rate=0.5),
    ):
        with pytest.raises(OverflowError, match="has more than 64 bits"):
            refused()


class Level(enum.IntEnum):
    LOW = 2


def test_a_number_of_a_class_of_its_own_counts_as_a_number(session):
    x = session.asarray(ones(4))
    assert (x * Level.LOW).tolist() == (Level.LOW * x).tolist() == [2.0] * 4
    x += Level.LOW
    x[0] = Level.LOW
    assert x.tolist() == [2.0, 3.0, 3.0, 3.0]
    assert Level.LOW in x
    assert session.xp.clip(x, max=Level.LOW).tolist() == [2.0] * 4


def test_looking_for_an_element_is_an_instruction_of_the_user_s_line(session):
    x = session.asarray(ones(4))
    assert [value in x for value in (1.0, 2.0, np.float32(1), x[0], None, "a")] == [True, False, True, True, 0, 0]
    session.sync()
    compared = [record for record in session.trace().records if record.op == "equal"]
    assert len(compared) == 4
    assert all("test_tensor.py" in record.location for record in compared)


def test_what_is_no_operand_at_all_is_left_to_python(session):
    x = session.asarray(ones(4))
    with pytest.raises(TypeError, match="unsupported operand"):
        x + "a"
    with pytest.raises(TypeError, match="unsupported operand"):
        None - x
    assert (x == "a") is False


def test_type_checkers_see_every_operator_and_no_other():
    declared = re.findall(r"def __(\w+)__", inspect.getsource(operators.Operators))
    assert sorted(declared) == sorted(
        [
            *operators.UNARY,
            *operators.COMPARISONS,
            *(f"{side}{name}" for name in operators.BINARY for side in ("", "r", "i")),
        ]
    )


def test_operators_have_names_and_docstrings():
    for name in ("__add__", "__iadd__", "__radd__", "__lt__", "__matmul__"):
        method = getattr(td.Tensor, name)
        assert (method.__name__, method.__qualname__) == (name, f"Tensor.{name}")
        assert method.__module__ == td.Tensor.__module__
        assert method.__doc__
