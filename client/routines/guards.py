"""Guards: the Python state outside of the arguments that a capture depends on.

A function reads globals and cells of its closure, and finds tensors and numbers there, or in containers and objects
there, or in functions that it calls. What is found when the capture begins is noted, with how to find it again. Before
each run all of it is looked up, and compared by identity (numbers and texts by type and value). Where something else
is found, the function is captured anew.

The search follows plain Python functions of the program, not those of libraries; lists, tuples, dicts and dataclasses;
attributes of objects of the program; and attributes of its classes and modules that one of the functions names. It
goes `DEEPEST` levels deep, and notes `MOST` places. What is found on other ways (`getattr` with a computed name,
a property that computes, a file) is as it was at the capture.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from itertools import islice
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, TypeAlias

from ..frames import OWNERS, Owner
from ..operators import SCALARS
from ..tensor import Tensor
from .linked_routine import LinkedRoutine
from .linking import LinkedProgram
from .structure import exact, is_container, joined, members

DEEPEST: Final = 8
FEW: Final = 32  # keys that are compared one by one
MOST: Final = 512
TEXTS: Final = frozenset((str, bytes, type(None)))
LINKED: Final = (LinkedProgram, LinkedRoutine)
VALUES: Final = SCALARS | TEXTS  # compared by type and value
_GLOBAL, _NAME, _EXTENDED = (dis.opmap[name] for name in ("LOAD_GLOBAL", "LOAD_NAME", "EXTENDED_ARG"))

# How to find something (get(key)), and what was found.
Place: TypeAlias = tuple[Callable[[Any], Any], Any, Any]


class Guards:
    """What a function depends on besides its arguments. `names`: of the places; `tensors`: names of tensors by id()."""

    __slots__ = ("_attributes", "_loose", "_names", "_places", "_seen", "tensors")

    def __init__(self, function: Any, objects: list[Any]) -> None:
        self._attributes: set[str] = set()  # that the functions name
        before = -1
        while len(self._attributes) > before:  # until no function is found that names others
            before = len(self._attributes)
            self._places: list[Place] = []
            self._names: list[str] = []
            self._loose: list[int] = []  # places that `settle` looks at
            self._seen: set[int] = set()
            self.tensors: dict[int, str] = {}
            for each in (function, *objects):
                self._look_at(each, "" if each is function else type(each).__name__, 0)

    def settle(self) -> None:
        """The capture is over. A container that has nothing to compute with, and to which the function itself has added
        or from which it has taken, as to a log, is no guard."""
        for place in reversed(self._loose):
            get, key, expected = self._places[place]
            if get(key) != expected:
                del self._places[place], self._names[place]
        self._loose.clear()

    def hold(self) -> bool:
        """Is everything as it was? Costs some 50 ns for each place."""
        try:
            for get, key, expected in self._places:
                found = get(key)
                if found is not expected and not same(found, expected):
                    return False
        except (LookupError, AttributeError, ValueError):  # it is gone
            return False
        return True

    def broken(self) -> str | None:
        """The name of the first place where something else is; None if there is none."""
        for (get, key, expected), name in zip(self._places, self._names, strict=True):
            try:
                found = get(key)
            except (LookupError, AttributeError, ValueError):
                return name
            if found is not expected and not same(found, expected):
                return name
        return None

    # -- the search ------------------------------------------------------------------------------------------------

    def _note(self, get: Callable[[Any], Any], key: Any, value: Any, name: str, depth: int) -> None:
        if len(self._places) < MOST:
            self._places.append((get, key, value))
            self._names.append(name)
            self._look_at(value, name, depth + 1)

    def _look_at(self, value: Any, name: str, depth: int) -> None:
        """Find what is behind a value."""
        if isinstance(value, Tensor):
            self.tensors.setdefault(id(value), name)
        elif depth < DEEPEST and type(value) not in VALUES and id(value) not in self._seen:
            self._seen.add(id(value))
            self._look_into(value, name, depth)

    def _look_into(self, value: Any, name: str, depth: int) -> None:
        if isinstance(value, FunctionType):
            self._function(value, depth)
        elif isinstance(value, MethodType | partial):
            for each in parts_of(value):
                self._look_at(each, name, depth)
        elif (wrapped := wrapped_by(value)) is not None:
            self._look_at(wrapped, name, depth)
        elif isinstance(value, ModuleType):
            if is_of_program(value.__name__):
                self._members_of(vars(value).__getitem__, vars(value), name, depth, self._attributes)
        elif is_container(value):
            self._members(value, name, depth)
        elif isinstance(value, set | frozenset):
            self._contents(value, name)
        else:
            self._object(value, name, depth)

    def _function(self, function: FunctionType, depth: int) -> None:
        code = function.__code__
        if OWNERS[code.co_filename] is not Owner.PROGRAM:
            return
        outer = function.__globals__
        self._attributes |= attributes_of(code)
        for name in globals_of(code):
            if name in outer:
                self._note(outer.__getitem__, name, outer[name], name, depth)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                self._note(cell.__getattribute__, "cell_contents", cell.cell_contents, name, depth)
            except ValueError:  # it is empty
                continue
        for each in (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()):
            self._look_at(each, function.__name__, depth)

    def _members(self, value: Any, name: str, depth: int) -> None:
        found = dict(first_members(value))
        if isinstance(value, dict | list):
            loosely = not any(matters(each) and type(each) not in TEXTS for each in found.values())
            self._contents(value, name, loosely=loosely)
        self._members_of(getter(value), found, name, depth)

    def _contents(self, value: Any, name: str, *, loosely: bool = True) -> None:
        """Note what a container may get more of: how many members it has, and, if they are few, the keys."""
        if len(self._places) < MOST:
            get = contents_of if len(value) <= FEW and isinstance(value, dict | set | frozenset) else len
            if loosely:
                self._loose.append(len(self._places))
            self._places.append((lambda _: get(value), None, get(value)))
            self._names.append(name)

    def _members_of(
        self, get: Callable[[Any], Any], found: Mapping[Any, Any], name: str, depth: int, only: set[str] | None = None
    ) -> None:
        for key, each in list(found.items()):
            if (only is None or key in only) and matters(each):
                self._note(get, key, each, joined(name, key), depth)

    def _object(self, value: Any, name: str, depth: int) -> None:
        """The attributes of an object, or of a class; and the methods that the function names."""
        kind = value if isinstance(value, type) else type(value)
        if not is_of_program(kind.__module__):
            return
        if hasattr(value, "__dict__") and kind is not value:
            self._contents(vars(value), name)
            self._members_of(vars(value).__getitem__, vars(value), name, depth)
        for base in kind.__mro__[:-1]:
            self._members_of(vars(base).__getitem__, vars(base), name, depth, self._attributes)
        for slot in slots_of(kind):
            if hasattr(value, slot) and matters(getattr(value, slot)):
                self._note(value.__getattribute__, slot, getattr(value, slot), joined(name, slot), depth)


def contents_of(value: Any) -> int:
    """A number that changes with the keys of a dict, or the members of a set."""
    return hash(tuple(value) if isinstance(value, dict) else frozenset(value))


def same(found: Any, expected: Any) -> bool:
    """Are both the same number, to the last bit, or the same text?"""
    return type(found) is type(expected) and type(found) in VALUES and bool(exact(found) == exact(expected))


def matters(value: Any) -> bool:
    """May a function's ops depend on it, if it is found inside something? Not on what libraries have."""
    if isinstance(value, Tensor) or type(value) in VALUES:
        return True
    if isinstance(value, FunctionType | MethodType | partial | type | set | frozenset) or is_container(value):
        return True
    return isinstance(value, LINKED) or wrapped_by(value) is not None or is_of_program(type(value).__module__)


