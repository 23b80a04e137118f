"""Limits of a captured function: each raises CaptureError at its line, and names the alternative."""

from __future__ import annotations

import asyncio
import copy
import math
import operator
import threading
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.capture.symbolic import REFUSED, SymbolicTensor
from tensord.client.session.session import Session
from tensord.client.tensor.tensor import Tensor


def awaited(x: Any) -> Any:
    """Await a tensor, in an event loop of its own."""

    async def wait() -> Any:
        return await x

    return asyncio.run(wait())


OF_TENSORS: dict[str, Any] = {
    "numpy": (lambda x: x.numpy(), "return the tensor"),
    "tolist": (lambda x: x.tolist(), "return the tensor"),
    "dlpack": (np.from_dlpack, "return the tensor"),
    "item": (lambda x: x.sum().item(), "use the tensor itself"),
    "float": (lambda x: float(x[0]), "use the tensor itself"),
    "int": (lambda x: int(x[0]), "use the tensor itself"),
    "complex": (lambda x: complex(x[0]), "use the tensor itself"),
    "math": (lambda x: math.sqrt(x[0]), "use the tensor itself"),
    "index": (lambda x: [1, 2][x.astype("int64")[0]], "index with the tensor"),
    "if": (lambda x: 1 if x[0] > 0 else 2, "xp.where"),
    "and": (lambda x: x[0] > 0 and x, "xp.where"),
    "in": (lambda x: 1.0 in x, "xp.where"),
    "max": (lambda x: max(x[0], x[1]), "xp.where"),
    "wait": (lambda x: x.wait(), "wait for the routine's results"),
    "is_ready": (lambda x: x.is_ready(), "wait for the routine's results"),
    "error": (lambda x: x.error, "wait for the routine's results"),
    "await": (awaited, "wait for the routine's results"),
    "residency": (lambda x: x.residency(), "wait for the routine's results"),
    "str": (str, "session.print"),
    "format": (lambda x: f"{x[0]:.3f}", "session.print"),
    "shape that data decide": (lambda x: x[x > 0].shape, "its shape depends on data"),
    "rows that data decide": (lambda x: list(x[x > 0]), "its shape depends on data"),
    "release": (lambda x: x.release(), "release it outside"),
    "generator": (lambda x: (row for row in x), "after the capture has ended"),
}
OF_SESSIONS: dict[str, Any] = {
    "sync": (lambda s: s.sync(), "outside of the routine"),
    "fetch": (lambda s: s.fetch([]), "outside of the routine"),
    "publish": (lambda s: s.publish("x", s.xp.ones(1)), "outside of the routine"),
    "lookup": (lambda s: s.lookup("x"), "outside of the routine"),
    "unpublish": (lambda s: s.unpublish("x"), "outside of the routine"),
    "names": (lambda s: s.names(), "outside of the routine"),
    "stats": (lambda s: s.stats(), "outside of the routine"),
    "check_chain": (lambda s: s.check_chain(), "outside of the routine"),
    "chain": (lambda s: s.chain(), "outside of the routine"),
    "cancel": (lambda s: s.cancel(), "outside of the routine"),
    "restart": (lambda s: s.restart(), "outside of the routine"),
    "atomic": (lambda s: s.atomic().__enter__(), "outside of the routine"),
    "close": (lambda s: s.close(), "outside of the routine"),
    "seed": (lambda s: s.random.seed(1), "outside of the routine"),
    "program": (lambda s: s.routine(repr).program(1), "outside"),
}


@pytest.mark.parametrize("name", [*OF_TENSORS, *OF_SESSIONS])
def test_what_asks_for_a_value_raises_at_its_line_and_says_what_to_do(session, name):
    x = session.asarray(np.ones(2))
    if name in OF_TENSORS:
        ask, hint = OF_TENSORS[name]
        f = session.routine(lambda x: ask(x if name == "release" else x + 1))
    else:
        question, hint = OF_SESSIONS[name]
        f = session.routine(lambda x: question(session) or x)
    before = session.stats()["instructions"]
    with pytest.raises(td.CaptureError, match=hint) as caught:
        f(x)
    assert "test_symbolic.py" in (caught.value.location or "")
    assert session.stats()["instructions"] == before
    assert f.captures == 0
    assert (x + 1).tolist() == [2.0, 2.0]  # the session is as it was


def test_values_of_captured_tensors_cannot_be_read_either(session):
    x = session.asarray(np.ones(4))
    assert [x[0].item(), x[1].item()] == [1.0, 1.0]  # pieces of it are remembered now
    piece = x[2]
    for ask in (x.numpy, piece.item, x.wait, x.residency, lambda: 1 if piece else 2):
        f = session.routine(ask)
        with pytest.raises(td.CaptureError, match="while a routine is captured") as caught:
            f()
        assert "test_symbolic.py" in (caught.value.location or "")


