"""Shapes and dtypes: known at the call where possible, pending where data decide them."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.wire.message_kinds import CALL, FETCH, LOCATION, SIGNATURE
from tensord.streams.faults import Fault, FaultKind

from ..each_case import each_case
from .looking_inside import WAIT, assert_sound, device_of, held, machine_of, ones, until
from .made_ops import here

FLOATS, MATRIX = ((4,), "float32"), ((2, 3), "float32")

# op, operands as metas, attributes, text of the message
WRONG: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("add", [FLOATS, ((3,), "float32")], {}, "do not broadcast"),
    ("matmul", [MATRIX, MATRIX], {}, "matmul"),
    ("bitwise_and", [FLOATS, FLOATS], {}, "not defined for float32"),
    ("reshape", [FLOATS], {"shape": (3,)}, "cannot become"),
    ("reshape", [FLOATS], {"shape": "wide"}, "attribute 'shape'"),
    ("reshape", [FLOATS], {}, "'shape' is required"),
    ("sum", [FLOATS], {"axis": 1}, "axis"),
    ("sum", [FLOATS], {"axes": 0}, "unknown attribute 'axes'"),
    ("astype", [FLOATS], {"dtype": "float8"}, "float8"),
    ("add", [FLOATS], {}, "takes 2 operands, not 1"),
    ("concat", [MATRIX, FLOATS], {"axis": 0}, "concat"),
    ("add", [FLOATS, FLOATS], {"device": "cpu:9"}, "unknown device 'cpu:9'"),
    ("adds", [FLOATS, FLOATS], {}, "unknown op 'adds'; did you mean add"),
    ("zeros", [], {"shape": (2**40, 2**40)}, "too large"),
]


@pytest.mark.parametrize(("op", "metas", "attributes", "text"), WRONG)
def test_a_wrong_call_raises_in_the_callers_line_before_anything_is_sent(session, op, metas, attributes, text):
    """Behaviour 9: a shape, dtype, attribute, op or device that does not exist or fit."""
    tensors = [session.asarray(np.zeros(*meta)) for meta in metas]
    session.sync()
    attributes = dict(attributes)
    device = attributes.pop("device", None)
    machine = machine_of(session)
    before = (machine.engine.scheduler.ids, session._core.outbox.ids, len(session._core.outbox.messages))
    with pytest.raises(td.MetadataError, match=text) as caught:
        session.call(op, tensors, attributes, device=device)
    assert here(-1) in (caught.value.location or "")
    assert op in str(caught.value) or device in str(caught.value)
    session.flush()
    assert (machine.engine.scheduler.ids, session._core.outbox.ids, len(session._core.outbox.messages)) == before
    np.testing.assert_array_equal((session.asarray(ones(2)) + 1.0).numpy(), ones(2, value=2))


@pytest.mark.parametrize(("op", "metas", "attributes"), [wrong[:3] for wrong in WRONG if "device" not in wrong[2]])
def test_the_machine_gives_a_foreign_client_the_same_error(session, op, metas, attributes):
    """Behaviour 9: the same call as messages of a client that does not check: the same error, and service goes on."""
    tensors = [session.asarray(np.zeros(*meta)) for meta in metas]
    with pytest.raises(td.MetadataError) as mine:
        session.call(op, tensors, attributes)
    session.sync()
    transport, new = session._core.transport, session._core.outbox.ids + 1
    session._core.outbox.ids = new
    request, reply = transport.request()
    transport.send(
        [
            [LOCATION, 900, "foreign.py:7 in main"],
            [SIGNATURE, 900, op, tuple(attributes.items()), tuple(metas), "cpu:0", None],
            [CALL, 900, tuple(t._id for t in tensors), (new,), 0, 900],
            [FETCH, new, request, 0, 0],
        ]
    )
    assert reply.done
    theirs = reply.error
    assert isinstance(theirs, td.MetadataError)
    assert type(theirs) is type(mine.value)
    assert (theirs.message, theirs.op) == (mine.value.message, op)
    assert theirs.location == "foreign.py:7 in main"
    assert session.stats()["session"]["errors"] == 1
    np.testing.assert_array_equal((session.asarray(ones(2)) + 1.0).numpy(), ones(2, value=2))
    assert_sound(session)


PENDING = [
    ("unique_values", [[3, 1, 3, 2]], (3,), [1, 2, 3]),
    ("nonzero", [[3, 0, 3, 2]], (1, 3), [[0, 2, 3]]),
    ("masked_select", [[3, 0, 3, 2], [True, False, False, True]], (2,), [3, 2]),
]


@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
@pytest.mark.parametrize(("op", "values", "shape", "result"), PENDING)
def test_ops_on_a_pending_result_are_submitted_at_once(sim_session, device, op, values, shape, result):
    """Behaviour 10: a shape that data decide is pending; ops on it go ahead; asking for it waits for the compute."""
    s = sim_session
    operands = [s.asarray(value, device=device) for value in values]
    s.sync()
    with held(s, device, "compute"):
        found = s.call(op, operands)[0]
        later = (found * 2 + found).sum()
        elsewhere = found.to_device("sim:1") + 1
        assert "pending" in repr(found)
        assert "pending" in repr(later)
        assert not found.is_ready()
        with pytest.raises(TimeoutError):
            found.wait(timeout=0)
        assert s.stats()["live"] >= 4
    assert found.shape == shape
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found.numpy(), result)
    assert later.item() == 3 * np.sum(result)
    np.testing.assert_array_equal(elsewhere.numpy(), np.add(result, 1))
    assert_sound(s)


def test_asking_for_a_pending_shape_raises_what_went_wrong(session):
    """Behaviour 10: the compute that was to decide the shape failed."""
    device_of(session, "cpu:0").inject(Fault(FaultKind.FAIL, label="unique_values"))
    found, line = session.call("unique_values", [session.asarray([1, 2])])[0], here()
    with pytest.raises(td.KernelError, match="injected") as caught:
        _ = found.shape
    assert line in (caught.value.location or "")
    assert caught.value.op == "unique_values"


def ask_for_shape(found: Any) -> None:
    _ = found.shape


def wait_for_value(found: Any) -> None:
    found.wait(WAIT)


def await_value(found: Any) -> None:
    async def main() -> None:
        await found

    asyncio.run(main())


def read_value(found: Any) -> None:
    found.numpy()


@pytest.mark.parametrize("learn", [ask_for_shape, wait_for_value, await_value, read_value])
def test_errors_are_synchronous_again_once_the_meta_is_known(session, learn):
    """Behaviour 11: while the shape is pending a mismatch is raised at the wait, with the call's line; then at the
    call.
    """
    x, wrong = session.asarray([3, 1, 3, 2]), session.asarray([1, 2])
    session.sync()
    with held(session, "cpu:0", "compute"):
        found = session.call("unique_values", [x])[0]
        bad, line = found + wrong, here()
        good = found + 1
    with pytest.raises(td.MetadataError, match="do not broadcast") as late:
        bad.numpy()
    assert line in (late.value.location or "")
    assert late.value.op == "add"
    np.testing.assert_array_equal(good.numpy(), [2, 3, 4])
    learn(found)
    with pytest.raises(td.MetadataError, match="do not broadcast") as at_once:
        found + wrong
    assert here(-1) in (at_once.value.location or "")
    assert session.stats()["session"]["errors"] == 1
    assert_sound(session)


def distinct(s: Any, dtype: str, device: str) -> Any:
    """A tensor of which neither shape nor dtype are known."""
    return s.call("unique_values", [s.asarray([1, 2], device, dtype=dtype)])[0]


# Ops on a pending tensor of that dtype and an integer that the dtype does not hold, though NumPy may take it.
UNFIT = {
    "wrapped": ("uint16", lambda s, x: s.xp.where(s.asarray([True, False], x.device), -1, x)),
    "clipped": ("int8", lambda s, x: s.xp.clip(x, x, 300)),
    "promoted": ("int16", lambda s, x: s.xp.hypot(x, 70000)),
    "refused by kernels": ("int8", lambda _s, x: x + 1000),
    "the filling": ("uint8", lambda s, x: s.call("full_like", [x, -1])[0]),
    "in place": ("uint16", lambda s, x: s.call("where", [s.asarray([True, False], x.device), -1, x], out=[x])[0]),
}


@each_case("device", ["cpu:0", "sim:0"])
@each_case("name", UNFIT)
def test_an_integer_that_a_pending_dtype_does_not_hold_is_the_error_that_it_is_at_the_call(sim_session, device, name):
    dtype, compute = UNFIT[name]
    known, pending = (distinct(sim_session, dtype, device) for _ in range(2))
    assert known.shape == (2,)
    bad = compute(sim_session, pending)
    with pytest.raises(td.MetadataError, match="does not fit") as late:
        bad.numpy()
    assert isinstance(late.value, OverflowError)
    assert "test_metadata.py" in (late.value.location or "")
    with pytest.raises(td.MetadataError, match="does not fit") as at_once:
        compute(sim_session, known)
    assert str(late.value).split(" [")[0] == str(at_once.value).split(" [")[0]
    assert_sound(sim_session)


def test_an_integer_is_checked_where_a_dtype_became_known_on_its_way(session):
    """The client does not know the dtype yet, the machine does when the call arrives."""
    x = distinct(session, "uint16", "cpu:0")
    session.sync()
    bad = session.xp.where(session.asarray([True, False]), -1, x)
    with pytest.raises(OverflowError, match="-1 does not fit uint16"):
        bad.numpy()


def test_inferring_the_same_again_is_a_lookup(session):
    """Behaviour 12: a loop asks the infer functions once per combination, on both sides."""
    x, w = session.asarray(ones(4, 4)), session.asarray(ones(4, 4))

    def step() -> Any:
        y = session.call("matmul", [x, w])[0]
        return (y + x).sum(axis=0).reshape(2, 2).T

    step().wait(WAIT)
    misses = (session._core.calls._signatures._infer.misses, session.stats()["infer_misses"])
    plans = len(session._core.transport._session.plans)
    for _ in range(200):
        step()
    session.sync()
    assert (session._core.calls._signatures._infer.misses, session.stats()["infer_misses"]) == misses
    assert len(session._core.transport._session.plans) == plans
    assert misses[0] >= 5


def test_inferring_what_became_known_is_a_lookup_too(session):
    """Behaviour 12: ops on a pending result are inferred when it resolves; the same metas are not inferred again."""
    x = session.asarray([3, 1, 3, 2])

    def step() -> Any:
        with held(session, "cpu:0", "compute"):
            return (session.call("unique_values", [x])[0] * 2).sum()

    step().wait(WAIT)
    misses = session.stats()["infer_misses"]
    for _ in range(10):
        assert step().item() == 12
    assert session.stats()["infer_misses"] == misses
    until(session, lambda: not machine_of(session).engine.live)


@pytest.mark.parametrize("engine", ["vm", "serial"])
@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
def test_whether_a_reshape_would_copy_depends_on_the_program_alone(make_session, engine, device):
    """The meta depends neither on the operand's place nor on what the machine already knows of a shape that data
    decide.
    """
    session = make_session(devices=["cpu:0", "sim:0"], engine=engine, expect_empty=engine == "vm")
    xp = session.xp
    turned = xp.asarray(np.arange(6.0).reshape(2, 3)).T
    refused = xp.reshape(turned.to_device(device), (6,), copy=False)
    with pytest.raises(ValueError, match=r"cannot become .* without a copy"):
        refused.numpy()
    assert xp.reshape(turned, (3, 2, 1), copy=False).numpy().tolist() == turned.reshape((3, 2, 1)).tolist()
    turned += 1.0  # it has a memory of its own now, which is packed
    assert xp.reshape(turned, (6,), copy=False).tolist() == [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]


@pytest.mark.parametrize("engine", ["vm", "serial"])
@pytest.mark.parametrize("waits", [False, True])
def test_what_is_made_of_a_pending_tensor_is_packed_whenever_its_shape_becomes_known(make_session, engine, waits):
    """`waits`: the machine knows the shape before it receives the view; the program does not ask."""
    session = make_session(devices=["cpu:0"], engine=engine, expect_empty=engine == "vm")
    xp = session.xp
    x = xp.asarray(np.arange(12.0).reshape(3, 4))
    rows = x[xp.asarray([True, False, True])]
    if waits:
        session.sync()
    turned = xp.permute_dims(rows, (1, 0))
    if waits:
        session.sync()
    flat = xp.reshape(turned, (8,), copy=False)
    assert flat.tolist() == [0.0, 8.0, 1.0, 9.0, 2.0, 10.0, 3.0, 11.0]
    turned.wait()  # now the program knows the shape, and asks for a view of a packed tensor
    assert xp.reshape(turned, (8,), copy=False).tolist() == flat.tolist()
