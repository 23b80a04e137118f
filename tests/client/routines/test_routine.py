"""Routines: a run has the effects of the function, op by op."""

from __future__ import annotations

import functools
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import pytest

import tensord as td
from tensord.client.routines import entries
from tensord.client.tensor.tensor import Tensor

from ...each_case import each_case
from .compared import compared


def matrix(seed: int = 0, n: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, n))


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Layer:
    w: Any
    b: Any
    rate: float = 0.5


@dataclass(frozen=True)
class Model:
    first: Layer
    rest: list[Layer] = field(default_factory=list)


def test_a_training_step_is_captured_once_and_gives_the_same(session):
    def step(params, x, y, lr):
        hidden = session.xp.tanh(x @ params["w1"] + params["b1"])
        out = hidden @ params["w2"]
        error = out - y
        grad = {"w2": hidden.T @ error}
        back = (error @ params["w2"].T) * (1 - hidden * hidden)
        grad["w1"], grad["b1"] = x.T @ back, back.sum(axis=0)
        for name, g in grad.items():
            params[name] -= lr * g
        return (error**2).mean()

    params = {"w1": matrix(1), "b1": matrix(2)[0], "w2": matrix(3)}
    calls = [(params, matrix(4), matrix(5), lr) for lr in (0.1, 0.1, 0.05)]
    assert compared(session, step, *calls).captures == 1


def test_a_function_without_ops_returns_what_it_is_given(session):
    f = session.routine(lambda x, n: (x, n, "text", None))
    x = session.asarray([1.0])
    for n in (1, 2):
        found = f(x, n)
        assert found[0] is x
        assert found[1:] == (n, "text", None)


@each_case(
    "structure",
    [
        lambda a, b: {"a": a, "b": [b, (a, {"c": b})]},
        lambda a, b: [[a], [], [b, 3, 2.5]],
        lambda a, b: Pair(a, Pair(b, 1.5)),
        lambda a, b: Model(Layer(a, b), [Layer(b, a, 2.0)]),
        lambda a, b: (a, b, None, True, "relu", 1j),
    ],
)
def test_nested_arguments_and_results(session, structure):
    def double(value):
        if isinstance(value, Tensor):
            return value * 2
        if isinstance(value, dict):
            return {key: double(each) for key, each in value.items()}
        if isinstance(value, Pair):
            return Pair(*map(double, value))
        if isinstance(value, list | tuple):
            return type(value)(map(double, value))
        if isinstance(value, Layer):
            return Layer(double(value.w), double(value.b), value.rate * 2)
        if isinstance(value, Model):
            return Model(double(value.first), double(value.rest))
        return value

    calls = [(structure(matrix(1), matrix(2)),), (structure(matrix(3), matrix(4)),)]
    assert compared(session, double, *calls).captures == 1


def test_dicts_of_other_kinds_keep_their_kind(session):
    @session.routine
    def f(given):
        return OrderedDict((key, value + 1) for key, value in given.items()), defaultdict(list, x=given["x"])

    for _ in range(2):
        ordered, default = f(OrderedDict(x=session.asarray([1.0])))
        assert type(ordered) is OrderedDict
        assert ordered["x"].tolist() == [2.0]
        assert default["nothing"] == []


def test_a_slice_is_an_argument(session):
    routine = compared(session, lambda x, part: x[part] + 1, (matrix(), slice(0, 2)), (matrix(), slice(0, 2)))
    assert routine.captures == 1
    assert routine(session.asarray(matrix()), slice(1, 2)).shape == (1, 3)


def test_writes_in_place_reach_arguments_captured_and_inner_tensors(session):
    outer = session.asarray(matrix(9))

    def f(x, y):
        inner = x + y
        inner += 1
        inner[0] = 5.0
        x *= 2
        x[1, :] = inner[0]
        outer[...] = outer + x
        session.call("add", [y, outer], out=[y])
        return inner, outer.sum()

    before = outer.copy()
    expected = []
    for called in (f, session.routine(f)):
        outer[...] = before
        x, y = session.asarray(matrix(1)), session.asarray(matrix(2))
        results = [each.numpy().tobytes() for _ in range(3) for each in called(x, y)]
        expected.append([results, *(each.numpy().tobytes() for each in (x, y, outer))])
    assert expected[0] == expected[1]


def test_what_was_read_before_a_run_that_writes_is_read_again(session):
    f = session.routine(lambda x: x.__iadd__(1.0))
    x = session.asarray([1.0, 2.0, 3.0])
    for run in range(3):
        assert [x[n].item() for n in range(3)] == [1.0 + run, 2.0 + run, 3.0 + run]
        assert f(x) is x


def test_a_view_keeps_the_value_from_before_a_write(session):
    def f(x):
        view, row = x.T, x[0]
        x += 1
        view[0, 0] = 7.0
        return view, row, x[0], x.T @ view

    assert compared(session, f, (matrix(),), (matrix(1),)).captures == 1


