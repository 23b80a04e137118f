"""Bad input gets a typed error that names op and line; nothing is lost, and the machine goes on.

Tests of shapes, dtypes, attributes and op names in calls are in tests/behaviours/test_metadata.py.
"""

from __future__ import annotations

import enum
import functools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.wire.message_kinds import (
    ATOMIC,
    CALL,
    CHAIN,
    EFFECT,
    FETCH,
    HINT,
    LOCATION,
    LOOKUP,
    NAMES,
    PUBLISH,
    QUERY,
    RELEASE,
    RESTART,
    SIGNATURE,
    SYNC,
    TO_DEVICE,
    UNPUBLISH,
    UPLOAD,
    WAIT,
)
from tensord.interpreter.wire.roles import outputs_of
from tensord.streams.faults import Fault, FaultKind
from tensord.vm.tracing.analysis.trace import Trace

from ...behaviours.looking_inside import assert_sound, device_of, machine_of, ones
from ...behaviours.made_ops import here, make_op, raising
from ...each_case import each_case

FLOATS = ((4,), "float32")
NESTED: list[Any] = functools.reduce(lambda inner, _: [inner], range(10_000), [])  # deeper than repr goes


def assert_works(session: Any) -> None:
    """The session computes, and its machine holds nothing else."""
    x = session.asarray(ones(4))
    np.testing.assert_array_equal((x + x).numpy(), ones(4, value=2))
    del x
    assert_sound(session)


def distrust(session: Any) -> Any:
    """Every machine checks the session's messages: these tests send some that no client makes."""
    here = getattr(session._core.transport, "_session", None)
    if here is not None:
        here.trusted = False
    return session


@pytest.fixture
def session(make_session):
    """A session that may send any message."""
    return distrust(make_session())


# --- through the API


@each_case(
    ("values", "options", "text"),
    [
        (["a", "b"], {}, r"text is not a number: dtype .* is not supported; convert it with int\(\) or float\(\)"),
        ([1, "b"], {}, "text is not a number"),
        ([object()], {}, "object is not a number"),
        ({"a": 1}, {}, "dict is not a number"),
        (None, {}, "NoneType is not a number: .*; for a missing value use nan"),
        ([1.0, None], {}, "NoneType is not a number"),
        (2**70, {}, 'the integer 1180591620717411303424 has more than 64 bits; with dtype="float64" it is rounded'),
        ([-(2**70)], {}, "the integer -1180591620717411303424 has more than 64 bits"),
        (1 << 5000, {}, "the integer of 5001 bits has more than 64 bits"),
        ([Fraction(1, 3)], {}, "dtype object is not supported; choose a dtype for the numbers"),
        ([[1, 2], [3]], {}, "inhomogeneous"),
        ("5", {"dtype": "float64"}, "dtype .* is not supported"),
        (["1", 2], {"dtype": "int64"}, "dtype .* is not supported"),
        (b"12", {"dtype": "uint8"}, "dtype .* is not supported"),
        (None, {"dtype": "float64"}, "dtype object is not supported"),
        ([None, 1.0], {"dtype": "float32"}, "dtype object is not supported"),
        (np.datetime64(1, "s"), {"dtype": "int64"}, "dtype .* is not supported"),
        (np.array([1, 2], object), {"dtype": "int64"}, "dtype object is not supported"),
        ([1, 2], {"dtype": "float8"}, "float8"),
        ([1, 2], {"device": "cpu:7"}, "unknown device 'cpu:7'"),
        ([1, 2], {"device": 3}, "unknown device 3"),
    ],
)
def test_asarray_refuses_what_it_cannot_hold(session, values, options, text):
    with pytest.raises(td.MetadataError, match=text) as caught:
        session.asarray(values, **options)
    assert here(-1) in (caught.value.location or "")
    assert_works(session)


def test_a_large_integer_is_an_overflow_as_it_is_elsewhere(session):
    with pytest.raises(OverflowError, match="has more than 64 bits"):
        session.asarray(2**70)
    assert session.asarray([2**70], dtype="float64").tolist() == [2.0**70]


