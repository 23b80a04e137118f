"""Handlers: a chain that every op passes, each wrapping another one."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.session.handlers import (
    CompositeHandler,
    DeviceHandler,
    FallbackHandler,
    Invocation,
    LoggingHandler,
)

from .looking_inside import WAIT, assert_sound, moves, ones, records, transfers
from .made_ops import here, make_op, raising

# Neither tanh nor softmax has a kernel here; softmax is composed of other ops, tanh is not.
LACKING = {"name": "sim:0", "missing": ["tanh", "softmax"]}


class Counting:
    """A user's handler that counts ops and wraps another handler."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.seen: list[str] = []

    def __call__(self, invocation: Invocation) -> list[td.Tensor]:
        self.seen.append(invocation.op.name)
        return self.inner(invocation)


# --- 19: handlers wrap each other


def test_every_op_passes_the_handler_once(session):
    """Behaviour 19: calls, operators, in-place operators, methods and views; also functions that were called before it
    was set.
    """
    x = session.asarray(ones(2, 2))
    y = x + x
    handler = session.handler = Counting(session.handler)
    y = x + x
    y += x
    z = (2.0 - y).sum(axis=0).T
    session.call("matmul", [x, x])
    z[0:1] = 5.0
    assert handler.seen == ["add", "add", "subtract", "sum", "transpose", "matmul", "setitem"]
    np.testing.assert_array_equal(z.numpy(), [5, -2])
    assert_sound(session)


@pytest.mark.parametrize("missing", ["tanh", "softmax"])
def test_what_the_last_handler_does_not_support_names_op_and_device(make_session, missing):
    """Behaviour 19: with the device handler alone."""
    session = make_session(devices=["cpu:0", LACKING])
    session.handler = DeviceHandler()
    x = session.asarray(ones(4), device="sim:0")
    with pytest.raises(td.MetadataError, match=f"{missing}.* sim:0") as caught:
        session.call(missing, [x])
    assert caught.value.op == missing
    assert here(-2) in (caught.value.location or "")
    np.testing.assert_array_equal((x + x).numpy(), ones(4, value=2))
    assert_sound(session)


def test_without_a_host_there_is_nothing_to_fall_back_to(make_session):
    """Behaviour 19: the whole chain, and still no handler that has a kernel."""
    session = make_session(devices=[LACKING])
    with pytest.raises(td.MetadataError, match=r"tanh has no kernel on sim:0"):
        session.call("tanh", [session.asarray(ones(4))])
    assert_sound(session)


def test_a_device_handler_places_what_does_not_say_where(make_session):
    """Behaviour 19: the device of a handler comes second to that of the call."""
    session = make_session(devices=["cpu:0", "sim:0"])
    session.handler = DeviceHandler("sim:0")
    x = session.asarray(ones(4))
    there, here_ = session.call("add", [x, x])[0], session.call("add", [x, x], device="cpu:0")[0]
    assert (there.device, here_.device) == ("sim:0", "cpu:0")
    assert sorted(there.residency()) == ["sim:0"]
    np.testing.assert_array_equal(there.numpy(), here_.numpy())
    assert_sound(session)


def test_a_composite_op_is_made_of_others_on_the_device(make_session):
    """Behaviour 19: softmax without a kernel stays on its device: its parts run there, nothing moves."""
    session = make_session(devices=["cpu:0", LACKING])
    values = np.array([[1.0, 2.0, 4.0]], np.float32)
    x = session.asarray(values, device="sim:0")
    y, line = session.call("softmax", [x], {"axis": 1})[0], here()
    powers = np.exp(values - values.max())
    np.testing.assert_allclose(y.numpy(), powers / powers.sum(), rtol=1e-6)
    assert transfers(session) == []
    assert records(session, "softmax") == []
    parts = [r.op for r in session.trace().records if r.opcode == "LocalCallOpKernel"]
    assert parts == ["max", "equal", "where", "subtract", "exp", "sum", "maximum", "divide"]
    assert {r.device for r in session.trace().records if r.opcode == "LocalCallOpKernel"} == {"sim:0"}
    assert line in records(session, "exp")[0].location
    assert_sound(session)


def test_without_the_composite_handler_it_falls_back(make_session):
    """Behaviour 19: each handler does its own part and no other's."""
    session = make_session(devices=["cpu:0", LACKING])
    session.handler = FallbackHandler(DeviceHandler())
    session.call("softmax", [session.asarray(ones(2, 2), device="sim:0")], {"axis": 1})[0].wait(WAIT)
    (softmax,) = records(session, "softmax")
    assert softmax.device == "cpu:0"
    session.handler = CompositeHandler(DeviceHandler())
    with pytest.raises(td.MetadataError, match=r"tanh has no kernel on sim:0"):
        session.call("tanh", [session.asarray(ones(4), device="sim:0")])
    assert_sound(session)


# --- 20: logging


