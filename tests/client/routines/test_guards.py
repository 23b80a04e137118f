"""Python state outside of the arguments: another object there means a new capture."""

from __future__ import annotations

import dis
import io
import logging
import math
import sys
import threading
import types
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import special

from tensord.client.routines.guards import Guards
from tensord.client.routines.names import names_of, within
from tensord.client.session.session import Session
from tensord.interpreter.errors import CaptureError

from ...each_case import each_case

RATE: Any = 2.0
WEIGHT: Any = None


@pytest.fixture
def x(session: Session) -> Any:
    """A tensor."""
    return session.asarray([1.0, 2.0])


def scaled(value: Any) -> Any:
    """Uses a global."""
    return value * RATE


def weighted(value: Any) -> Any:
    """Uses a global tensor, by another function."""
    return scaled(value) + WEIGHT


def test_globals_are_looked_at_before_each_call(session, x, monkeypatch):
    monkeypatch.setitem(globals(), "WEIGHT", session.asarray(10.0))
    f = session.routine(weighted)
    assert [f(x).tolist(), f(x).tolist()] == [[12.0, 14.0]] * 2
    monkeypatch.setitem(globals(), "RATE", 3.0)
    assert f(x).tolist() == [13.0, 16.0]
    monkeypatch.setitem(globals(), "WEIGHT", session.asarray(20.0))
    assert f(x).tolist() == [23.0, 26.0]
    assert f.captures == 3
    monkeypatch.setitem(globals(), "RATE", 2.0 + 1.0)  # another object with the same value
    assert f(x).tolist() == [23.0, 26.0]
    assert f.captures == 3
    monkeypatch.setitem(globals(), "RATE", 3)
    f(x)
    assert f.captures == 4


def test_a_captured_tensor_that_is_written_is_no_other_tensor(session, x):
    w = session.asarray([1.0, 1.0])
    f = session.routine(lambda y: y + w)
    f(x)
    w += 5.0
    assert f(x).tolist() == [7.0, 8.0]
    assert f.captures == 1


def test_cells_are_looked_at_and_what_was_there_before_is_found_again(session, x):
    w = first = session.asarray(1.0)
    f = session.routine(lambda y: y * w)
    f(x)
    w = session.asarray(5.0)
    assert f(x).tolist() == [5.0, 10.0]
    w = first
    assert f(x).tolist() == [1.0, 2.0]
    assert f.captures == 2


def test_a_rebound_name_keeps_few_captures_and_so_few_tensors(session, x):
    w = session.asarray(1.0)
    f = session.routine(lambda y: y * w)
    for n in range(8):
        w = session.asarray(float(n))
        assert f(x).tolist() == [n, 2.0 * n]
    assert f.captures == 8
    assert len(f._entries) == 4


def test_a_container_of_tensors_that_grows(session, x):
    weights = [session.asarray(2.0)]

    def f(y):
        for w in weights:
            y = y * w
        return y

    routine = session.routine(f)
    assert routine(x).tolist() == [2.0, 4.0]
    weights.append(session.asarray(3.0))
    assert routine(x).tolist() == [6.0, 12.0]
    weights[0] = session.asarray(1.0)
    assert routine(x).tolist() == [3.0, 6.0]
    del weights[:]
    assert routine(x).tolist() == [1.0, 2.0]


def test_a_routine_inside_is_looked_into(session, x):
    rate = 2.0

    @session.routine
    def inner(y):
        return y * rate

    f = session.routine(lambda y: inner(y) + 1)
    assert f(x).tolist() == [3.0, 5.0]
    rate = 3.0
    assert f(x).tolist() == [4.0, 7.0]


def test_a_function_that_changes_what_it_depends_on_is_captured_each_time(session, x):
    count = 0

    @session.routine
    def f(y):
        nonlocal count
        count += 1
        return y * count

    assert [f(x).tolist()[0] for _ in range(3)] == [1.0, 2.0, 3.0]
    assert f.captures == 3


def test_nan_in_a_global_is_the_same_nan(session, x):
    missing = math.nan
    f = session.routine(lambda y: y + missing)
    f(x)
    missing = -math.nan * 1
    missing = float("nan")
    assert np.isnan(f(x).numpy()).all()
    assert f.captures == 1


def test_looking_adds_nothing_to_a_defaultdict(session, x):
    rates: dict[str, float] = defaultdict(float, a=2.0)
    f = session.routine(lambda y: y * rates["a"])
    f(x)
    del rates["a"]
    rates["b"] = 1.0
    f._entries._all()[0].guards.hold()
    assert list(rates) == ["b"]
    assert f(x).tolist() == [0.0, 0.0]


def test_large_containers_and_large_modules_are_looked_at_as_far_as_it_matters(session, x, monkeypatch):
    large = list(range(100_000))
    module = types.ModuleType("a_large_module")
    module.__file__ = __file__
    vars(module).update({f"name_{n}": n for n in range(2000)}, last=1.0)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    f = session.routine(lambda y: y * large[1] * module.last)
    assert f(x).tolist() == [1.0, 2.0]
    assert len(f._entries._all()[0].guards._identity_guards.names) <= 514
    module.last = 2.0  # type: ignore[attr-defined]
    assert session.routine(lambda y: y * module.last)(x).tolist() == [2.0, 4.0]
    g = session.routine(lambda y: y * module.last)
    g(x)
    module.last = 3.0  # type: ignore[attr-defined]
    assert g(x).tolist() == [3.0, 6.0]


