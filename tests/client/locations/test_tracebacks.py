"""Tracebacks end at the user's line, at every public entry; faults of the package itself stay visible."""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import signal
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import tensord as td
from tensord.client.locations.tracebacks import too_many
from tensord.client.sharing import names as names_module
from tensord.client.tensor.tensor import Tensor

from ...each_case import each_case
from ...puppet import eventually
from ..public_entries import entries, names_for, program

TESTS = str(Path(__file__).parents[2])
JOB = "/home/me/job.py"


def entries_of(error):
    """File and line of each entry of an error's traceback, without the tests' own."""
    found = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    return [entry for entry in found if not entry[0].startswith(TESTS)]


def run(text, names):
    """Run a program as if it were a file."""
    exec(compile(text, JOB, "exec"), names)  # noqa: S102


CALLS = {
    "item of many": "x.item()",
    "truth of many": "if x: pass",
    "number of many": "int(x)",
    "number of NaN": "int(s.asarray(float('nan')))",
    "number of a complex one": "float(s.asarray(1j))",
    "index that is none": "[1, 2][one]",
    "wrong format": "f'{one:nonsense}'",
    "format of many": "f'{x:d}'",
    "length of a number": "len(one)",
    "rows of a number": "list(one)",
    "index of the wrong kind": "x['a']",
    "index of floats": "x[1.5]",
    "fetch of one": "s.fetch(3)",
    "execute": "s.execute(3)",
    "supports": "s.supports('add', 'cpu:0')",
    "a handler that cannot be called": "s.handler = 3",
    "no array": "np.asarray(x)",
    "no function of NumPy's": "np.sin(x)",
    "no other function of NumPy's": "np.concatenate([x, x])",
    "pickling": "x.__reduce__()",
    "pickling functions": "s.nn.__reduce__()",
    "no such name": "s.xp.concatenate",
    "no such name in an extension": "s.xp.linalg.nope",
    "no such method": "x.flatten()",
    "no dlpack": "s.xp.from_dlpack(3)",
    "dlpack on another device": "x.__dlpack__(dl_device=(2, 0))",
    "devices": "td.connect('local', devices=3)",
    "options of devices": "td.connect('local', devices=[{'name': 'cpu:0', 'nope': 1}])",
    "nobody there": "td.connect('ipc:///nowhere/at/all')",
    "keys": "td.connect('tcp://localhost:1', keys=3)",
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
    """The names in the programs."""
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
        "one": session.asarray(1.0),
    }


@each_case("text", CALLS.values(), ids=CALLS)
def test_the_last_entry_is_the_users_line(names, text):
    with pytest.raises((td.TensordError, TypeError, AttributeError)) as caught:
        run(f"def work():\n    global x\n    {text}\nwork()", names)
    assert entries_of(caught.value) == [(JOB, 4), (JOB, 3)]
    error = caught.value
    if isinstance(error, td.TensordError) and not isinstance(error, td.KernelError):
        assert (error.location or "").endswith("job.py:3 in work")


def test_at_every_public_entry(make_session):
    """Entries of a closed session, so that each one that can fail does."""
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


SENSELESS = (
    "object()",
    "x, object()",
    "x, 'nonsense'",
    "x, 10**30",
    "(9, x)",
    "x, [object()]",
    "one, -70",
    "x, axis={}",
)


@each_case("arguments", SENSELESS)
def test_errors_of_senseless_arguments_end_at_the_users_line(session, arguments):
    """At every public entry, for errors of every kind."""
    names, errors = names_for(session), {}
    for entry in entries(session):
        if entry.name in {"print", "cancel", "restart"} or entry.function.startswith("attrgetter"):
            continue
        try:
            run(f"{entry.function}({arguments})", dict(names))
        except Exception as error:
            errors[entry.name] = entries_of(error)
    assert len(errors) > 200
    assert errors == {name: [(JOB, 1)] for name in errors}


def test_all_of_it_if_that_is_wanted(names, monkeypatch):
    monkeypatch.setenv("TENSORD_TRACEBACK", "full")
    with pytest.raises(td.MetadataError) as caught:
        run("x @ x", names)
    files = [file for file, _ in entries_of(caught.value)]
    assert files[0] == JOB
    assert any(file.endswith("client/calls/calls.py") for file in files)


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


def test_an_interrupt_of_a_wait_ends_at_the_users_line(make_session, machine_of):
    session = make_session(devices=["cpu:0", "sim:0"])
    x = session.asarray(np.ones(3), "sim:0").wait()
    machine = machine_of(session)

    def interrupt():
        eventually(lambda: machine.waiting.leader)
        os.kill(os.getpid(), signal.SIGINT)

    machine.devices["sim:0"].hold("compute")
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    other = threading.Thread(target=interrupt)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            run("(x + 1).numpy()", {"x": x})
    finally:
        other.join()
        signal.signal(signal.SIGINT, before)
        machine.devices["sim:0"].resume("compute")
    assert entries_of(caught.value) == [(JOB, 1)]