@each_case(
    "use",
    [
        lambda x: x + x,
        lambda x: 1.0 - x,
        lambda x: x.sum(),
        lambda x: x.numpy(),
        lambda x: x.wait(),
        lambda x: x.is_ready(),
        lambda x: x.error,
        lambda x: x.shape,
        lambda x: x.residency(),
        lambda x: x.to_device("cpu:0"),
        lambda x: x[0],
        lambda x: x._core.as_session().asarray(ones(4))[x],
        lambda x: x._core.as_session().asarray(ones(4)).__setitem__(x, 1.0),
        lambda x: x.__iadd__(1.0),
        lambda x: x._core.as_session().call("add", [x, x]),
        lambda x: x._core.as_session().call("zeros", [], {"shape": 4}, out=[x]),
        lambda x: x._core.as_session().publish("x", x),
        lambda x: x._core.as_session().effect(print, x),
    ],
)
def test_using_a_released_handle_is_an_error_at_that_line(session, use):
    x = session.asarray(ones(4))
    y = x + x
    x.release()
    x.release()  # a second release is no error
    with pytest.raises(td.ProtocolError, match="was released") as caught:
        use(x)
    assert "test_bad_input.py" in (caught.value.location or "")
    assert "released" in repr(x)
    np.testing.assert_array_equal(y.numpy(), ones(4, value=2))
    del y
    assert_works(session)


def test_a_released_pending_handle_is_refused_too(session):
    x = session.call("unique_values", [session.asarray([3, 1])])[0]
    x + x
    x.release()
    with pytest.raises(td.ProtocolError, match="was released") as caught:
        x + x
    assert here(-1) in (caught.value.location or "")
    assert_works(session)


@pytest.fixture
def closed(session):
    """A closed session, and a tensor of it."""
    x = session.asarray(ones(4))
    x = x + x
    session.close()
    session.close()
    return session, x


@each_case(
    "use",
    [
        lambda _s, x: x + x,
        lambda _s, x: x.sum(),
        lambda _s, x: x.numpy(),
        lambda _s, x: x.wait(),
        lambda _s, x: x.is_ready(),
        lambda _s, x: x.residency(),
        lambda _s, x: x.to_device("cpu:0"),
        lambda _s, x: x.__setitem__(0, 1.0),
        lambda s, _x: s.asarray([1]),
        lambda s, _x: s.call("zeros", [], {"shape": 3}),
        lambda s, x: s.publish("x", x),
        lambda s, _x: s.lookup("x"),
        lambda s, _x: s.unpublish("x"),
        lambda s, _x: s.names(),
        lambda s, _x: s.sync(),
        lambda s, _x: s.stats(),
        lambda s, _x: s.trace(),
        lambda s, _x: s.cancel(),
        lambda s, _x: s.restart(),
        lambda s, _x: s.chain(),
        lambda s, _x: s.check_chain(),
        lambda s, _x: s.print("x"),
        lambda s, x: s.effect(print, x),
    ],
)
def test_using_a_closed_session_is_an_error_at_that_line_each_time(closed, use):
    session, x = closed
    for _ in range(3):
        with pytest.raises(td.ConnectionLost, match="closed") as caught:
            use(session, x)
        assert "test_bad_input.py" in (caught.value.location or "")
    assert len(session._core.outbox.messages) == 0
    assert "closed" in repr(session)


def test_a_shape_that_is_known_outlives_the_session(session):
    x = session.asarray(ones(4))
    session.close()
    assert x.shape == (4,)
    assert x.device == "cpu:0"


def test_tensors_of_another_session_are_refused(make_session):
    a, b = make_session(), make_session()
    x, y = a.asarray(ones(4)), b.asarray(ones(4))
    for use in (lambda: x + y, lambda: y + x, lambda: a.call("add", [x, y]), lambda: a.call("add", [x, x], out=[y])):
        with pytest.raises(td.MetadataError, match="belongs to another session") as caught:
            use()
        assert "test_bad_input.py" in (caught.value.location or "")
    assert_works(a)
    assert_works(b)


