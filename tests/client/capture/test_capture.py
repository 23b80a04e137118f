"""Captures record random numbers, prints, side effects and handlers besides ops on arguments; and runs repeat them."""

from __future__ import annotations

import gc
import io
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.handlers import DEFAULT_HANDLER, DeviceHandler, FallbackHandler, LoggingHandler
from tensord.interpreter.programs.builder import Builder

from ..routines.compared import compared


def test_a_run_draws_what_the_function_would_draw(session):
    random = session.random

    def f(x, n):
        noise = random.normal((2, 2), dtype="float32")
        kept = random.bernoulli(0.5, (3,))
        return x + random.uniform((3,), low=-1.0), noise, kept, random.permutation(x), random.integers(9), n + 1

    routine = compared(session, f, *[(np.arange(3.0), n) for n in range(3)], draws=7)
    assert routine.captures == 1


def test_draws_outside_and_inside_share_their_numbers(session):
    f = session.routine(lambda: (session.random.uniform(), session.random.uniform()))
    found = []
    for called in (f.__wrapped__, f):
        session.random.seed(5)
        found.append([session.random.uniform().item(), *(each.item() for _ in range(2) for each in called())])
        found[-1].append(session.random.uniform().item())
    assert found[0] == found[1]


def test_a_capture_that_fails_draws_nothing(session):
    f = session.routine(lambda: session.random.uniform().item())
    session.random.seed(5)
    first = session.random.uniform().item()
    session.random.seed(5)
    with pytest.raises(td.CaptureError):
        f()
    assert session.random.uniform().item() == first


def test_seeds_given_as_numbers_are_computed_by_each_run(session):
    def f(seed, x):
        return session.random.uniform((2,), seed=seed), session.random.permutation(x, seed=seed + 1)

    assert compared(session, f, *[(seed, np.arange(4.0)) for seed in (1, 2, 2**40)]).captures == 1
    with pytest.raises(td.MetadataError, match="seed"):
        session.routine(f)(-1, session.asarray([1.0]))


def test_dropout_draws_anew_with_each_seed(session):
    def f(x, seed):
        return session.nn.dropout(x, seed, rate=0.5)

    assert compared(session, f, (np.ones(20), 1), (np.ones(20), 2)).captures == 1


def test_prints_and_effects_happen_at_every_run_in_order(session, capsys):
    seen: list[Any] = []

    def f(x, n, text):
        session.print(text, x, "and", x + 1, sep="|")
        session.effect(lambda value: seen.append(value.tolist()), x)
        x += n
        session.print("after", x)
        session.effect(lambda one, other: seen.append((one.item(), other.item())), x[0], x[1])
        return x

    printed = []
    for called in (f, session.routine(f)):
        seen.append("called")
        x = session.asarray([1.0, 2.0])
        for n in (1, 2):
            called(x, n, "before")
        session.check_chain()
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].startswith("before|[1. 2.]|and|[2. 3.]\nafter [2. 3.]\n")
    half = len(seen) // 2
    assert seen[:half] == seen[half:]


def test_effects_on_chains_of_their_own(session):
    seen: list[Any] = []
    chain = session.chain()

    @session.routine
    def f(x):
        session.effect(lambda value: seen.append(value.item()), x, chain=chain)
        session.print(x, chain=chain)
        return x

    x = session.asarray(1.0)
    f(x)
    f(x)
    session.check_chain(chain)
    assert seen == [1.0, 1.0]
    with pytest.raises(td.ProtocolError, match="not a chain"):
        session.routine(lambda: session.print("x", chain=12345))()


def test_a_routine_has_few_functions_of_side_effects(session):
    x = session.asarray(1.0)
    seen: list[Any] = []

    def note(value: Any) -> None:
        seen.append(value.item())

    f = session.routine(lambda x: [session.effect(note, x) for _ in range(100)])
    f(x)
    session.check_chain()
    assert seen == [1.0] * 100
    with pytest.raises(td.CaptureError, match="at most 64 functions of side effects") as caught:
        session.routine(lambda x: [session.effect(lambda _, n=n: n, x) for n in range(100)])(x)
    assert "test_capture.py" in (caught.value.location or "")


def test_an_effect_that_fails_stops_its_chain(session):
    seen: list[Any] = []

    def fail(_: Any) -> None:
        raise ValueError("no")

    @session.routine
    def f(x):
        session.effect(fail, x)
        session.effect(lambda _: seen.append("behind"), x)
        return x + 1

    assert f(session.asarray(1.0)).item() == 2.0
    with pytest.raises(td.KernelError, match="no"):
        session.check_chain()
    assert seen == []
    with pytest.raises(td.MetadataError, match="a callback must be a function"):
        session.routine(lambda: session.effect(3))()


def test_a_printed_number_is_a_value(session, capsys):
    f = session.routine(lambda x, n: session.print("n is", n, x))
    x = session.asarray(1.0)
    for n in (1, 1, 2):
        f(x, n)
    session.check_chain()
    assert capsys.readouterr().out == "n is 1 1.0\nn is 1 1.0\nn is 2 1.0\n"
    assert f.captures == 2