def test_the_same_tensor_twice_is_one_tensor(session):
    @session.routine
    def f(x, y):
        x += 1
        return y * 1

    x, y = session.asarray([1.0]), session.asarray([10.0])
    assert f(x, x).tolist() == [2.0]
    assert f(x, y).tolist() == [10.0]
    assert f(x, x).tolist() == [4.0]
    assert f.captures == 2


def test_an_argument_may_be_a_captured_tensor_too(session):
    w = session.asarray([1.0])

    def f(x):
        x += 1
        y = w * 2
        w.__iadd__(10.0)
        return y, x * 1

    other = session.asarray([5.0])
    routine = session.routine(f)
    found = []
    for called in (f, routine):
        w[...] = 1.0
        other[...] = 5.0
        found.append([each.tolist() for x in (w, other, w) for each in called(x)])
    assert found[0] == found[1]


def test_results_are_the_callers_own_tensors_where_the_function_returns_those(session):
    outer = session.asarray([5.0])

    @session.routine
    def f(x, more):
        x += 1
        made = x * 2
        return x, outer, made, made, {"inner": more["y"]}

    x, y = session.asarray([1.0]), session.asarray([2.0])
    for _ in range(2):
        found = f(x, {"y": y})
        assert (found[0], found[1], found[4]["inner"]) == (x, outer, y) or None
        assert found[0] is x
        assert found[1] is outer
        assert found[2] is found[3]
        assert found[4]["inner"] is y


def test_what_is_returned_stays_as_it_is_when_the_routine_runs_again(session):
    f = session.routine(lambda x: [x + 1, x.T])
    first = f(session.asarray(matrix(1)))
    values = [each.numpy() for each in first]
    second = f(session.asarray(matrix(2)))
    assert first is not second
    assert all(np.array_equal(each.numpy(), value) for each, value in zip(first, values, strict=True))


def test_uploads_inside_are_constants_of_which_each_run_has_a_copy(session):
    def f(x):
        table = session.asarray([[1.0, 2.0, 3.0]])
        table += x[0]
        return table, session.xp.asarray([1, 2]), session.xp.pad(x, 1, "edge"), session.asarray(x), session.asarray(2.0)

    assert compared(session, f, (matrix(1),), (matrix(2),)).captures == 1


def test_a_list_with_tensors_and_numbers_is_stacked(session):
    compared(session, lambda x, n: session.xp.asarray([x[0, 0], x[1, 1]]) + session.asarray([n, 1.5]), (matrix(), 2.5))


def test_tensors_move_between_devices(sim_session):
    s = sim_session

    def f(x):
        there = x.to_device("sim:0")
        there += 1
        return there, (there * 2).to_device("cpu:0"), x.copy(), s.xp.ones(2, device="sim:1")

    assert compared(s, f, (matrix(1),), (matrix(2),)).captures == 1
    f2 = s.routine(lambda x: x + 1)
    assert f2(s.asarray([1.0], "sim:0")).device == "sim:0"
    assert f2(s.asarray([1.0], "sim:1")).device == "sim:1"
    assert f2.captures == 2


def test_other_shapes_dtypes_and_structures_are_captured_anew(session):
    f = session.routine(lambda *given: given[0] + 1)
    x = session.asarray([1.0])
    for arguments in [(x,), (session.asarray([[1.0]]),), (session.asarray([1]),), (x, 1), (x, 1.0), (x, [1.0])]:
        f(*arguments)
        f(*arguments)
    f(x, {"a": 1.0})
    f(x, {"b": 1.0})
    assert f.captures == 8


def test_keywords_and_positions_are_told_apart(session):
    @session.routine
    def f(x, options=None, **more):
        return x + (more["a"] if more else options["a"])

    x = session.asarray([1.0])
    assert f(x, a=2.0).tolist() == [3.0]
    assert f(x, {"a": 3.0}).tolist() == [4.0]
    assert f(x, options={"a": 4.0}).tolist() == [5.0]
    assert f.captures == 3


def test_a_routine_is_a_function_with_a_name_and_a_program(session):
    @session.routine
    def double(x, by=2.0):
        """Twice."""
        return x * by

    assert (double.__name__, double.__doc__) == ("double", "Twice.")
    x = session.asarray([1.0])
    program = double.program(x, 3.0)
    assert [step.op for step in program.steps] == ["multiply"]
    assert [each.name for each in program.parameters] == ["x"]
    assert [each.name for each in program.numbers] == ["by"]
    assert "test_routine.py" in program.steps[0].location
    assert double.captures == 0
    assert double(x).tolist() == [2.0]
    assert "double" in repr(double)
    assert "captured once" in repr(double)
    assert double.program(x, 4.0) == program


def test_methods_are_captured_for_each_object(session):
    class Scaled:
        def __init__(self, by):
            self.by = session.asarray(by)

        @session.routine
        def scale(self, x):
            return x * self.by

    one, other, x = Scaled(2.0), Scaled(3.0), session.asarray([1.0])
    for _ in range(2):
        assert one.scale(x).tolist() == [2.0]
        assert other.scale(x).tolist() == [3.0]
    assert Scaled.scale.captures == one.scale.captures == 2
    assert [each.op for each in one.scale.program(x).steps] == ["multiply"]
    one.by = session.asarray(5.0)
    assert one.scale(x).tolist() == [5.0]
    assert "scale" in repr(one.scale)