@each_case(
    ("use", "error", "text"),
    [
        (lambda _s, x: x + np.ones(4), TypeError, "asarray"),
        (lambda _s, x: np.ones(4) + x, TypeError, "asarray"),
        (lambda _s, x: x + "a", TypeError, "unsupported operand"),
        (lambda _s, x: x + None, TypeError, "unsupported operand"),
        (lambda _s, x: np.asarray(x), TypeError, "numpy"),
        (lambda s, x: s.call("add", [x, "a"]), td.MetadataError, "str is not an operand"),
        (lambda s, x: s.call("add", [x, np.float32(1)]), td.MetadataError, "float32 is not an operand"),
        (lambda s, _x: s.call("add", [1.0, 2.0]), td.MetadataError, "tensor"),
        (lambda s, x: s.call("add", [x, x], out=[x, x]), td.MetadataError, "out="),
        (lambda s, x: s.call("add", [x, x], out=[x[0:2]]), td.MetadataError, "out="),
        (lambda s, x: s.call("add", [x, x], out=["x"]), td.MetadataError, "expected a tensor"),
        (lambda s, x: s.call("unique_values", [x], out=[x]), td.MetadataError, "no out="),
        (lambda s, x: s.call(3, [x]), td.MetadataError, "unknown op 3"),
        (lambda s, x: s.call(["add"], [x]), td.MetadataError, "unknown op"),
        (lambda s, _x: s.call(NESTED), td.MetadataError, "unknown op list"),
        (lambda s, _x: s.call(10**5000), td.MetadataError, "unknown op int"),
        (lambda s, x: s.call("sum", [x], [1]), td.MetadataError, "attributes"),
        (lambda s, x: s.call("add", [x, x], np.ones(2)), td.MetadataError, "attributes must be a dict, not ndarray"),
        (lambda s, x: s.call("add", [x, x], []), td.MetadataError, "attributes must be a dict, not list"),
        (lambda s, _x: s.call("add", np.array(1)), td.MetadataError, "operands must be a list of tensors, not ndarray"),
        (lambda s, x: s.call("add", [x, x], out=np.array(1)), td.MetadataError, "out= must be a list of tensors"),
        (lambda s, x: s.call("add", [x, x], device=NESTED), td.MetadataError, "unknown device list"),
        (lambda s, x: s.call("add", [x, x], device=10**5000), td.MetadataError, "unknown device int"),
        (lambda s, x: s.call("sum", [x], {"axis": [[0]]}), td.MetadataError, "axis"),
        (lambda s, _x: s.call("add", 5), td.MetadataError, "operands"),
        (lambda _s, x: x.to_device("gpu"), td.MetadataError, "unknown device 'gpu'"),
        (lambda _s, x: x.to_device([]), td.MetadataError, "unknown device"),
        (lambda _s, x: x[7], td.MetadataError, "out of bounds"),
        (lambda _s, x: x["a"], td.MetadataError, "index"),
        (lambda _s, x: x[x], td.MetadataError, "takes integer"),
        (lambda _s, x: x.__setitem__(0, "a"), td.MetadataError, "not an operand"),
        (
            lambda _s, x: x.__setitem__(0, [1, 2]),
            td.MetadataError,
            r"list is not an operand; make a tensor from it: session.as",
        ),
        (lambda s, x: s.xp.histogram(x, bins="auto"), TypeError, "or their edges, not 'auto'; NumPy's rules"),
        (lambda s, x: s.xp.histogram(x, bins=None), td.MetadataError, "or their edges, not None"),
        (lambda s, x: s.xp.histogram(x, bins=2.5), td.MetadataError, "histogram: bins must be the number"),
        (lambda s, x: s.xp.histogram(x, bins=np.ones(3)), TypeError, "histogram: a NumPy array is not an operand"),
        (lambda s, x: s.xp.interp(x, np.ones(3), x), TypeError, "interp: a NumPy array is not an operand"),
        (lambda s, x: s.xp.quantile(x, np.ones(3)), TypeError, "quantile: a NumPy array is not an operand"),
        (lambda s, x: s.publish("a\nb", x), td.MetadataError, r"a name is printable text, and 'a\\nb' is not"),
        (lambda s, x: s.publish({"": x}), td.MetadataError, "a name is printable text, and '' is not"),
        (lambda _s, x: x.astype("text"), td.MetadataError, "text"),
        (lambda s, _x: s.asarray([1, 2], dtype="int8") + 1000, td.MetadataError, "1000 does not fit int8"),
        (lambda s, x: s.publish(5, x), td.MetadataError, "name"),
        (lambda s, _x: s.publish("x"), td.MetadataError, "tensor"),
        (lambda s, _x: s.publish("x", 5), td.MetadataError, "expected a tensor"),
        (lambda s, _x: s.lookup("nothing"), td.MetadataError, "nothing is published as 'nothing'"),
        (lambda s, _x: s.unpublish("nothing"), td.MetadataError, "nothing is published as 'nothing'"),
        (lambda s, _x: s.lookup(None), td.MetadataError, "a name or a list of names"),
        (lambda s, _x: s.lookup(["x", 5]), td.MetadataError, "a name must be a string, not int"),
        (lambda s, _x: s.lookup("x", wait="long"), td.MetadataError, "lookup"),
        (lambda s, _x: s.lookup("x", wait=float("nan")), td.MetadataError, "lookup"),
        (lambda s, _x: s.unpublish(None), td.MetadataError, "a name must be a string, not NoneType"),
        (lambda s, _x: s.check_chain(NESTED), td.ProtocolError, "list is not a chain"),
        (lambda s, x: s.effect("out of range", x), td.MetadataError, "callback"),
        (lambda s, _x: s.effect(print, 5), td.MetadataError, "expected a tensor"),
        (lambda _, x: len(x.sum()), TypeError, "0-d"),
        (lambda _, x: bool(x), ValueError, "truth value"),
    ],
)
def test_wrong_arguments_are_typed_errors_at_that_line(session, use, error, text):
    x = session.asarray(ones(4))
    with pytest.raises(error, match=text) as caught:
        use(session, x)
    if isinstance(caught.value, td.TensordError):
        assert "test_bad_input.py" in (caught.value.location or "")
    np.testing.assert_array_equal(x.numpy(), ones(4))
    del x
    assert_works(session)


