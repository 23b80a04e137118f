"""The search for all that a function may find outside of its arguments.

From what the function's code names (globals, cells, defaults, imports) the search follows references, as the code
would: functions that are called, objects, classes, containers. What the program's code names is followed on modules,
classes and objects; what Python calls unasked (operators, properties, `__getattr__`) is followed on classes; of
containers and of libraries' objects everything. So no attribute, item or method that the code can read is left out,
unless it is asked for by a name that is computed, which `watch` sees, and calls `whole` for.

Each reference is a place. What has state that no place can tell (an iterator, an object of a library in C) is *opaque*.
Libraries' own functions and machinery are taken to depend on nothing but their arguments: `kinds.INERT` has the list.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Container, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextvars import ContextVar
from functools import partial
from importlib.util import resolve_name
from operator import attrgetter, itemgetter, methodcaller
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any, Final, NamedTuple

import numpy as np

from ..capture.structure import is_named, joined, members
from ..linking.linked_routine import LinkedRoutine
from ..linking.linking import LinkedProgram
from ..locations.frames import OWNERS, Owner
from ..tensor.tensor import Tensor
from .kinds import (
    BUFFERS,
    INERT,
    is_constant,
    is_in_c,
    is_inert,
    is_installed,
    is_iterator,
    is_of_program,
    is_program_class,
    is_random,
    root,
)
from .names import Names, names_of, texts_in, within
from .parts import NOT_READ, PROXIES, VIEWS, builtins_of, is_called_unasked, parts_of, slots_of, wrapped_by
from .places import BYTES, MISSING, TEXTS, VALUES, Bytes, Contents, Place, found_or_missing

FEW: Final = 32  # members of a container that are places by themselves
MOST: Final = 1024  # places
LINKED: Final = (LinkedProgram, LinkedRoutine)
_SEQUENCES: Final = (list, tuple, set, frozenset, deque)
_READERS: Final = (attrgetter, itemgetter, methodcaller)
_METHODS: Final = (FunctionType, staticmethod, classmethod, property)
_IMPORTERS: Final = frozenset(("import_module", "__import__", "modules"))
_OF_LIBRARIES: Final = (FunctionType, BuiltinFunctionType, ModuleType, type)


class Code(NamedTuple):
    """Code that ran in a capture, with its globals; of a library, or of the program."""

    code: CodeType
    outer: dict[str, Any]
    library: bool

    def look(self, search: Search, _name: str) -> None:
        """What it names."""
        (search.library_code if self.library else search.code)(self.code, self.outer)


class Extra(NamedTuple):
    """Attributes of an argument that are no members of it: a run does not look at them."""

    names: tuple[str, ...]

    def look(self, search: Search, name: str) -> None:
        """Refuse those that the code names."""
        for each in search.attributes.intersection(self.names):
            search._refuse(joined(name, each))


class TooMany(Exception):  # noqa: N818 - it is caught in this package, and no error
    """The function depends on too much; the name is that of the last place."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Search:
    """One search. `whole`: ids of objects, classes and modules of which all attributes count. `ran`: the program's code
    that did run, if that is known: no other code counts.

    Found: `places` and their `names`; `shapes` and their `shape_names`; `classes`: the names in those whose number is a
    shape, by id(); `loose` ones, which `settle` renews; `opaque` names; `tensors`, names by
    id(); `codes` of the program's functions; `objects` by id(), with their names; `constants`, those of the names given
    that were met.
    """

    def __init__(
        self, constants: frozenset[str], whole: frozenset[int] = frozenset(), ran: AbstractSet[CodeType] | None = None
    ) -> None:
        self._ran = ran
        self.attributes: set[str] = set()  # that the code names
        self.roots: list[tuple[Any, str]] = []
        self._given = constants
        self._whole = whole
        self.clear()

    def clear(self) -> None:
        """Nothing is found yet, but for the names in the code."""
        self.places: list[Place] = []
        self.names: list[str] = []
        self.loose: list[int] = []
        self.shapes: list[Place] = []
        self.shape_names: list[str] = []
        self.classes: dict[int, frozenset[str]] = {}
        self._noted: set[tuple[int, str]] = set()  # globals and cells
        self.opaque: list[str] = []
        self.tensors: dict[int, str] = {}
        self.codes: set[CodeType] = set()
        self.objects: dict[int, tuple[Any, str]] = {}
        self.constants: dict[str, None] = {}
        self._todo: deque[tuple[Any, str]] = deque()

    def run(self, roots: Iterable[tuple[Any, str]]) -> None:
        """Search from these, until nothing is found that names other attributes."""
        self.roots = given = list(roots)
        before = -1
        while len(self.attributes) > before:
            before = len(self.attributes)
            self.clear()
            self._todo.extend(given)
            while self._todo:
                self._look_at(*self._todo.popleft())

    def settle(self) -> None:
        """The capture is over. A list of texts, to which the function has added texts, as to a log, is right as it is
        now."""
        for place in self.loose:
            self.places[place][0].renew()  # type: ignore[attr-defined]

    # -- what is noted ---------------------------------------------------------------------------------------------

    def note(self, get: Callable[[Any], Any], key: Any, value: Any, name: str) -> None:
        """Something is there now, and looked into."""
        if self._add((get, key, value), name) and value is not MISSING:
            self._todo.append((value, name))

    def _add(self, place: Place, name: str) -> bool:
        if self.excuses(name):
            return False
        self._count(name)
        self.places.append(place)
        self.names.append(name)
        return True

    def _count(self, name: str) -> None:
        if len(self.places) + len(self.shapes) >= MOST:
            raise TooMany(name)

    def _shape(self, get: Callable[[Any], Any], key: Any, name: str) -> None:
        """What `get(key)` gives now is compared by `==`: texts, functions and counts, of which all is told by that."""
        if not self.excuses(name):
            self._count(name)
            self.shapes.append((get, key, get(key)))
            self.shape_names.append(name)

    def excuses(self, name: str) -> bool:
        """Is it one of the constants that the user has named, or behind one?"""
        if self._given:
            parts = name.split(".")
            for n in range(len(parts)):
                constant = ".".join(parts[: n + 1])
                if constant in self._given:
                    self.constants[constant] = None
                    return True
        return False

    def _state(self, state: Any, name: str, *, loosely: bool = False) -> None:
        """What compares itself."""
        if self._add((state, None, True), name) and loosely:
            self.loose.append(len(self.places) - 1)

    def _refuse(self, name: str) -> None:
        """It has state that no place can tell."""
        if not self.excuses(name):
            self.opaque.append(name)

    # -- what there is ---------------------------------------------------------------------------------------------

    def _look_at(self, value: Any, name: str) -> None:
        if isinstance(value, Tensor):
            self.tensors.setdefault(id(value), name)
        elif type(value) not in VALUES and id(value) not in self.objects:
            self.objects[id(value)] = (value, name)
            for kind, look in LOOKS:
                if isinstance(value, kind):
                    look(self, value, name)
                    return
            self._other(value, name)

    def _other(self, value: Any, name: str) -> None:
        if (wrapped := wrapped_by(value)) is not None:
            self._todo += [(wrapped, name), (getattr(value, "__self__", None), name)]  # a method is a routine, perhaps
            self._cache(value, name)
        elif isinstance(value, LINKED) or is_constant(value) or is_random(value):
            return
        elif is_iterator(value):
            self._refuse(name)
        elif not is_inert(value):
            self._object(value, name)
            if is_in_c(type(value)):
                self._refuse(name)

    def _cache(self, value: Any, name: str) -> None:
        """What `functools.cache` has kept is right until it is cleared."""
        information = getattr(value, "cache_info", None)
        if information is not None:
            misses = information().misses
            self._state(lambda _: information().misses >= misses, f"{name}.cache_info")

    def _function(self, function: FunctionType, name: str) -> None:
        code = function.__code__
        owner = OWNERS[code.co_filename]
        if owner is Owner.PACKAGE:
            return
        cells: Container[str] = code.co_freevars
        if owner is Owner.PROGRAM:
            if self._ran is not None and code not in self._ran:
                return
            self.code(code, function.__globals__)
            cells = set[str]().union(*[each.cells for each in self._names(code)])
        elif root(function.__module__) in INERT:
            return
        elif not is_installed(code) and "__wrapped__" in vars(function):  # of Python's own library: it only calls that
            self._todo.append((vars(function)["__wrapped__"], name))
            return
        for free, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if free not in cells or (id(cell), free) in self._noted:
                continue
            self._noted.add((id(cell), free))
            get = cell.__getattribute__
            try:
                self.note(get, "cell_contents", cell.cell_contents, free)
            except ValueError:  # it is empty
                self.note(found_or_missing(get), "cell_contents", MISSING, free)
        self._defaults(function)
        named = None if owner is not Owner.PROGRAM else self.attributes | {"__wrapped__", "registry"}
        self._members_of(vars(function).__getitem__, vars(function), name, named)

    def _defaults(self, function: FunctionType) -> None:
        name = function.__name__
        for attribute in ("__defaults__", "__kwdefaults__"):
            found = getattr(function, attribute)
            if found:
                self._add((function.__getattribute__, attribute, found), f"{name}.{attribute}")
                self.objects[id(found)] = (found, name)
                for each in found.values() if isinstance(found, dict) else found:
                    self._todo.append((each, name))

    def code(self, code: CodeType, outer: dict[str, Any]) -> None:
        """What code of the program names, with these globals."""
        self.codes.update(within(code))
        names = self._names(code)
        self.attributes.update(*[each.attributes for each in names])
        for name in dict.fromkeys(name for each in names for name in each.globals):
            if (id(outer), name) in self._noted:
                continue
            self._noted.add((id(outer), name))
            if name in outer:
                self.note(outer.__getitem__, name, outer[name], name)
            elif name not in builtins_of(outer):
                self.note(found_or_missing(outer.__getitem__), name, MISSING, name)
        for module in dict.fromkeys(module for each in names for module in each.imports):
            self._import(module.name, module.level, outer)
        if self.attributes & _IMPORTERS:
            for name in self.attributes & sys.modules.keys():
                self._import(name, 0, outer)

    def _names(self, code: CodeType) -> list[Names]:
        """What the code names, and that of functions inside it."""
        return [names_of(each) for each in within(code) if self._ran is None or each in self._ran]

    def library_code(self, code: CodeType, outer: dict[str, Any]) -> None:
        """What a library's code names that may change: containers and objects among its globals."""
        for name in dict.fromkeys(name for each in within(code) for name in names_of(each).globals):
            found = outer.get(name)
            if type(found) not in VALUES and not isinstance(found, _OF_LIBRARIES):
                self.note(outer.__getitem__, name, found, joined(outer.get("__name__", ""), name))

    def _import(self, name: str, level: int, outer: dict[str, Any]) -> None:
        full = resolve_name("." * level + name, outer.get("__package__") or "") if level else name
        parts = full.split(".")
        for n in range(len(parts)):
            module = ".".join(parts[: n + 1])
            if module in sys.modules:
                self.note(sys.modules.__getitem__, module, sys.modules[module], module)

    def _module(self, module: ModuleType, name: str) -> None:
        found = vars(module)
        if root(module.__name__) in INERT:
            return
        only = None if id(module) in self._whole else self.attributes | {"__getattr__"}
        if is_of_program(module.__name__):
            self._members_of(found.__getitem__, found, name, only)
            if only is None:  # there may be more
                self._shape(tuple, found, name)
        else:  # of a library: what is no function or class
            data = {key: each for key, each in found.items() if not isinstance(each, FunctionType | type)}
            self._members_of(found.__getitem__, data, name, self.attributes)

    # -- containers ------------------------------------------------------------------------------------------------

    def _dict(self, value: Any, name: str) -> None:
        if value is sys.modules:
            return  # `code` looks at those that are named
        kind: Any = dict if isinstance(value, dict) else MappingProxyType  # not what a class of its own says
        found = list(kind.items(value))
        if len(found) > FEW:
            self._state(Contents(lambda: (*kind.keys(value), *kind.values(value))), name)
            self._todo.extend((each, joined(name, key)) for key, each in found if type(each) not in VALUES)
        else:
            named = type(value) is dict and all(type(key) is str for key, _ in found)
            if named:
                self._shape(tuple, value, name)
            else:
                self._state(Contents(partial(kind.keys, value)), name)
            get = partial(kind.get, value) if type(value) is not dict else value.get  # not __getitem__, which may add
            for key, each in found:
                self.note(get, key, each, joined(name, key))
        if type(value) is not dict and kind is dict:
            self._object(value, name)
            self._todo.append((getattr(value, "default_factory", None), joined(name, "default_factory")))

    def _sequence(self, value: Any, name: str) -> None:
        kind: Any = next(each for each in _SEQUENCES if isinstance(value, each))
        found = list(kind.__iter__(value))
        if kind not in (tuple, frozenset):  # whose members cannot be replaced
            loosely = all(type(each) in TEXTS for each in found)
            self._state(Contents(partial(kind.__iter__, value)), name, loosely=loosely)
        for place, each in enumerate(found):
            if type(each) not in VALUES:
                self._todo.append((each, joined(name, value._fields[place] if is_named(value) else place)))
        if type(value) is not kind:
            self._object(value, name)

    def _slice(self, value: slice, name: str) -> None:
        self._todo.extend((each, joined(name, key)) for key, each in members(value) or ())

    def _array(self, value: np.ndarray[Any, Any], name: str) -> None:
        if value.dtype.hasobject:
            self._state(Contents(lambda: value.ravel().tolist()), name)
            self._todo.extend((each, joined(name, place)) for place, each in enumerate(value.ravel().tolist()))
        else:
            self._buffer(value, name)

    def _buffer(self, value: Any, name: str) -> None:
        size = value.nbytes if isinstance(value, np.ndarray) else memoryview(value).nbytes
        if size > BYTES:
            self._refuse(name)
        else:
            self._state(Bytes(value), name)
        if type(value) is not np.ndarray and is_program_class(type(value)):
            self._object(value, name)

    # -- what leads elsewhere --------------------------------------------------------------------------------------

    def _parts(self, value: Any, name: str) -> None:
        """What is called, or looked at, by way of something that cannot be changed."""
        self._todo.extend((each, name) for each in parts_of(value))

    def _reference(self, value: Callable[[], Any], name: str) -> None:
        self.note(lambda _: value(), None, value(), name)

    def _variable(self, value: ContextVar[Any], name: str) -> None:
        self.note(lambda _: value.get(MISSING), None, value.get(MISSING), name)

    def _local(self, value: threading.local, name: str) -> None:
        """Each thread sees its own."""
        get = found_or_missing(partial(threading.local.__getattribute__, value))
        self._state(Contents(lambda: vars(value)), name)
        for key in list(vars(value)):
            self.note(get, key, get(key), joined(name, key))

    def _reader(self, value: Any, _name: str) -> None:
        """`attrgetter("rate")` names an attribute."""
        self.attributes.update(texts_in(value.__reduce__()[1]))

    # -- objects and classes ---------------------------------------------------------------------------------------

    def _object(self, value: Any, name: str) -> None:
        """The attributes of an object, and what its class has."""
        kind = type(value)
        mine = is_program_class(kind)
        only = None if not mine or self._is_whole(value, kind) else self.attributes
        try:
            found = object.__getattribute__(value, "__dict__")
        except AttributeError:
            found = {}
        else:
            self._shape(tuple, found, name)
        self._members_of(found.__getitem__, found, name, only)
        for slot in slots_of(kind):
            if only is None or slot in only:
                get = found_or_missing(partial(object.__getattribute__, value))
                self.note(get, slot, get(slot), joined(name, slot))
        if mine:
            self._todo.append((kind, kind.__name__))

    def _is_whole(self, value: Any, kind: type) -> bool:
        """May all attributes count, whether the code names them or not?"""
        if id(value) in self._whole or "__dict__" in self.attributes or "vars" in self.attributes:
            return True
        return any("__getattr__" in vars(base) or "__getattribute__" in vars(base) for base in kind.__mro__[:-1])

    def _class(self, kind: type, name: str) -> None:
        """The attributes and methods that code names, or Python calls."""
        if kind.__module__ == "builtins" or root(kind.__module__) in INERT:
            return
        for base in kind.__mro__[:-1]:
            if is_program_class(base):
                self._base(base, name)
            elif root(base.__module__) not in INERT and base is kind:  # a library's, by itself
                data = {key: each for key, each in vars(base).items() if not isinstance(each, FunctionType | property)}
                self._members_of(vars(base).__getitem__, data, name, self.attributes)
        if is_program_class(type(kind)):
            self._todo.append((type(kind), type(kind).__name__))

    def _base(self, base: type, name: str) -> None:
        found = vars(base)
        only = None if id(base) in self._whole else self.attributes
        self.classes[id(found)] = frozenset(found)
        self._shape(len, found, name)  # what is added hides what its bases have
        chosen = {key: each for key, each in found.items() if only is None or key in only or is_called_unasked(key)}
        called = []
        for key, each in chosen.items():
            if isinstance(each, _METHODS):
                called.append(key)
                self._todo.append((each, joined(name, key)))
            elif not isinstance(each, MemberDescriptorType) and key not in NOT_READ:
                self.note(found.__getitem__, key, each, joined(name, key))
        if called:
            self._shape(itemgetter(*called), found, name)

    def _members_of(
        self, get: Callable[[Any], Any], found: Mapping[Any, Any], name: str, only: set[str] | None
    ) -> None:
        for key, each in list(found.items()):
            if (only is None or key in only) and key not in NOT_READ:
                self.note(get, key, each, joined(name, key))


# How to look at what, in this order. What is in none of these classes is some object.
LOOKS: Final[tuple[tuple[Any, Callable[[Search, Any, str], None]], ...]] = (
    ((Code, Extra), lambda search, value, name: value.look(search, name)),
    (FunctionType, Search._function),
    ((MethodType, partial, staticmethod, classmethod, property, *VIEWS, *PROXIES), Search._parts),
    ((BuiltinFunctionType, MethodWrapperType), Search._parts),
    (ModuleType, Search._module),
    (type, Search._class),
    ((dict, MappingProxyType), Search._dict),
    (_SEQUENCES, Search._sequence),
    (slice, Search._slice),
    (np.ndarray, Search._array),
    (BUFFERS, Search._buffer),
    (weakref.ReferenceType, Search._reference),
    (ContextVar, Search._variable),
    (threading.local, Search._local),
    (_READERS, Search._reader),
)