def test_a_symbolic_tensor_has_all_that_needs_no_value(session):
    seen: list[Any] = []

    @session.routine
    def f(x):
        seen.extend([x.shape, x.dtype, x.ndim, x.size, x.nbytes, x.device, len(x), np.shape(x), np.ndim(x)])
        seen.extend([isinstance(x, Tensor), x.__array_namespace__() is session.xp, x.__dlpack_device__()])
        seen.append(repr(x))
        rows = [row * 2 for row in x]
        inner = x + 1
        inner.release()
        return rows, x.copy(), copy.copy(x), copy.deepcopy(x), hash(x) == hash(x), x._repr_html_()

    x = session.asarray(np.ones((2, 3), np.float32))
    found = f(x)
    assert seen[:9] == [(2, 3), np.float32, 2, 6, 24, "cpu:0", 2, (2, 3), 2]
    assert seen[9:] == [True, True, (1, 0), "<tensor of a capture, float32[2, 3] on cpu:0>"]
    assert [row.tolist() for row in found[0]] == [[2.0] * 3] * 2
    assert all(each.tolist() == [[1.0] * 3] * 2 and each is not x for each in found[1:4])
    with pytest.raises(TypeError, match="cannot be pickled"):
        session.routine(lambda x: x.__reduce__())(x)
    with pytest.raises(TypeError, match="not an array"):
        session.routine(lambda x: np.asarray([x, x]))(x)


def test_operands_keep_their_order_whichever_is_symbolic(sim_session):
    """The result lives where the first operand does."""
    s = sim_session
    here, operators = (
        s.asarray([1.0, 2.0]),
        [operator.gt, operator.ge, operator.lt, operator.le, operator.eq, operator.ne],
    )
    operators += [
        operator.add,
        operator.sub,
        operator.mul,
        operator.truediv,
        operator.floordiv,
        operator.mod,
        operator.pow,
    ]

    def f(there):
        return [op(*pair) for op in operators for pair in ((here, there), (there, here), (2.0, there), (there, 2.0))]

    there = s.asarray([2.0, 1.0], "sim:0")
    eager, captured = f(there), s.routine(f)(there)
    assert [each.device for each in captured] == [each.device for each in eager]
    assert [each.tolist() for each in captured] == [each.tolist() for each in eager]
    steps = [step.op for step in s.routine(f).program(there).steps]
    assert steps[:2] == ["greater", "greater"]


def test_symbolic_tensors_index_and_are_indexed(session):
    table, indices, mask = (session.asarray(each) for each in (np.arange(9.0), np.array([2, 0]), np.arange(9) > 6))

    def f(x, i, m):
        x[i] = x[i] * 2 + table[i]
        x[0:1] = i[0:1].astype("float64")
        x[m] = 0.0
        return x[i], x[m], table[i], x[indices], x[mask], table[m].sum()

    found = []
    for called in (f, session.routine(f)):
        x, i, m = (session.asarray(each) for each in (np.arange(9.0), np.array([1, 3]), np.arange(9) < 2))
        found.append([[each.tolist() for each in called(x, i, m)], x.tolist()])
    assert found[0] == found[1]


def test_a_symbolic_tensor_that_escapes_is_dead_and_says_so(session):
    kept: list[Any] = []

    @session.routine
    def f(x):
        kept.extend([x, x + 1])
        return x * 2

    x = session.asarray(np.ones(2))
    f(x)
    uses = [
        lambda each: each + 1,
        lambda each: 1 - each,
        lambda each: x + each,
        x.__iadd__,
        operator.neg,
        lambda each: each.shape,
        lambda each: each[0],
        lambda each: x[each],
        lambda each: each.numpy(),
        lambda each: each.to_device("cpu:0"),
        lambda each: each.release(),
        session.xp.sin,
        lambda each: session.call("add", [x, x], out=[each]),
        lambda each: session.fetch([each]),
        lambda each: session.publish("x", each),
        session.print,
        lambda each: session.effect(print, each),
        f,
    ]
    for each in kept:
        assert repr(each) == "<tensor of a capture that has ended>"
        for use in uses:
            with pytest.raises(td.CaptureError, match="has ended") as caught:
                use(each)
            assert "test_symbolic.py" in (caught.value.location or "")
    assert x.tolist() == [1.0, 1.0]


def test_a_symbolic_tensor_of_another_threads_capture_is_refused(session):
    x = session.asarray(np.ones(2))
    found: list[Any] = []

    def use(symbol: Any) -> None:
        for attempt in (lambda: symbol + 1, lambda: x + symbol, lambda: x[symbol], lambda: session.print(symbol)):
            try:
                found.append(attempt())
            except td.CaptureError as error:
                found.append("another thread" in str(error))

    def f(y):
        thread = threading.Thread(target=use, args=(y,))
        thread.start()
        thread.join()
        return y + 1

    assert session.routine(f, constants=["thread.start"])(x).tolist() == [2.0, 2.0]
    assert found == [True] * 4