class Name(enum.StrEnum):
    """A subclass of str, as NumPy's strings are."""

    WEIGHTS = "weights"


@pytest.mark.parametrize("name", [Name.WEIGHTS, np.str_("weights")])
def test_whatever_is_a_string_is_a_name(session, name):
    session.publish(name, session.asarray(ones(4)))
    assert session.names() == ["weights"]
    np.testing.assert_array_equal(session.lookup(name).numpy(), ones(4))
    assert list(session.lookup([name])) == [name]
    session.unpublish(name)
    assert session.names() == []


def test_no_name_is_the_name_of_no_device_also_where_the_call_was_made_before(session):
    x = session.asarray(ones(4))
    session.call("add", [x, x])
    with pytest.raises(td.MetadataError, match="unknown device ''") as caught:
        session.call("add", [x, x], device="")
    assert here(-1) in (caught.value.location or "")


@each_case(
    ("address", "options", "text"),
    [
        ("tcp://nowhere", {}, "is not a tcp address"),
        ("local", {"devices": ["tpu:0"]}, "unknown device 'tpu:0'"),
        ("local", {"devices": ["cpu:0", "cpu:0"]}, "given twice"),
        ("local", {"devices": [{"name": "sim:0", "speed": 3}]}, "no option 'speed'"),
        ("local", {"devices": [{"name": "sim:0", "memory": "lots"}]}, "memory"),
        ("local", {"devices": "cpu:0"}, "as a list"),
        ("local", {"devices": [3]}, "not 3"),
    ],
)
def test_connect_refuses_what_is_not_there(address, options, text):
    with pytest.raises(td.MetadataError, match=text):
        td.connect(address, **options)


@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
def test_a_kernel_that_raises_is_an_error_of_its_op(make_session, monkeypatch, device):
    make_op(monkeypatch, "boom", raising)
    session = make_session(devices=["cpu:0", "sim:0"])
    x = session.asarray(ones(4), device=device)
    bad, line = session.call("boom", [x])[0], here()
    with pytest.raises(td.KernelError, match="boom: ZeroDivisionError: boom") as caught:
        bad.numpy()
    assert line in (caught.value.location or "")
    assert caught.value.op == "boom"
    assert caught.value.instruction
    del bad, x, caught
    assert_works(session)


