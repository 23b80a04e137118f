"""State of every kind that a function reads besides its arguments: a change is noticed, or the capture is refused."""

from __future__ import annotations

import collections
import functools
import operator
import sys
import types
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tensord.client.routines.kinds import is_of_program
from tensord.client.session.session import Session
from tensord.interpreter.errors import CaptureError

from ...each_case import each_case
from . import (  # noqa: F401 - they fill the lists
    state,
    state_by_computed_names,
    state_in_containers,
    state_in_methods,
    state_of_functions,
    state_of_libraries,
    state_of_many_kinds,
    state_unseen,
)
from .state import SOURCES, UNSEEN, Source, Thing

pytestmark = pytest.mark.filterwarnings("ignore:.* was captured .* times")  # as often as a source is changed
VALUES = [2.0, 0.5, 2.0]
OF_ALL_MODULES = ("a_module_by_a_computed_name", "a_module_that_is_imported_by_a_computed_name")


@pytest.fixture
def x(session: Session) -> Any:
    """A tensor."""
    return session.asarray([1.0, 2.0])


@pytest.fixture(autouse=True)
def rate():
    """Each test begins with the same global."""
    state.RATE = 1.0
    yield
    state.RATE = 1.0


@pytest.fixture
def few_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program has few modules of its own; a process that runs tests may have hundreds."""
    for name in filter(is_of_program, list(sys.modules)):
        if name != "__main__":
            monkeypatch.delitem(sys.modules, name)


@each_case("source", [source for source in SOURCES if source.__name__ not in OF_ALL_MODULES])
def test_a_change_is_noticed(session, x, source):
    assert_noticed(session, x, source)


@pytest.mark.usefixtures("few_modules")
@each_case("source", [source for source in SOURCES if source.__name__ in OF_ALL_MODULES])
def test_a_change_in_any_module_is_noticed(session, x, source):
    assert_noticed(session, x, source)


def assert_noticed(session: Session, x: Any, source: Source) -> None:
    state.RATE = 1.0
    read, change = source()
    routine = session.routine(lambda x: x * read())
    for value in [None, *VALUES]:
        if value is not None:
            change(value)
        for _ in range(2):
            rate = read()
            assert routine(x).tolist() == [rate, 2.0 * rate]
    captures = routine.captures
    routine(x)
    assert routine.captures == captures  # an unchanged state is not captured again


@pytest.mark.parametrize("main", [pytest, state], ids=["a library", "the program"])
def test_code_of_no_module_is_the_programs_whichever_module_is_main(session, x, monkeypatch, main):
    monkeypatch.setitem(sys.modules, "__main__", main)
    thing = Thing(rate=1.0)
    routine = session.routine(lambda x: x * state_by_computed_names.executed("n = thing.rate", thing=thing)["n"])
    assert routine(x).tolist() == [1.0, 2.0]
    thing.rate = 3.0
    assert routine(x).tolist() == [3.0, 6.0]


@each_case("source", UNSEEN)
def test_what_no_run_can_look_at_is_refused_and_a_constant_where_the_user_says_so(session, x, source):
    state.RATE = 1.0
    read, change = source()

    def scaled(x: Any) -> Any:
        return x * read()

    with pytest.raises(CaptureError, match=r"routine\(constants=\[") as refused:
        session.routine(scaled)(x)
    name = refused.value.message.partition('constants=["')[2].partition('"')[0]
    routine = session.routine(scaled, constants=[name])
    first = routine(x).tolist()
    change(3.0)
    assert routine(x).tolist() == first
    assert routine.captures == 1
    assert routine.report()["constants"] == [name]
    assert f"  {name}: constant" in str(routine.report())


def direct(read: Callable[[], Any], _: Random) -> Callable[[], Any]:
    """Called directly."""
    return read


def by_a_function(read: Callable[[], Any], _: Random) -> Callable[[], Any]:
    """Called by another function."""

    def inner() -> Any:
        return read()

    return inner


def by_a_method(read: Callable[[], Any], _: Random) -> Callable[[], Any]:
    """Kept by an object, and called by its method."""
    return Keeper(read).forward


class Keeper:
    """An object that has a function."""

    def __init__(self, read: Callable[[], Any]) -> None:
        self.layers = [{"read": read}]

    def forward(self) -> Any:
        """Calls it."""
        return sum(layer["read"]() for layer in self.layers)


def by_a_partial_call(read: Callable[[], Any], _: Random) -> Callable[[], Any]:
    """A partial call of a function that gets it."""
    return functools.partial(lambda found, times: found() * times, read, times=1)


def by_a_decorator(read: Callable[[], Any], _: Random) -> Callable[[], Any]:
    """Wrapped by a decorator."""

    @functools.wraps(read)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return read(*args, **kwargs)

    return wrapped


def called(read: Callable[[], Any]) -> Any:
    """Its result."""
    return read()


def mapped(read: Callable[[], Any], _: Random) -> Callable[[], Any]:
    """Called by Python itself."""
    return lambda: sum(map(called, [read]))


ASKING: list[Callable[[Any, str], Any]] = [
    lambda thing, name: getattr(thing, name)(),
    lambda thing, name: getattr([thing][0], name)(),
    lambda thing, name: getattr(thing if name else None, name)(),
    lambda thing, name: next(map(getattr, [thing], [name]))(),
    lambda thing, name: functools.reduce(getattr, [name], thing)(),
    lambda thing, name: operator.attrgetter(name)(thing)(),
    lambda thing, name: operator.methodcaller(name)(thing),
    lambda thing, name: object.__getattribute__(thing, name)(),
    lambda thing, name: vars(thing)[name](),
    lambda thing, name: thing.__dict__[name](),
    lambda thing, name: called(functools.partial(getattr, thing, name))(),
]


def kept_by_a_thing(read: Callable[[], Any], choice: Random) -> Callable[[], Any]:
    """Kept as an attribute of an object, and found by a computed name, in any of the known forms."""
    name, ask = f"read_{choice.randrange(9)}", choice.choice(ASKING)
    thing = Thing(**{name: read})
    return lambda: ask(thing, name)


# With computed names of both kinds, all attributes of all modules of the program may count: too much, in a suite.
DRAWN = [each for each in SOURCES if each.__name__ not in OF_ALL_MODULES]
WAYS = [direct, by_a_function, by_a_method, by_a_partial_call, by_a_decorator, mapped, kept_by_a_thing]


@each_case("seed", range(12))
def test_random_programs_are_never_stale(session, x, seed):
    choice = Random(seed)
    chosen: list[Source] = choice.sample(DRAWN, choice.randint(1, 5))
    if choice.random() < 0.15:
        chosen.append(choice.choice(UNSEEN))
    found = [source() for source in chosen]
    readers = []
    for first, _ in found:
        read = first
        for _ in range(choice.randint(1, 3)):
            read = choice.choice(WAYS)(read, choice)
        readers.append(read)

    def function(x: Any, keep: Any) -> Any:
        for n, read in enumerate(readers):
            x = x * read() + n
        return x * len(keep)

    routine = session.routine(function)
    keep = {"a": x}
    refused = compared = 0
    for _ in range(12):
        try:
            got = routine(x, keep).tolist()
        except CaptureError:
            refused += 1
        else:
            assert got == function(x, keep).tolist(), [source.__name__ for source in chosen]
            compared += 1
        if choice.random() < 0.6:
            _, change = choice.choice(found)
            change(choice.choice(VALUES))
    assert refused == 0 or compared == 0
    assert (refused > 0) == any(source in UNSEEN for source in chosen)


@pytest.mark.parametrize(
    ("make", "read", "change"),
    [
        (lambda: types.SimpleNamespace(rate=1.0), lambda found: found.rate, lambda found: setattr(found, "rate", 2.0)),
        (lambda: collections.deque([1.0]), lambda found: found[0], lambda found: found.append(found.popleft() + 1)),
        (lambda: collections.ChainMap({"a": 1.0}), lambda found: found["a"], lambda found: found.update(a=2.0)),
        (
            lambda: types.MappingProxyType({"a": [1.0]}),
            lambda found: found["a"][0],
            lambda found: found["a"].insert(0, 2),
        ),
        (
            lambda: {"a": types.SimpleNamespace(rate=1.0)},
            lambda found: found["a"].rate,
            lambda found: set_rate(found["a"]),
        ),
        (lambda: state.Settings(2.0), lambda found: found.scaled(), lambda _: setattr(state, "RATE", 5.0)),
        (lambda: state_in_containers.Pair(2.0), lambda found: found.more(), lambda _: setattr(state, "RATE", 5.0)),
    ],
)
def test_arguments_are_looked_into(session, x, make, read, change):
    found = make()
    routine = session.routine(lambda x, found: x * read(found))
    for _ in range(2):
        assert routine(x, found).tolist() == (x * read(found)).tolist()
    change(found)
    for _ in range(2):
        assert routine(x, found).tolist() == (x * read(found)).tolist()
    assert routine.captures == 2


def set_rate(thing: Any) -> None:
    """Changes an attribute."""
    thing.rate = 2.0


def test_attributes_of_an_argument_that_are_no_members_are_refused(session, x):
    settings: Any = state.Settings(2.0)
    settings.extra = 3.0
    assert session.routine(lambda x, settings: x * settings.by)(x, settings).tolist() == [2.0, 4.0]
    with pytest.raises(CaptureError, match=r"settings\.extra has state"):
        session.routine(lambda x, settings: x * settings.extra)(x, settings)


class Noisy:
    """Its property draws new numbers each time."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def noise(self) -> types.SimpleNamespace:
        return types.SimpleNamespace(rate=self._session.random.normal((2,)))


def test_a_property_is_computed_as_often_as_the_function_does(session, x):
    noisy, name = Noisy(session), "rate"
    functions: list[Callable[[Any], Any]] = [
        lambda x: x + getattr(noisy.noise, name),
        lambda x: x + getattr(noisy.noise, "rate"),  # noqa: B009 - that is the case
    ]
    for function in functions:
        session.random.seed(0)
        expected = [(x + noisy.noise.rate).tolist() for _ in range(3)]
        session.random.seed(0)
        routine = session.routine(function)
        assert [routine(x).tolist() for _ in range(3)] == expected
