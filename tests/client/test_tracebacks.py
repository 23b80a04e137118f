"""Tracebacks end at the user's line, at every public entry; faults of the package itself stay visible."""

from __future__ import annotations

import asyncio
import inspect
import traceback
from types import SimpleNamespace

import numpy as np
import pytest

import tensord as td
from tensord.client import names as names_module
from tensord.client.tensor import Tensor

from .public_entries import entries, names_for, program

JOB = "/home/me/job.py"


def entries_of(error):
    """File and line of each entry of an error's traceback, without the test's own."""
    found = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    return [entry for entry in found if entry[0] != __file__]


def run(text, names):
    """Run a program as if it were a file."""
    exec(compile(text, JOB, "exec"), names)  # noqa: S102


CALLS = {
    "operator": "x @ x",
    "operator with an array": "x + np.ones(2)",
    "reflected operator": "2.0 @ x",
    "unary operator": "~x",
    "in place": "x += np.ones(3)",
    "call": "s.call('nope', [x])",
    "xp": "s.xp.sum(x, axis=7)",
    "xp elementwise": "s.xp.add(x, 'a')",
    "linalg": "s.xp.linalg.inv(x)",
    "nn": "s.nn.conv2d(x, x)",
    "random": "s.random.normal('a')",
    "method": "x.sum(axis=5)",
    "index": "x[0, 0, 0]",
    "write": "x[9] = 1.0",
    "rows of a failed tensor": "for row in pending: pass",
    "shape of a failed tensor": "pending.shape",
    "fetch": "s.fetch([x, bad])",
    "numpy": "bad.numpy()",
    "item": "s.xp.sum(bad).item()",
    "float": "float(s.xp.sum(bad))",
    "wait": "bad.wait()",
    "to_device": "x.to_device('nowhere')",
    "asarray": "s.asarray(['a'])",
    "effect": "s.effect(3)",
    "check_chain": "s.check_chain(77)",
    "lookup": "s.lookup('nobody')",
    "span": "s.span(7)",
    "handler of another session": "other + x",
    "connect": "td.connect('nowhere:')",
    "wrong arguments": "x.sum(1, 2, 3)",
    "wrong names of arguments": "s.random.normal(3, foo=1)",
}


@pytest.fixture
def names(session, make_session):
    """What the programs name."""
    x = session.asarray(np.ones((2, 3)))
    bad = session.xp.linalg.inv(session.asarray(np.zeros((2, 2))))
    (pending,) = session.call("masked_select", [bad, bad > 0])
    return {
        "s": session,
        "x": x,
        "np": np,
        "td": td,
        "bad": bad,
        "pending": pending,
        "other": make_session().asarray(1.0),
    }


@pytest.mark.parametrize("text", CALLS.values(), ids=CALLS)
def test_the_last_entry_is_the_users_line(names, text):
    with pytest.raises((td.TensordError, TypeError)) as caught:
        run(f"def work():\n    global x\n    {text}\nwork()", names)
    assert entries_of(caught.value) == [(JOB, 4), (JOB, 3)]


def test_at_every_public_entry(make_session):
    """Of a closed session, so that each one fails that can."""
    session = make_session()
    names, listed = names_for(session), entries(session)
    errors: dict[str, list[tuple[str, int | None]]] = {}
    current: list[str] = []
    watch = SimpleNamespace(fail=lambda error: errors.setdefault(current[-1], entries_of(error)), begin=current.append)
    session.close()
    text, line = program(listed, "    ")
    run(f"def work():\n{text}\nwork()", names | {"watch": watch})
    assert len(errors) > 200
    assert errors == {name: [(JOB, line[name] + 1)] for name in errors}


def test_all_of_it_if_that_is_wanted(names, monkeypatch):
    monkeypatch.setenv("TENSORD_TRACEBACK", "full")
    with pytest.raises(td.MetadataError) as caught:
        run("x @ x", names)
    files = [file for file, _ in entries_of(caught.value)]
    assert files[0] == JOB
    assert any(file.endswith("client/calls.py") for file in files)


def test_the_cause_stays(names):
    with pytest.raises(td.KernelError) as caught:
        run("bad.numpy()", names)
    assert isinstance(caught.value.__cause__, np.linalg.LinAlgError)


def test_entries_of_the_users_own_handlers_and_callbacks_stay(names):
    def handler(_invocation):
        raise td.MetadataError("not today")

    names["s"].handler = handler
    with pytest.raises(td.MetadataError) as caught:
        run("x + x", names)
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames[-2:] == ["<module>", "handler"]


def test_awaiting_ends_at_the_users_line(names):
    run("async def main():\n    await bad", names)
    with pytest.raises(td.KernelError) as caught:
        asyncio.run(names["main"]())
    assert entries_of(caught.value)[-1] == (JOB, 2)


def test_a_timeout_ends_at_the_users_line(make_session, machine_of):
    session = make_session(devices=["cpu:0", "sim:0"])
    x = session.asarray(np.ones(3), "sim:0").wait()
    machine_of(session).devices["sim:0"].hold("compute")
    y = x + 1
    with pytest.raises(TimeoutError) as caught:
        run("y.wait(0.01)", {"y": y})
    machine_of(session).devices["sim:0"].resume("compute")
    assert entries_of(caught.value) == [(JOB, 1)]


def test_faults_of_the_package_are_shown_whole(names, monkeypatch):
    def fault(*_):
        raise AttributeError("a fault")

    monkeypatch.setattr(names_module.Names, "all", fault)
    with pytest.raises(AttributeError) as caught:
        run("s.names()", names)
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert files[-3] == JOB
    assert files[-2].endswith("client/session.py")


def test_what_is_public_keeps_its_name_and_signature(session):
    for function in (Tensor.sum, Tensor.numpy, Tensor.__getitem__, type(session).fetch, session.xp.sum, session.xp.add):
        assert function.__doc__
        assert "args" not in inspect.signature(function).parameters
    assert (Tensor.shape.__doc__ or "").startswith("Its shape")
    assert (
        repr(inspect.signature(Tensor.sum))
        == "<Signature (self, axis: 'Axes' = None, *, keepdims: 'bool' = False) -> 'Tensor'>"
    )


WRONG = {
    "s.xp.concat([x], 0, 1)": "concat() takes 1 positional argument, not 3",
    "s.xp.matmul(x, x, x)": "matmul() takes 2 positional arguments, not 3",
    "s.xp.matmul(x)": "matmul() missing 1 required positional argument: 'x2'",
    "x.sum(0, 1)": "sum() takes 0 to 1 positional arguments, not 2",
    "x.copy(3)": "copy() takes 0 positional arguments, not 1",
    "s.fetch()": "fetch() missing 1 required positional argument: 'tensors'",
    "s.xp.sum(x, foo=3)": "sum() got an unexpected keyword argument 'foo'",
}


@pytest.mark.parametrize("text", WRONG)
def test_wrong_arguments_are_counted_as_the_caller_counts_them(names, text):
    with pytest.raises(TypeError) as caught:
        run(text, names)
    assert str(caught.value) == WRONG[text]
    assert entries_of(caught.value) == [(JOB, 1)]


def test_a_type_error_from_inside_keeps_its_words(names):
    names["callback"] = lambda: None
    with pytest.raises(td.KernelError, match="takes 0 positional arguments but 1 was given"):
        run("s.effect(callback, x)\ns.check_chain()", names)