def test_nan_is_a_value(session):
    x = session.asarray([np.nan, np.inf, 1.0])
    y = session.call("log", [x - 2.0])[0]
    assert np.isnan(y.numpy()[0])
    assert (x / 0.0).error is None
    assert session.stats()["session"]["errors"] == 0


def test_memory_that_is_not_there_is_a_typed_error(make_session):
    session = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 64}])
    big, line = session.call("zeros", [], {"shape": 100}, device="sim:0")[0], here()
    with pytest.raises(td.DeviceMemoryError, match="sim:0") as caught:
        big.numpy()
    assert line in (caught.value.location or "")
    assert caught.value.op == "zeros"
    small = session.asarray(ones(4), device="sim:0")
    np.testing.assert_array_equal((small + small).numpy(), ones(4, value=2))


@pytest.mark.parametrize("damage", [lambda b: b[:-20], lambda _: b"no trace", lambda b: b.replace(b"add", b"sub")])
def test_a_damaged_trace_file_names_the_line(session, tmp_path, damage):
    x = session.asarray(ones(4))
    (x + x).wait()
    path = tmp_path / "trace.jsonl"
    session.trace().save(path)
    assert len(Trace.load(path)) == len(session.trace())
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(td.ProtocolError, match=r"trace\.jsonl, line \d+"):
        Trace.load(path)
    assert_works(session)


# --- messages of foreign clients


def ask(session: Any, *messages: list[Any]) -> Any:
    """Send messages, with R in the place of a request, and return its reply."""
    request, reply = session._core.transport.request()
    session._core.transport.send([[request if field == "R" else field for field in message] for message in messages])
    return reply


@each_case(
    "message",
    [
        [FETCH, 77, "R", 0, 0],
        [WAIT, (77,), "R", 0],
        [WAIT, (77, 78), "R", 0],
        [EFFECT, (77,), 1, print, "R", 0, False, False, (), (), ""],
        [EFFECT, (), 77, print, "R", 0, False, False, (), (), ""],
        [PUBLISH, ("a",), (77,), "R", False],
        [PUBLISH, ("a", "b"), (1,), "R", False],
        [LOOKUP, ("nothing",), (80,), "R", False],
        [UNPUBLISH, ("nothing",), "R"],
        [WAIT, (), "R", 0],
        [FETCH, "77", "R", 0, 0],
        [FETCH, None, "R", 0, 0],
        [FETCH, [], "R", 0, 0],
        [FETCH, -1, "R", 0, 0],
        [FETCH, 2**70, "R", 0, 0],
        [WAIT, 77, "R", 0],
        [WAIT, (None,), "R", 0],
        [WAIT, ([],), "R", {}],
        [EFFECT, (), 1, "print", "R", 0, False, False, (), (), ""],
        [PUBLISH, (1,), (1,), "R", False],
        [PUBLISH, ([],), (1,), "R", False],
        [LOOKUP, ({},), (80,), "R", False],
        [LOOKUP, ("a",), ("80",), "R", False],
        [UNPUBLISH, (3,), "R"],
        [UNPUBLISH, "nothing", "R"],
        [LOOKUP, ("a",), (80,), "R", 1],
        [QUERY, "nothing", (), "R"],
        [QUERY, "residency", (77,), "R"],
        [QUERY, "residency", (), "R"],
        [QUERY, {}, (), "R"],
        [QUERY, "stats", "a", "R"],
    ],
)
def test_a_request_that_cannot_be_answered_gets_a_typed_error(session, message):
    session.sync()
    reply = ask(session, message)
    assert reply.done
    assert isinstance(reply.error, td.ProtocolError | td.MetadataError)
    assert reply.error.op == {FETCH: "fetch", WAIT: "wait", EFFECT: "effect", PUBLISH: "publish"}.get(
        message[0], {LOOKUP: "lookup", UNPUBLISH: "unpublish", QUERY: "query"}.get(message[0])
    )
    assert machine_of(session).engine.directory.names == {}
    assert_works(session)