def test_every_method_of_a_tensor_has_been_judged():
    """A new method of tensors that needs a value has to say so in a capture."""
    known = {name for name in vars(Tensor) if not name.startswith("_") or name.startswith("__")}
    needs_no_value = {
        *(
            "shape",
            "dtype",
            "ndim",
            "size",
            "nbytes",
            "device",
            "to_device",
            "to_global",
            "copy",
            "__copy__",
            "__deepcopy__",
        ),
        *("__getitem__", "__setitem__", "__len__", "__iter__", "__hash__", "__dir__", "__reduce__", "__del__"),
        *("__array__", "__array_ufunc__", "__array_function__", "__array_namespace__", "__dlpack_device__"),
        *("__init__", "__doc__", "__module__", "__slots__", "__weakref__", "__annotations__", "__repr__"),
        *("__firstlineno__", "__static_attributes__", "_repr_html_"),
    }
    operators = {name for name in known if name.strip("_").removeprefix("r").removeprefix("i") in OPERATORS}
    absent = {name for name in known if type(vars(Tensor)[name]).__name__ == "Absent"}
    judged = needs_no_value | operators | absent | set(REFUSED) | {"error", "release"}
    assert known - judged - {name for name in known if name.strip("_") in OPERATORS} == set()
    assert set(REFUSED) <= set(vars(SymbolicTensor))


OPERATORS = {
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"),
    *("lt", "le", "eq", "ne", "gt", "ge", "neg", "pos", "abs", "invert", "shift"),
}


def test_generators_and_coroutines_are_no_routines(session):
    async def coroutine(x):
        return x

    def generator(x):
        yield x

    async def both(x):
        yield x

    for function in (coroutine, generator, both):
        with pytest.raises(td.MetadataError, match="plain function") as caught:
            session.routine(function)
        assert isinstance(caught.value, TypeError)
        assert "test_symbolic.py" in (caught.value.location or "")
        with pytest.raises(td.MetadataError, match="plain function"):
            td.routine(function)
    with pytest.raises(td.MetadataError, match="made from a function, not from int"):
        session.routine(3)


def test_arrays_are_no_arguments(session):
    f = session.routine(lambda x: x)
    for given in (np.ones(3), [np.ones(3)], {"a": np.ones(3)}):
        with pytest.raises(td.MetadataError, match=r"session\.asarray") as caught:
            f(given)
        assert "test_symbolic.py" in (caught.value.location or "")


def test_a_tensor_whose_shape_is_not_known_yet_has_to_be_waited_for(session):
    x = session.asarray(np.arange(4.0))
    f = session.routine(lambda y: y + 1)
    pending = x[x > 1]
    with pytest.raises(td.MetadataError, match=r"the argument y .* wait for it first") as caught:
        f(pending)
    assert "test_symbolic.py" in (caught.value.location or "")
    assert f(pending.wait()).tolist() == [3.0, 4.0]
    outer = x[x > 2]
    with pytest.raises(td.MetadataError, match=r"the tensor outer .* wait for it first"):
        session.routine(lambda y: y + outer)(x)


def test_released_tensors_are_refused(session):
    x = session.asarray(np.ones(2))
    f = session.routine(lambda y: y + 1)
    f(x)
    x.release()
    with pytest.raises(td.ProtocolError, match="was released"):
        f(x)
    w, y = session.asarray(np.ones(2)), session.asarray(np.ones(2))
    g = session.routine(lambda y: y + w)
    g(y)
    w.release()
    with pytest.raises(td.ProtocolError, match="was released") as caught:
        g(y)
    assert "lambda" in (caught.value.location or "")


def test_the_functions_own_error_is_raised_as_it_is_and_nothing_was_issued(session):
    class OwnError(Exception):
        pass

    raised = OwnError("mine")
    x = session.asarray(np.ones(2))

    @session.routine
    def f(y):
        y += 1
        session.print("never", y)
        raise raised

    before = session.stats()["instructions"]
    with pytest.raises(OwnError) as caught:
        f(x)
    assert caught.value is raised
    assert session.stats()["instructions"] == before
    assert x.tolist() == [1.0, 1.0]
    assert f.captures == 0


def test_errors_of_ops_are_those_of_the_eager_call(session):
    def f(x):
        return x @ x

    x = session.asarray(np.ones((2, 3)))
    found = []
    for called in (f, session.routine(f)):
        with pytest.raises(td.MetadataError) as caught:
            called(x)
        found.append((str(caught.value), type(caught.value), caught.value.op))
    assert found[0] == found[1]


def test_changes_of_an_arguments_containers_are_refused(session):
    def rebind(params, n):
        params["w"] = params["w"] * n

    def append(params, n):
        params["list"].append(n)

    x = session.asarray(np.ones(2))
    for function, name in ((rebind, "params"), (append, r"params\.list")):
        params = {"w": x, "list": [1]}
        with pytest.raises(td.CaptureError, match=rf"argument {name}, .* in place") as caught:
            session.routine(function)(params, 2)
        assert "test_symbolic.py" in (caught.value.location or "")
        assert params == {"w": x, "list": [1]}


def test_the_tracebacks_of_errors_end_at_the_users_lines(session: Session):
    f = session.routine(lambda x: x.numpy() + 1)
    with pytest.raises(td.CaptureError) as caught:
        f(session.asarray([1.0]))
    assert {str(entry.path) for entry in caught.traceback} == {__file__}
