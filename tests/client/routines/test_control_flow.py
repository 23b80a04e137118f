"""Control flow: `cond`, `case`, `while_loop`, `repeat`, in routines and outside."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.routines import control_flow
from tensord.interpreter.errors import KernelIndexError

from ...each_case import each_case
from .compared import compared


def test_a_while_from_minus_nine_prints_up_to_minus_one(session, capsys):
    def body(x):
        x = x + 2
        session.print(x)
        return x

    x = session.asarray(-9)
    assert session.while_loop(lambda x: x < 0, body, x).item() == 1
    session.sync()
    session.check_chain()
    assert capsys.readouterr().out.split() == ["-7", "-5", "-3", "-1", "1"]
    assert x.item() == -9


def test_case_gives_six_and_ten(session):
    branches = [lambda x, y: x + y, lambda x, y: x * y]
    x, y = session.asarray(2), session.asarray(4)
    assert session.case(session.asarray(0), branches, x, y).item() == 6
    assert session.case(session.asarray(1), branches, x, session.asarray(5)).item() == 10


@each_case("truth", [True, False, 1.5, 0.0, -1, 0, np.nan])
def test_cond_decides_as_python_does(session, truth):
    p = session.asarray(truth)
    found = session.cond(p, lambda x: {"a": x + 1, "b": None}, lambda x: {"a": x - 1, "b": None}, session.asarray(1.0))
    assert found["b"] is None
    assert found["a"].item() == (2.0 if truth else 0.0)


def test_what_python_knows_is_decided_at_once(session):
    x = session.asarray(1.0)
    assert session.cond(True, lambda x: x, lambda x: -x, x) is x
    assert session.case(1, [lambda: 1, lambda: 2]) == 2
    with pytest.raises(IndexError, match="out of range for 2 functions"):
        session.case(2, [lambda: 1, lambda: 2])


def test_results_are_new_tensors(session):
    x = session.asarray([1.0])
    same = session.cond(session.asarray(True), lambda x: x, lambda x: x * 1, x)
    twice = session.cond(session.asarray(True), lambda x: (x, x), lambda x: (x, x), x)
    none = session.repeat(0, lambda x: x + 1, x)
    same += 1
    first, second = twice
    first += 2
    none += 3
    assert [each.tolist() for each in (x, same, first, second, none)] == [[1.0], [2.0], [3.0], [1.0], [4.0]]


def test_functions_write_what_is_outside_and_a_loop_its_own_state(session):
    w, x = session.asarray([0.0, 0.0]), session.asarray([1.0, 2.0])

    def add(x):
        nonlocal w
        w += x
        x *= 2
        return x

    session.cond(session.asarray(True), add, lambda x: x * 1, x)
    assert (w.tolist(), x.tolist()) == ([1.0, 2.0], [2.0, 4.0])
    assert session.repeat(3, add, x).tolist() == [16.0, 32.0]
    assert (w.tolist(), x.tolist()) == ([15.0, 30.0], [2.0, 4.0])


def solve(session: Any, a: Any, b: Any, rounds: int) -> Any:
    """Conjugate gradients, one message."""

    def goes_on(_x, r, _p):
        return (r * r).sum() > 1e-20

    def body(x, r, p):
        q = a @ p
        rr = (r * r).sum()
        alpha = rr / (p * q).sum()
        x = x + alpha * p
        r = r - alpha * q
        return x, r, r + ((r * r).sum() / rr) * p

    return session.while_loop(goes_on, body, b * 0, b, b, max_iterations=rounds)[0]


def test_a_conjugate_gradient_solve_in_one_message(session):
    rng = np.random.default_rng(5)
    m = rng.normal(size=(12, 12))
    a, b = m @ m.T + 12 * np.eye(12), rng.normal(size=12)
    x = solve(session, session.asarray(a), session.asarray(b), 100).numpy()
    assert np.allclose(a @ x, b)
    step = session.routine(lambda a, b: solve(session, a, b, 100))
    assert np.array_equal(step(session.asarray(a), session.asarray(b)).numpy(), x)


def test_a_routine_with_control_flow_does_what_its_function_does(session):
    xp = session.xp

    def f(x, n, rate):
        def inner(y):
            return y * rate + session.random.uniform((3,))

        def step(x, y):
            y = session.repeat(2, inner, y)
            big = x.sum() > 3.0
            return session.cond(big, lambda: (x - rate, y + x), lambda: (x + rate * 2, y))

        x, y = session.repeat(n, step, x, x)
        return session.case(xp.argmax(y), [lambda y: y, lambda y: -y, lambda y: y * 0], y), x, session.random.normal()

    given = [(np.arange(3.0), n, rate) for n in (0, 1, 4) for rate in (0.5, -1.0)]
    assert compared(session, f, *given, draws=4).captures == 1


def test_draws_differ_from_round_to_round(session):
    session.random.seed(1)

    def body(total, low, high):
        drawn = session.random.uniform((4,)).min()
        return total + 1, session.xp.minimum(low, drawn), session.xp.maximum(high, drawn)

    zero = session.asarray(0.0)
    _, low, high = session.repeat(50, body, zero, zero + 1, zero)
    assert low.item() < 0.1 < high.item()
    after = session.random.uniform().item()
    session.random.seed(1)
    session.random.uniform()
    assert session.random.uniform().item() == after  # the loop has taken one call


def test_an_error_in_a_test_runs_no_branch_and_reaches_what_depends_on_it(session):
    w = session.asarray([1.0])
    seen: list[Any] = []
    bad = session.xp.linalg.inv(session.asarray([[0.0]]))[0, 0]

    def write(x):
        nonlocal w
        w += 1
        session.effect(seen.append, x)
        return x + 1

    found = session.cond(bad > 0, write, lambda x: x - 1, session.asarray(1.0))
    fine = session.asarray(1.0) + 1
    for each in (found, w):
        with pytest.raises(td.KernelError, match="inv"):
            each.numpy()
    assert fine.item() == 2.0
    session.check_chain()
    assert seen == []


def test_an_index_without_a_function_is_an_error_of_the_results(session):
    found = session.case(session.asarray(7), [lambda: session.asarray(1.0)])
    with pytest.raises(KernelIndexError, match="the index 7 is out of range for 1 blocks") as caught:
        found.numpy()
    assert "test_control_flow.py" in (caught.value.location or "")


def test_a_loop_has_a_bound(session):
    x = session.asarray(1.0)
    assert session.while_loop(lambda x: x < 4, lambda x: x + 1, x, max_iterations=3).item() == 4.0
    with pytest.raises(td.KernelError, match="still true after max_iterations=2"):
        session.while_loop(lambda x: x < 4, lambda x: x + 1, x, max_iterations=2).numpy()


def test_an_error_in_a_body_ends_the_loop(session):
    xp = session.xp

    def body(x, m):
        return x + 1, xp.linalg.inv(m - xp.eye(2) * (x == 2.0).astype("float64"))

    x, m = session.while_loop(lambda x, m: (x < 9) & (m.sum() < 1e9), body, session.asarray(0.0), xp.eye(2))
    with pytest.raises(td.KernelError, match="inv"):
        x.numpy()
    with pytest.raises(td.KernelError, match="inv"):
        m.numpy()


WRONG: list[tuple[Any, type[Exception], str]] = [
    (lambda s, x: s.cond(x, lambda: x, lambda: x), td.MetadataError, "without dimensions"),
    (lambda s, x: s.cond(x[0], lambda: x, x.sum), td.MetadataError, "needs the same shapes"),
    (lambda s, x: s.cond(x[0], lambda: (x,), lambda: [x]), td.MetadataError, "containers that differ"),
    (lambda s, x: s.cond(x[0], lambda: 1, lambda: 2), td.CaptureError, "not int: make a tensor"),
    (lambda s, x: s.cond(x[0], 1, lambda: x), TypeError, "takes functions"),
    (lambda s, x: s.case(x[0], [lambda: x]), td.MetadataError, "of integers"),
    (lambda s, x: s.case(x[0].astype("int64"), []), td.MetadataError, "1 to 256 functions"),
    (lambda s, x: s.while_loop(lambda x: x, lambda x: x, x), td.MetadataError, "test of a while_loop"),
    (lambda s, x: s.while_loop(lambda x: x[0], lambda x: x[:1], x), td.MetadataError, "the state that the body takes"),
    (lambda s, x: s.while_loop(lambda x: x[0], lambda x: (x, x), x), td.MetadataError, "containers that differ"),
    (lambda s, _: s.while_loop(lambda x: x > 0, lambda x: x, 3), TypeError, "state is made of tensors"),
    (lambda s, x: s.while_loop(lambda x: x[0], lambda x: x, x, max_iterations=-1), TypeError, "max_iter"),
    (lambda s, x: s.repeat(1.5, lambda x: x, x), TypeError, "the count must be an int"),
    (lambda s, x: s.repeat(2, lambda x: x.item(), x), td.CaptureError, "no value"),
]


@each_case(("call", "kind", "match"), WRONG, ids=[f"{n}-{each[2]}" for n, each in enumerate(WRONG)])
@each_case("captured", [False, True])
def test_what_does_not_fit_is_an_error_at_the_callers_line(session, captured, call, kind, match):
    x = session.asarray([1.0, 2.0])
    function = session.routine(lambda x: call(session, x)) if captured else lambda x: call(session, x)
    with pytest.raises(kind, match=match) as caught:
        function(x)
    assert "test_control_flow.py" in (caught.value.location or "")
    assert (x + 1).tolist() == [2.0, 3.0]  # the session goes on


def test_a_tensor_of_a_block_is_dead_outside_of_it(session):
    kept: list[Any] = []
    x = session.asarray(1.0)

    def keep(x):
        kept.append(x)
        return x

    session.cond(x, keep, lambda x: x, x)
    with pytest.raises(td.CaptureError, match="has ended"):
        kept[0] + 1

    @session.routine
    def f(x):
        session.cond(x, keep, lambda x: x, x)
        return kept[-1] + 1

    with pytest.raises(td.CaptureError, match="has ended"):
        f(x)


def test_control_flow_is_no_part_of_an_atomic_block(session):
    x = session.asarray(1.0)
    with session.atomic(), pytest.raises(td.MetadataError, match="outside of the block"):
        session.cond(x, lambda x: x, lambda x: -x, x)
    assert session.cond(x, lambda x: x, lambda x: -x, x).item() == 1.0


def test_the_same_step_is_captured_once(session, monkeypatch):
    captures = []
    record = control_flow.record

    def counted(*given):
        captures.append(1)
        return record(*given)

    monkeypatch.setattr(control_flow, "record", counted)
    monkeypatch.setattr(control_flow, "MAX_ROUTINES", 8)
    x, offset = session.asarray(0.0), session.asarray(1.0)
    for _ in range(5):
        x = session.while_loop(lambda x: x < 10, lambda x: x + offset, x)
    assert (x.item(), len(captures)) == (10.0, 1)
    offset = session.asarray(5.0)  # another cell's content
    assert session.while_loop(lambda x: x < 10, lambda x: x + offset, session.asarray(0.0)).item() == 10.0
    for n in range(12):
        session.repeat(1, lambda x, n=n: x + n, x)
    assert len(session._core.flows._routines) == control_flow.MAX_ROUTINES


def test_programs_print_and_parse(session):
    f = session.routine(lambda x, n: session.repeat(n, lambda x: session.cond(x.sum(), lambda: x, lambda: -x), x))
    program = f.program(session.asarray([1.0, -3.0]), 3)
    again = td.Program.parse(str(program))
    assert (again, str(again)) == (program, str(program))
    linked = session.link(again)
    assert linked(session.asarray([1.0, -3.0]), n=1)[0].tolist() == [1.0, -3.0]
    with pytest.raises(TypeError):
        linked(session.asarray([1.0, -3.0]), n=1.5)


def test_a_large_int_that_a_block_does_not_take_is_refused_at_the_call(session):
    f = session.routine(lambda x, n: session.repeat(2, lambda x: x + n, x))
    x = session.asarray(np.zeros(2, np.int8))
    assert f(x, 3).tolist() == [6, 6]
    with pytest.raises(OverflowError):
        f(x, 1000)
    linked = session.link(f.program(x, 3))
    with pytest.raises(OverflowError):
        linked(x, n=1000)


@each_case("wrong", [5.0, True, -1, [5], np.array([5])])
def test_a_wrong_bound_is_an_error_of_its_own_call_alone(session, wrong):
    def loop(most):
        return session.while_loop(lambda x: x < 3, lambda x: x + 1, session.asarray(0), max_iterations=most).item()

    with pytest.raises(TypeError, match="max_iterations") as caught:
        loop(wrong)
    assert "test_control_flow.py" in str(caught.value)
    assert [loop(5), loop(np.int64(5)), loop(None)] == [3, 3, 3]


def test_a_bound_may_be_a_number_of_the_routine(session):
    f = session.routine(lambda x, n: session.while_loop(lambda x: x < 3, lambda x: x + 1, x, max_iterations=n))
    assert [f(session.asarray(0), n).item() for n in (3, 5, 3)] == [3, 3, 3]
    assert f.captures == 2


def test_numpys_integers_count(session):
    x = session.asarray(1)
    assert session.repeat(np.int64(3), lambda x: x * 2, x).item() == 8
    assert session.case(np.int32(1), [lambda: 1, lambda: 2]) == 2


def test_too_deep_is_an_error_at_the_line(session):
    def deeper(x, n):
        return x if n == 0 else session.repeat(1, lambda y: deeper(y + 1, n - 1), x)

    with pytest.raises(td.QuotaError, match="16 levels") as caught:
        deeper(session.asarray(0), 20)
    assert "test_control_flow.py" in (caught.value.location or "")