N, N1 = 1 << 40, (1 << 40) + 1  # placeholders for new ids
DAMAGED: list[Any] = [
    None,
    5,
    "CALL",
    [],
    (),
    {},
    [None],
    [[]],
    ["0"],
    [99],
    [-1],
    [True],
    [1.0],
    [FETCH],
    [FETCH, 1],
    [FETCH, 1, "2", 3, 4],
    [FETCH, 1, 0, 0, "5"],
    [SYNC],
    [SYNC, "x", 0],
    [CALL],
    [CALL, 1],
    [CALL, 1, (1,), (N,), 0],
    [CALL, 1, (1,), (N,), 0, 0, 0],
    [CALL, [], (1,), (N,), 0, 0],
    [CALL, {}, {}, {}, {}, {}],
    [CALL, 900, (1, 1), (N,), "0", 0],
    [CALL, 900, (1, 1), N, 0, 0],
    [CALL, 900, 1, (N,), 0, 0],
    [CALL, 900, ([], {}), (N,), 0, 0],
    [CALL, 900, (1, None), (N,), 0, 0],
    [CALL, 900, (1, 1), ("a",), 0, 0],
    [CALL, 900, (1, 1), ([],), 0, 0],
    [CALL, 900, (1, 1), (), 0, 0],
    [CALL, 900, (1, 1), (N, N1), 0, 0],
    [CALL, 900, (1,), (N,), 0, 0],
    [CALL, 900, (1, 1, 1), (N,), 0, 0],
    [CALL, 900, (1, 1), (1,), 0, 0],
    [CALL, 900, (1, 77), (N,), 0, 0],
    [CALL, 901, (1, 1), (N,), 0, 0],
    [RELEASE],
    [RELEASE, 5],
    [RELEASE, ([],)],
    [RELEASE, ("a",)],
    [UPLOAD, N, (4,), "float32", "cpu:0", b"0123456789abcdef", 0],
    [UPLOAD, N, (4,), "float32", "cpu:0", None, 0],
    [UPLOAD, N, (4,), "float64", "cpu:0", ones(4), 0],
    [UPLOAD, N, (5,), "float32", "cpu:0", ones(4), 0],
    [UPLOAD, N, (-4,), "float32", "cpu:0", ones(4), 0],
    [UPLOAD, N, ("4",), "float32", "cpu:0", ones(4), 0],
    [UPLOAD, N, (2**62, 2**62), "float32", "cpu:0", ones(4), 0],
    [UPLOAD, N, (4,), "f4,f4", "cpu:0", ones(4), 0],
    [UPLOAD, N, (4,), [], "cpu:0", ones(4), 0],
    [UPLOAD, N, (4,), "float32", [], ones(4), 0],
    [UPLOAD, N, (4,), "float32", "cpu:9", ones(4), 0],
    [UPLOAD, 1, (4,), "float32", "cpu:0", ones(4), 0],
    [UPLOAD, "a", (4,), "float32", "cpu:0", ones(4), 0],
    [TO_DEVICE, 1, N, [], 0],
    [TO_DEVICE, 1, N, "cpu:9", 0],
    [TO_DEVICE, 1, "b", "cpu:0", 0],
    [TO_DEVICE, 77, N, "cpu:0", 0],
    [HINT, 77, "pin", "", 0],
    [HINT, 1, "pin", "cpu:0", 0],
    [HINT, 1, "prefetch", "cpu:9", 0],
    [HINT, 1, "keep", "", 0],
    [HINT, [], "evict", [], 0],
    [CHAIN],
    [CHAIN, []],
    [CHAIN, 0],
    [SIGNATURE, [], "add", (), (FLOATS, FLOATS), "cpu:0", None],
    [SIGNATURE, 1, [], (), (FLOATS, FLOATS), "cpu:0", None],
    [SIGNATURE, 1, "add", (), 5, "cpu:0", None],
    [SIGNATURE, 1, "add", (), (FLOATS, FLOATS), [], None],
    [LOCATION, [], "a"],
    [LOCATION, 1, 5],
    [EFFECT, (), 1, None, 0, 0, False, False, (), (), ""],
    [EFFECT, (), 1, 5, 0, 0, False, False, (), (), ""],
    [RESTART],
    [RESTART, -1],
    [RESTART, "1"],
    [ATOMIC],
    [ATOMIC, 5],
    [ATOMIC, [5]],
    [ATOMIC, [[CALL]]],
    [ATOMIC, [[ATOMIC, []]]],
    [ATOMIC, [[SYNC, 0, 0]]],
    [ATOMIC, ((UPLOAD, N, (4,), "float32", "cpu:0", None, 0),)],
    [NAMES],
    [NAMES, "1"],
    [QUERY, 5, (), 0],
    [QUERY, "stats", 5, 0],
    [QUERY, "nothing", (), 0],
    [EFFECT, (77,), 1, print, 0, 0, False, False, (), (), ""],
]