def test_the_logging_handler_prints_counter_op_inputs_attributes_and_outputs(session, monkeypatch):
    """Behaviour 20: logging goes on with poisoned inputs; one op at a time."""
    make_op(monkeypatch, "boom", raising, bounded=True)
    out = io.StringIO()
    session.handler = LoggingHandler(session.handler, out)
    x = session.asarray([1, 2])
    session.call("sum", [x], {"axis": 0})
    bad = session.call("boom", [x])[0]
    after = bad + 1
    good = x + x
    assert out.getvalue().splitlines() == [
        "[1] sum(int64[2] on cpu:0: [1 2]; axis=0, dtype=None, keepdims=False)",
        "[1]   -> 0: int64[] on cpu:0: 3",
        "[2] boom(int64[2] on cpu:0: [1 2])",
        "[2]   -> 0: <KernelError: boom: ZeroDivisionError: boom>",
        "[3] add(<KernelError: boom: ZeroDivisionError: boom>, 1)",
        "[3]   -> 0: <KernelError: boom: ZeroDivisionError: boom>",
        "[4] add(int64[2] on cpu:0: [1 2], int64[2] on cpu:0: [1 2])",
        "[4]   -> 0: int64[2] on cpu:0: [2 4]",
    ]
    assert good.is_ready()
    assert after.is_ready()
    assert_sound(session)


def test_the_logging_handler_raises_only_what_the_op_raises(session):
    """Behaviour 20: a wrong call is printed and raised, with the caller's line."""
    out = io.StringIO()
    session.handler = LoggingHandler(session.handler, out)
    x = session.asarray([1, 2])
    with pytest.raises(td.MetadataError) as caught:
        x + session.asarray([1, 2, 3])
    assert here(-1) in (caught.value.location or "")
    assert out.getvalue() == "[1] add(int64[2] on cpu:0: [1 2], int64[3] on cpu:0: [1 2 3])\n"
    assert_sound(session)


# --- 21: fallback


def test_an_op_without_a_kernel_falls_back_to_the_cpu_visibly(make_session):
    """Behaviour 21: down, compute, up: all of it instructions in the DAG; the result lives on the requested device."""
    session = make_session(devices=["cpu:0", LACKING])
    values = np.linspace(-1, 1, 4, dtype=np.float32)
    x = session.asarray(values, device="sim:0")
    y = session.call("tanh", [x])[0]
    assert y.device == "sim:0"
    z = y + y
    np.testing.assert_allclose(z.numpy(), 2 * np.tanh(values), rtol=1e-6)
    assert transfers(session) == ["d2h sim:0->cpu:0", "h2d cpu:0->sim:0"]
    (tanh,), (add,) = records(session, "tanh"), records(session, "add")
    assert (tanh.device, add.device) == ("cpu:0", "sim:0")
    down, up = moves(session)
    graph = session.trace().graph()
    dependences = {(edge.source, edge.target) for edge in graph.edges}
    assert {(down.id, tanh.id), (tanh.id, up.id), (up.id, add.id)} <= dependences
    assert all("test_an_op_without_a_kernel" in r.location for r in (tanh, down, up))
    assert_sound(session)


def test_falling_back_in_place_writes_the_target(make_session):
    """Behaviour 21: with out=, the target keeps its home and has the value."""
    session = make_session(devices=["cpu:0", LACKING])
    x = session.asarray(ones(4, value=0.5), device="sim:0")
    session.call("tanh", [x], out=[x])
    y = x + x
    np.testing.assert_allclose(y.numpy(), 2 * np.tanh(ones(4, value=0.5)), rtol=1e-6)
    assert x.device == y.device == "sim:0"
    assert_sound(session)


# --- 22: attributes


def test_attributes_are_frozen_for_a_call(session):
    """Behaviour 22: changing the dict, or a list in it, after the call changes nothing."""
    x = session.asarray(np.arange(6))
    shape = [2, 3]
    attributes: dict[str, Any] = {"shape": shape}
    first = session.call("reshape", [x], attributes)[0]
    shape[:] = [3, 2]
    second = session.call("reshape", [x], attributes)[0]
    attributes["shape"] = (6, 1)
    third = session.call("reshape", [x], attributes)[0]
    axis = {"axis": 0}
    total = session.call("sum", [first], axis)[0]
    axis["axis"] = 1
    assert [t.shape for t in (first, second, third, total)] == [(2, 3), (3, 2), (6, 1), (3,)]
    np.testing.assert_array_equal(total.numpy(), [3, 5, 7])
    np.testing.assert_array_equal(second.numpy(), np.arange(6).reshape(3, 2))
    assert_sound(session)


def test_handlers_see_frozen_attributes(session):
    """Behaviour 22: an invocation that a handler keeps does not change."""
    kept: list[Invocation] = []

    def keep(invocation: Invocation) -> list[td.Tensor]:
        kept.append(invocation)
        return inner(invocation)

    inner, session.handler = session.handler, keep
    attributes = {"axis": 0}
    session.call("sum", [session.asarray(ones(2, 2))], attributes)
    attributes["axis"] = 1
    assert dict(kept[0].attributes)["axis"] == 0
    hash(kept[0].attributes)