def test_what_libraries_have_is_not_looked_at(session):
    def f(y):
        return session.xp.sin(y) * np.pi * math.tau

    guards = Guards(f)
    assert guards.hold()
    names = guards._identity_guards.names
    assert {"np", "math"} <= set(names)
    assert not any("." in name for name in names)


def test_the_names_of_what_a_function_loads_are_those_that_dis_finds():
    functions: list[Any] = [Guards.settle, dis.dis, names_of.__wrapped__, test_a_routine_inside_is_looked_into]
    for code in (inner for each in functions for inner in within(each.__code__)):
        found = {each.argval for each in dis.get_instructions(code) if each.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
        assert set(names_of(code).globals) == found


def test_names_beyond_the_256th_are_found():
    names = [f"name_{n}" for n in range(600)]
    namespace: dict[str, Any] = dict.fromkeys(names, 1)
    exec("def f():\n    return " + " + ".join(names), namespace)  # noqa: S102
    assert set(names_of(namespace["f"].__code__).globals) == set(names)


class Recorder:
    """Has state that no run could look at, which only its callback reads."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.seen: list[Any] = []
        self.lines = io.StringIO()

    def note(self, values: Any) -> None:
        self.seen.append(values.tolist())
        self.lines.write("one more")

    def step(self, x: Any) -> Any:
        y = x * 2
        self.session.effect(self.note, y)
        return y


def test_what_only_a_callback_reads_is_no_dependence_of_the_program(session, x):
    """Code that did not run in the capture is no part of the program: its state may change, and may be anything."""
    recorder = Recorder(session)
    step = session.routine(recorder.step)
    for _ in range(3):
        step(x)
        session.sync()
    assert step.captures == 1
    assert len(recorder.seen) == 3


def test_the_warning_names_the_global(session, x):
    w = session.asarray(0.0)
    f = session.routine(lambda y: y * w)
    for _ in range(8):
        w = w + 1
        f(x)
    w = w + 1
    with pytest.warns(RuntimeWarning, match="w, which is not an argument, has changed"):
        f(x)


@each_case(
    ("make", "change", "wanted"),
    [
        (list, lambda found: found.append(None), [0, 1]),
        (lambda: [None], lambda found: found.append(None), [1, 2]),
        (dict, lambda found: found.update(a=3), [0, 1]),
        (lambda: {"b": "x"}, lambda found: (found.pop("b"), found.update(a="x")), [7, 1]),
        (lambda: {1, 2}, lambda found: found.add(5), [3, 8]),
    ],
)
def test_what_is_empty_and_fills_is_noticed(session, make, change, wanted):
    found = make()

    def f(x):
        if isinstance(found, set):
            return x + sum(found)
        return x + (7 if "b" in found else len(found))

    routine = session.routine(f)
    values = [routine(session.asarray(0)).item()]
    change(found)
    assert [*values, routine(session.asarray(0)).item()] == wanted
    assert routine(session.asarray(0)).item() == wanted[1]
    assert routine.captures == 2


def test_an_attribute_that_appears_is_noticed(session):
    thing = Thing()
    routine = session.routine(lambda x: x + getattr(thing, "scale", 1))
    assert routine(session.asarray(0)).item() == 1
    thing.scale = 5
    assert routine(session.asarray(0)).item() == 5


class Thing:
    scale: int


def test_a_function_may_keep_a_log(session):
    log: list[str] = []

    def f(x):
        log.append("here")
        return x + 1

    routine = session.routine(f)
    assert [routine(session.asarray(0)).item() for _ in range(3)] == [1, 1, 1]
    assert (log, routine.captures) == (["here"], 1)


def test_what_the_function_keeps_for_its_next_call_is_captured_once_more(session, x):
    kept: dict[str, float] = {}

    def f(y):
        return y * kept.setdefault("rate", 2.0)

    routine = session.routine(f)
    assert [routine(x).tolist() for _ in range(3)] == [[2.0, 4.0]] * 3
    kept["rate"] = 3.0
    assert routine(x).tolist() == [3.0, 6.0]
    assert routine.captures == 3


def test_what_objects_have_besides_what_the_code_reads_may_change(session, x):
    class Net:
        def __init__(self):
            self.scale = 2.0
            self.steps, self.losses = 0, []

        def forward(self, y):
            return y * self.scale

    net = Net()
    routine = session.routine(net.forward)
    for step in range(3):
        assert routine(x).tolist() == [2.0, 4.0]
        net.steps = step
        net.losses.append(0.5)
    assert routine.captures == 1


def test_a_log_that_others_write_is_noticed(session, x):
    log: list[str] = []

    def f(y):
        log.append("here")
        return y * len(log)

    routine = session.routine(f)
    assert [routine(x).tolist() for _ in range(2)] == [[1.0, 2.0]] * 2
    log.append("there")
    assert routine(x).tolist() == [3.0, 6.0]


def test_a_list_that_the_function_takes_from_is_no_log(session, x):
    names = ["a", "b", "c"]

    def f(y):
        return y * len(names.pop()) * (1 + len(names))

    routine = session.routine(f)
    assert [routine(x).tolist()[0] for _ in range(3)] == [3.0, 2.0, 1.0]


class Block:
    """A part of a network, as people write them."""

    def __init__(self, session: Session, width: int) -> None:
        self.params = {"w": session.asarray(np.eye(width)), "b": session.asarray(np.zeros(width))}
        self.seen: list[float] = []

    def __call__(self, value: Any) -> Any:
        return value @ self.params["w"] + self.params["b"]


class Trainer:
    """The surroundings of ordinary programs: loggers, locks, settings, files that are written, computed names."""

    def __init__(self, session: Session) -> None:
        self.block_0, self.block_1 = Block(session, 2), Block(session, 2)
        self.log, self.lock, self.lines = logging.getLogger("made.trainer"), threading.RLock(), io.StringIO()
        self.settings = Ordinary()
        self.started = iter([1])  # the step does not read it

    def step(self, value: Any) -> Any:
        with self.lock:
            for n in range(2):
                value = getattr(self, f"block_{n}")(value)
        self.log.info("one more step of %s", self.settings)
        self.lines.write("a step\n")
        return value * self.settings.rate * float(np.clip(special.expit(0.0), 0, 1)) * math.sqrt(4)


@dataclass
class Ordinary:
    """Settings."""

    rate: float = 2.0
    name: str = "plain"


def test_ordinary_code_is_captured_once(session, x):
    trainer = Trainer(session)
    del trainer.started  # code may ask for any attribute of the object
    step = session.routine(trainer.step)
    for _ in range(3):
        assert step(x).tolist() == [2.0, 4.0]
    assert step.captures == 1
    trainer.settings.rate = 4.0
    assert step(x).tolist() == [4.0, 8.0]


def test_the_error_says_what_may_read_the_attribute(session, x):
    trainer = Trainer(session)
    with pytest.raises(
        CaptureError, match=r"trainer.started has state .* getattr\(self, f\"block_{n}\"\) may read any"
    ):
        session.routine(lambda y: trainer.step(y))(x)  # noqa: PLW0108
    first = [trainer.block_0]
    names = "params"
    with pytest.raises(CaptureError, match=r"started has state .* getattr\(first\[0\], names\) may read any attribute"):
        session.routine(lambda y: y * len(getattr(first[0], names)) * trainer.settings.rate)(x)


def test_a_profiler_that_the_function_has_set_stays(session, x):
    def profile(*_: Any) -> None:
        pass

    def f(y):
        sys.setprofile(profile)
        return y * 2

    try:
        with pytest.raises(CaptureError, match=r"replaces the profile function .*constants=\[\"sys.setprofile\"\]"):
            session.routine(f)(x)
        assert sys.getprofile() is profile
        sys.setprofile(None)
        assert session.routine(f, constants=["sys.setprofile"])(x).tolist() == [2.0, 4.0]
    finally:
        sys.setprofile(None)


def test_large_arrays_are_compared_to_the_last_bit(session, x):
    for values in (np.zeros(5000), np.zeros((4, 5000), np.complex128)[:, ::2], np.full(9, np.nan)):
        routine = session.routine(lambda y, values=values: y * values.size)
        for _ in range(2):
            routine(x)
        assert routine.captures == 1
        values[..., -1] = -values[..., -1]  # the sign of zero, or of NaN
        routine(x)
        assert routine.captures == 2


def test_class_that_python_adds_to_is_the_same(session, x):
    @dataclass
    class Made:
        w: Any

    routine = session.routine(lambda y: Made(y * 2))
    for _ in range(3):
        assert routine(x).w.tolist() == [2.0, 4.0]  # copied, for which Python keeps `__slotnames__` in the class
    assert routine.captures == 1


def test_more_than_a_run_can_look_at_is_refused_by_name(session, x):
    many = [{"rate": float(n)} for n in range(2000)]
    with pytest.raises(CaptureError, match=r"many\S* leads to more than 1024 objects .*constants=\[\"many\"\]"):
        session.routine(lambda y: y * many[7]["rate"])(x)
    routine = session.routine(lambda y: y * many[7]["rate"], constants=["many"])
    assert routine(x).tolist() == [7.0, 14.0]


def test_constants_are_names(session):
    with pytest.raises(TypeError, match="constants are named as errors name them"):
        session.routine(lambda y: y, constants=[3])


def test_a_profiler_that_runs_already_goes_on(session, x):
    seen: list[str] = []
    sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_name) if event == "call" else None)
    try:
        assert session.routine(weighted_by_nothing)(x).tolist() == [1.0, 2.0]
        assert sys.getprofile() is not None
    finally:
        sys.setprofile(None)
    assert "weighted_by_nothing" in seen


def weighted_by_nothing(value: Any) -> Any:
    """Uses nothing."""
    return value * 1