def at(field: Any, old: int, session: Any) -> Any:
    """The field with 1 replaced by an existing tensor's id, and N by unused ids."""
    if type(field) is tuple:
        return tuple(at(n, old, session) for n in field)
    return (
        {1: old, N: session._core.outbox.ids + 1, N1: session._core.outbox.ids + 2}.get(field, field)
        if type(field) is int
        else field
    )


@each_case("message", DAMAGED, ids=lambda m: repr(m)[:50])
def test_a_damaged_message_breaks_nothing(make_session, message):
    """The message is reported once, as a typed error; tensors that it does not write keep their values."""
    session = distrust(make_session())
    x, y = session.asarray(np.arange(4, dtype=np.float32)), session.asarray(ones(4))
    session.sync()
    send = session._core.transport.send
    send([[SIGNATURE, 900, "add", (), (FLOATS, FLOATS), "cpu:0", None]])
    if isinstance(message, list) and message:
        message = [message[0], *(at(field, x._id, session) for field in message[1:])]
    session._core.outbox.ids += 2
    send([message])
    stats = session.stats()
    assert stats["session"]["errors"] == 1
    assert stats["recent_errors"][0].partition(":")[0] in {"ProtocolError", "MetadataError"}
    assert session.trace().verify() == []
    send([[RELEASE, (session._core.outbox.ids - 1, session._core.outbox.ids)]])
    np.testing.assert_array_equal(y.numpy(), ones(4))
    if x._id not in outputs_of(message):
        np.testing.assert_array_equal(x.numpy(), np.arange(4))
    del x, y
    assert_works(session)
    session.close()


def test_a_damaged_location_is_none(session):
    x = session.asarray(ones(4))
    session.sync()
    session._core.outbox.ids += 1
    new = session._core.outbox.ids
    session._core.transport.send(
        [
            [SIGNATURE, 900, "add", (), (FLOATS, FLOATS), "cpu:0", None],
            [CALL, 900, (x._id, x._id), (new,), 0, []],
            [RELEASE, (new,)],
        ]
    )
    assert session.trace().verify() == []
    assert [r.location for r in session.trace().records if r.op == "add"] in ([""], [])
    del x
    assert_works(session)


@each_case(
    "signature",
    [
        ["add", None, (FLOATS, FLOATS), "cpu:0", None],
        ["add", 5, (FLOATS, FLOATS), "cpu:0", None],
        ["add", (("a",),), (FLOATS, FLOATS), "cpu:0", None],
        ["add", (("nothing", 1),), (FLOATS, FLOATS), "cpu:0", None],
        ["add", (), (FLOATS,), "cpu:0", None],
        ["add", (), (5, "x"), "cpu:0", None],
        ["add", (), (((4,), "f4,f4"), FLOATS), "cpu:0", None],
        ["add", (), (((4, -1), "float32"), FLOATS), "cpu:0", None],
        ["add", (), (((4, "x"), "float32"), FLOATS), "cpu:0", None],
        ["add", (), (((2**62, 2**62), "float32"), FLOATS), "cpu:0", None],
        ["add", (), (FLOATS, FLOATS), "cpu:9", None],
        ["add", (), (FLOATS, FLOATS), "cpu:0", 5],
        ["add", (), (FLOATS, FLOATS), "cpu:0", ("float",)],
        ["add", (), (FLOATS, FLOATS), "cpu:0", (FLOATS, FLOATS)],
        ["add", (), (FLOATS, ((3,), "float32")), "cpu:0", None],
        ["no op", (), (FLOATS, FLOATS), "cpu:0", None],
        ["reshape", (("shape", [[]]),), (FLOATS,), "cpu:0", None],
    ],
)
def test_a_damaged_signature_is_the_error_of_each_call_that_uses_it(session, signature):
    x = session.asarray(ones(4))
    session.sync()
    new = session._core.outbox.ids + 1
    session._core.outbox.ids += 2
    send = session._core.transport.send
    send([[LOCATION, 900, "foreign.py:3 in main"], [SIGNATURE, 900, *signature]])
    for id_ in (new, new + 1):
        send([[CALL, 900, (x._id,) * len(signature[2]) if signature[2] else (), (id_,), 0, 900]])
        reply = ask(session, [FETCH, id_, "R", 0, 0])
        assert isinstance(reply.error, td.MetadataError | td.ProtocolError)
        assert reply.error.location == "foreign.py:3 in main"
        assert reply.error.op == signature[0]
    np.testing.assert_array_equal(x.numpy(), ones(4))
    send([[RELEASE, (new, new + 1)]])
    del x
    assert_works(session)