def test_an_object_that_is_gone_is_not_mistaken_for_another(session):
    class Box:
        def __init__(self, value):
            self.value = value

    f = session.routine(lambda x, box: x + box.value)
    x, box = session.asarray([1.0]), Box(1.0)
    assert f(x, box).tolist() == [2.0]
    address, kept = id(box), []
    del box
    while id(box := Box(5.0)) != address:  # until its memory is reused
        kept.append(box)
    assert f(x, box).tolist() == [6.0]


def test_routines_inside_routines_become_a_part_of_them(session):
    @session.routine
    def inner(x, n):
        x += 1
        return x * n

    @session.routine
    def power(x, depth):
        return x if depth == 0 else x * power(x, depth - 1)

    def f(x, n):
        return inner(x, n) + inner(x, n + 1), power(x, 3)

    assert compared(session, f, (matrix(1), 2.0), (matrix(2), 3.0)).captures == 1
    assert inner.captures == power.captures == 1  # by the function itself


def test_eager_routines_call_the_function(session):
    seen = []

    @session.routine(eager=True)
    def f(x):
        seen.append(x.tolist())
        return x + 1

    assert [f(session.asarray([1.0])).tolist() for _ in range(2)] == [[2.0], [2.0]]
    assert (seen, f.captures) == ([[1.0], [1.0]], 0)


@pytest.fixture
def default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[ModuleType]:
    """The module of the default session, which is embedded, and closed at the end."""
    monkeypatch.delenv("TENSORD_ADDRESS", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    yield td.array_api
    for name in ("_core", "_address"):
        found = vars(td.array_api).pop(name, None)
        if name == "_core" and found is not None:
            found.as_session().close()


def test_a_routine_of_the_default_session(default):
    @td.routine
    def f(x, n):
        return td.array_api.sqrt(x) * n

    assert f(default.asarray([4.0]), 3).tolist() == [6.0]
    assert td.routine(eager=True)(f.__wrapped__)(default.asarray([4.0]), 3).tolist() == [6.0]


def test_tensors_of_another_session_are_refused(make_session):
    one, other = make_session(), make_session()
    f = one.routine(lambda x: x + 1)
    with pytest.raises(td.MetadataError, match="another session"):
        f(other.asarray([1.0]))
    outside = other.asarray([1.0])
    with pytest.raises(td.MetadataError, match="another session"):
        one.routine(lambda x: x + outside)(one.asarray([1.0]))
    with pytest.raises(td.CaptureError, match="another session"):
        other.routine(lambda: f(outside))()
    assert f.captures == 0


def test_partial_functions_and_callable_objects(session):
    class Adds:
        def __call__(self, x, y):
            return x + y

    x = session.asarray([1.0])
    assert session.routine(functools.partial(Adds(), y=x))(x).tolist() == [2.0]
    assert session.routine(Adds())(x, 2).tolist() == [3.0]


def test_the_least_recently_used_capture_goes(session, monkeypatch):
    monkeypatch.setattr(entries, "MAX_ENTRIES", 3)
    f = session.routine(lambda x: x + 1)
    tensors = [session.asarray(np.zeros(n)) for n in range(1, 5)]
    for x in tensors[:3]:
        f(x)
    f(tensors[0])
    f(tensors[3])
    assert len(f._entries) == 3
    f(tensors[0])
    assert f.captures == 4
    f(tensors[1])
    assert f.captures == 5


def test_the_ninth_capture_warns_once_and_says_what_changes(session):
    f = session.routine(lambda x, text: x + len(text))
    x = session.asarray([1.0])
    for n in range(8):
        f(x, f"text {n}")
    with pytest.warns(RuntimeWarning, match=r"captured 9 times.* text was 'text 7', and is 'text 8'") as caught:
        f(x, "text 8")
    assert caught[0].filename == __file__
    f(x, "text 9")


def test_the_warning_tells_of_tensors_that_are_the_same(session):
    f = session.routine(lambda x, y, text: x + y + len(text))
    x, y = session.asarray([1.0]), session.asarray([2.0])
    for n in range(8):
        f(x, y, f"text {n}")
    with pytest.warns(RuntimeWarning, match=r"y was .* on cpu:0, and is .*, the same tensor as x"):
        f(x, x, "text 7")


def test_a_run_after_a_run_that_failed_is_as_good_as_ever(session):
    f = session.routine(lambda x: (session.xp.linalg.inv(x), x + 1))
    bad, good = session.asarray(np.zeros((2, 2))), session.asarray(np.eye(2))
    f(good)
    inverse, more = f(bad)
    with pytest.raises(td.KernelError) as caught:
        inverse.numpy()
    assert "test_routine.py" in (caught.value.location or "")
    assert "lambda" in (caught.value.location or "")
    assert more.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert f(good)[0].tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert f.captures == 1