def test_faults_of_the_package_are_shown_whole(names, monkeypatch):
    def fault(*_):
        raise AttributeError("a fault")

    monkeypatch.setattr(names_module.Names, "listing", fault)
    with pytest.raises(AttributeError) as caught:
        run("s.names()", names)
    files = [frame.filename for frame in traceback.extract_tb(caught.value.__traceback__)]
    inside = files[files.index(JOB) + 1 :]
    assert inside[0].endswith("client/session/names.py")
    assert len(inside) > 2


def test_what_is_public_keeps_its_name_and_signature(session):
    for function in (Tensor.sum, Tensor.numpy, Tensor.__getitem__, type(session).fetch, session.xp.sum, session.xp.add):
        assert function.__doc__
        assert "args" not in inspect.signature(function).parameters
    assert (Tensor.shape.__doc__ or "").startswith("The shape")
    assert (
        repr(inspect.signature(Tensor.sum))
        == "<Signature (self, axis: 'Axes' = None, *, keepdims: 'bool' = False) -> 'Tensor'>"
    )


WRONG = {
    "s.xp.add(x, x, x)": "add() takes 2 positional arguments, not 3",
    "s.xp.special.erf(x, x)": "erf() takes 1 positional argument, not 2",
    "s.xp.exp()": "exp() missing 1 required positional argument: 'x'",
    "s.call('add', [x, x], None, 'cpu:0')": "call() takes 1 to 3 positional arguments, not 4",
    "s.xp.concat([x], 0, 1)": "concat() takes 1 positional argument, not 3",
    "s.xp.matmul(x, x, x)": "matmul() takes 2 positional arguments, not 3",
    "s.xp.matmul(x)": "matmul() missing 1 required positional argument: 'x2'",
    "x.sum(0, 1)": "sum() takes 0 to 1 positional arguments, not 2",
    "x.copy(3)": "copy() takes 0 positional arguments, not 1",
    "s.fetch()": "fetch() missing 1 required positional argument: 'tensors'",
    "s.xp.sum(x, foo=3)": "sum() got an unexpected keyword argument 'foo'",
}


@each_case("text", WRONG)
def test_wrong_arguments_are_counted_as_the_caller_counts_them(names, text):
    with pytest.raises(TypeError) as caught:
        run(text, names)
    assert message_of(caught.value) == WRONG[text]
    assert entries_of(caught.value) == [(JOB, 1)]


def message_of(error):
    """Its message, without the location that follows if it has one."""
    return getattr(error, "message", str(error))


def callables_of(session):
    """The public functions of a session, its namespaces and its tensors."""
    xp = session.xp
    owners = {"s": session, "xp": xp, "linalg": xp.linalg, "fft": xp.fft, "special": xp.special}
    owners |= {"nn": session.nn, "random": session.random, "x": session.asarray([[1.0]])}
    owners |= {"info": xp.__array_namespace_info__(), "td": td}
    for owner, one in owners.items():
        for name in dir(one):
            if not name.startswith("_") and inspect.isroutine(function := getattr(one, name)):
                yield f"{owner}.{name}", function


def refusal(function, *args, **kwargs):
    """The text of its TypeError for these arguments."""
    with pytest.raises(TypeError) as caught:
        function(*args, **kwargs)
    return message_of(caught.value)


def test_every_public_function_counts_wrong_arguments_as_the_caller_does(session):
    found = dict(callables_of(session))
    assert len(found) > 250
    for label, function in found.items():
        name = label.partition(".")[2]
        parameters = inspect.signature(function).parameters.values()
        placed = [one for one in parameters if one.kind in {one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD}]
        needed = [one for one in placed if one.default is one.empty]
        if not any(one.kind is one.VAR_KEYWORD for one in parameters):
            assert f"{name}() got an unexpected keyword argument 'nonsense'" in refusal(
                function, *placed, nonsense=1
            ), label
        if needed:
            assert refusal(function).startswith(f"{name}() missing {len(needed)} required positional"), label
        if any(one.kind is one.VAR_POSITIONAL for one in parameters):
            continue
        said = refusal(function, *placed, 1)
        least, most = len(needed), len(placed)
        if label.startswith("td."):  # Python's own message, which counts as the caller does
            wanted = f"{most}" if least == most else f"from {least} to {most}"
            assert re.fullmatch(
                rf"{name}\(\) takes {wanted} positional arguments? but {most + 1} (was|were) given", said
            )
        else:
            assert said == too_many(name, least, most, most + 1), label


def test_a_type_error_from_inside_keeps_its_words(names):
    names["callback"] = lambda: None
    with pytest.raises(td.KernelError, match="takes 0 positional arguments but 1 was given"):
        run("s.effect(callback, x)\ns.check_chain()", names)