def wrapped_by(value: Any) -> Any:
    """The function that a decorator has wrapped in an object, as another routine; None if it is no such object."""
    return None if isinstance(value, type) else getattr(value, "__dict__", {}).get("__wrapped__")


def first_members(value: Any) -> Iterator[tuple[Any, Any]]:
    """The members of a container by name or position; of a large one, the first."""
    if isinstance(value, dict):
        return islice(value.items(), MOST)
    if isinstance(value, list) or type(value) is tuple:
        return enumerate(islice(value, MOST))
    return iter(members(value) or ())


def getter(container: Any) -> Callable[[Any], Any]:
    """How to find a member of a container."""
    if isinstance(container, dict):
        found: Callable[[Any], Any] = container.get  # which adds nothing to a defaultdict
        return found
    positions = isinstance(container, list) or type(container) is tuple
    return container.__getitem__ if positions else container.__getattribute__  # type: ignore[no-any-return]


def parts_of(value: MethodType | partial[Any]) -> Iterator[Any]:
    """What a bound method, or a partial call, calls and passes."""
    if isinstance(value, MethodType):
        yield from (value.__func__, value.__self__)
    else:
        yield from (value.func, value.args, value.keywords)


def slots_of(kind: type) -> list[str]:
    """The names of the slots that objects of the class have."""
    found = [each for base in kind.__mro__ for each in listed(vars(base).get("__slots__", ()))]
    return [name for name in found if name not in ("__dict__", "__weakref__")]


def listed(slots: Any) -> tuple[str, ...]:
    """`__slots__` as it may be written: a name, or names."""
    return (slots,) if isinstance(slots, str) else tuple(slots)


def is_of_program(module: str) -> bool:
    """Is the module one of the user's program, and no library?"""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:  # of a notebook, a console; or built in
        return module == "__main__"
    return OWNERS[file] is Owner.PROGRAM


@lru_cache(maxsize=1024)
def attributes_of(code: CodeType) -> frozenset[str]:
    """The names that the code, and functions inside it, use: attributes are among them."""
    inner = (attributes_of(each) for each in code.co_consts if isinstance(each, CodeType))
    return frozenset(code.co_names).union(*inner)


@lru_cache(maxsize=1024)
def globals_of(code: CodeType) -> tuple[str, ...]:
    """The globals that the code reads, and functions inside it."""
    found = dict.fromkeys(loaded(code))
    for each in code.co_consts:
        if isinstance(each, CodeType):
            found |= dict.fromkeys(globals_of(each))
    return tuple(found)


def loaded(code: CodeType) -> Iterator[str]:
    """The names that instructions load from the globals: names of attributes alone are not among them."""
    high = 0
    instructions = iter(code.co_code)
    for opcode, argument in zip(instructions, instructions, strict=True):
        whole = high << 8 | argument
        if opcode == _GLOBAL:
            yield code.co_names[whole >> 1]
        elif opcode == _NAME:
            yield code.co_names[whole]
        high = whole if opcode == _EXTENDED else 0