def test_handlers_act_at_the_capture_and_another_one_means_another_capture(session):
    passed: list[str] = []

    def doubling(invocation):
        passed.append(invocation.op.name)
        (result,) = DEFAULT_HANDLER(invocation)
        return [result * 2] if invocation.op.name == "add" else [result]

    f = session.routine(lambda x: x + 1)
    x = session.asarray(1.0)
    assert f(x).item() == 2.0
    session.handler = doubling
    expected = (x + 1).item()
    passed.clear()
    assert [f(x).item(), f(x).item()] == [expected, expected]
    assert passed == ["add", "multiply"]
    session.handler = DEFAULT_HANDLER
    assert f(x).item() == 2.0
    assert f.captures == 2
    assert x.sum().item() == 1.0


def test_a_logging_handler_logs_the_capture(session):
    log = io.StringIO()
    session.handler = LoggingHandler(DEFAULT_HANDLER, log)
    f = session.routine(lambda x, lr: (x * lr).sum())
    x = session.asarray([1.0, 2.0])
    assert [f(x, lr).item() for lr in (1.0, 2.0)] == [3.0, 6.0]
    lines = log.getvalue().splitlines()
    assert [line.split("(")[0] for line in lines if "->" not in line] == ["[1] multiply", "[2] sum"]
    assert f.captures == 1


def test_handlers_that_place_ops_and_devices_that_lack_them(make_session):
    s = make_session(devices=["cpu:0", {"name": "sim:0", "missing": ["tanh", "softmax"]}])

    def f(x):
        return s.xp.tanh(x) + s.nn.softmax(x), x * 2

    for handler in (DEFAULT_HANDLER, FallbackHandler(DeviceHandler()), DeviceHandler("cpu:0")):
        s.handler = handler
        found = []
        for called in (f, s.routine(f)):
            x = s.asarray([1.0, 2.0], "sim:0")
            found.append([(each.tolist(), each.device) for _ in range(2) for each in called(x)])
        assert found[0] == found[1]
    s.handler = DeviceHandler()
    with pytest.raises(td.MetadataError, match="has no kernel on sim:0"):
        s.routine(f)(s.asarray([1.0], "sim:0"))


def test_spans_are_allowed(session):
    def f(x):
        with session.span("inside"):
            return x + 1

    assert session.routine(f)(session.asarray(1.0)).item() == 2.0


def test_a_routine_keeps_what_it_captures_and_gives_it_up(session):
    w = session.asarray([1.0])
    f = session.routine(lambda x: x + w)
    f(session.asarray([1.0]))
    kept = weakref.ref(w)
    entry = next(iter(f._entries._all()))
    assert entry.linked.captured[0] is w
    w = entry = f = None
    gc.collect()
    assert kept() is None


def test_an_argument_is_not_kept(session):
    f = session.routine(lambda x, box: x + len(box.items))

    class Box:
        items = (1, 2)

    x, box = session.asarray([1.0]), Box()
    f(x, box)
    gone = [weakref.ref(x), weakref.ref(box)]
    del x, box
    gc.collect()
    assert [each() for each in gone] == [None, None]


def test_failures_inside_have_their_own_lines(session):
    def f(x):
        bad = session.xp.linalg.inv(x)
        return bad + 1, x + 1

    found = []
    for called in (f, session.routine(f)):
        for _ in range(2):
            bad, good = called(session.asarray(np.zeros((2, 2))))
            with pytest.raises(td.KernelError) as caught:
                bad.numpy()
            found.append((caught.value.op, caught.value.location, type(caught.value), good.tolist()))
    assert found == [found[0]] * 4


def test_results_of_pending_shape_can_be_waited_for(session):
    f = session.routine(lambda x: x[x > 1])
    for _ in range(2):
        found = f(session.asarray([1.0, 2.0, 3.0]))
        assert found.shape == (2,)
        assert found.tolist() == [2.0, 3.0]


def test_what_a_signal_handler_does_meanwhile_is_recorded(session):
    """The handler runs on the capture's thread, inside of the function, and cannot be told from the function's code."""
    noted: list[Any] = []

    class Notes:
        def __init__(self, x):
            self.x = x

        def __del__(self):
            noted.append(self.x + 1)

    @session.routine
    def f(x):
        note = Notes(x)
        del note
        return x * 2

    x = session.asarray(1.0)
    assert f(x).item() == 2.0
    assert len(f.program(x).steps) == 2
    with pytest.raises(td.CaptureError, match="has ended"):
        noted[0].item()


def test_a_routine_has_many_steps_but_not_any_number_of_them(session, monkeypatch):
    @session.routine
    def f(x):
        for _ in range(300):
            x = x + 1
        return x

    assert [f(session.asarray(float(n))).item() for n in range(2)] == [300.0, 301.0]
    monkeypatch.setattr("tensord.client.capture.capture.Builder", partial(Builder, limit=50))
    with pytest.raises(td.QuotaError, match="at most 50 steps") as caught:
        session.routine(lambda x: [x + 1 for _ in range(51)])(session.asarray(0.0))
    assert "test_capture.py" in (caught.value.location or "")