def test_operands_that_are_not_what_the_signature_says_are_refused(session):
    """A view over a smaller tensor would read memory of others."""
    x = session.asarray(ones(2))
    session.sync()
    new = session._core.outbox.ids + 1
    session._core.outbox.ids += 3
    large = ((1000,), "float32")
    index = (("index", (("slice", 900, 1000, None),)),)
    session._core.transport.send(
        [
            [SIGNATURE, 900, "getitem", index, (large,), "cpu:0", None],
            [CALL, 900, (x._id,), (new,), 0, 0],
            [SIGNATURE, 901, "add", (), (large, large), "cpu:0", (large,)],
            [CALL, 901, (x._id, x._id), (x._id,), 0, 0],
            [SIGNATURE, 902, "add", (), (large, "float"), "cpu:0", None],
            [CALL, 902, (x._id, 1.0), (new + 1,), 0, 0],
            [SIGNATURE, 903, "add", (), (((2,), "float32"), "float"), "cpu:0", None],
            [CALL, 903, (x._id, "1"), (new + 2,), 0, 0],
        ]
    )
    for id_ in (new, new + 1, new + 2):
        assert isinstance(ask(session, [FETCH, id_, "R", 0, 0]).error, td.TensordError)
    assert session.stats()["session"]["errors"] == 4
    session._core.transport.send([[RELEASE, (new, new + 1, new + 2)]])
    del x
    assert_works(session)


def test_results_under_used_ids_are_refused_and_later_ones_are_not(session):
    x = session.asarray(ones(4))
    session.sync()
    new = session._core.outbox.ids + 1
    session._core.outbox.ids += 10
    session._core.transport.send(
        [
            [SIGNATURE, 900, "add", (), (FLOATS, FLOATS), "cpu:0", None],
            [CALL, 900, (x._id, x._id), (new + 5,), 0, 0],
            [CALL, 900, (x._id, x._id), (new,), 0, 0],  # an older id
        ]
    )
    assert session.stats()["session"]["errors"] == 1
    assert isinstance(ask(session, [FETCH, new, "R", 0, 0]).error, td.ProtocolError)
    np.testing.assert_array_equal(ask(session, [FETCH, new + 5, "R", 0, 0]).result(), ones(4, value=2))
    session._core.transport.send([[RELEASE, (new + 5, new, 12345)]])  # releasing an unknown id is no error
    assert session.stats()["session"]["errors"] == 1
    del x
    assert_works(session)


def test_damage_in_one_session_is_nothing_to_another(make_session):
    a = distrust(make_session("local:shared"))
    b = make_session("local:shared", devices=None)
    x = b.asarray(ones(4))
    b.sync()
    for message in DAMAGED:
        a._core.transport.send([message])
    a._core.transport.send([[FETCH, x._id, 0, 0, 0], [RELEASE, (x._id,)], [CALL, 1, (x._id,), (x._id,), 3, 0]])
    assert b.stats()["session"]["errors"] == 0
    np.testing.assert_array_equal((x + x).numpy(), ones(4, value=2))
    device_of(b, "cpu:0").inject(Fault(FaultKind.FAIL, label="exp"))
    bad = b.call("exp", [x])[0]
    with pytest.raises(td.KernelError, match="injected"):
        bad.wait()
