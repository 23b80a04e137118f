"""The search for everything that a function may find outside of its arguments.

From the names in the function's code (globals, cells, defaults, imports) the search follows references, as the code
would: called functions, objects, classes, containers. On modules, classes and objects it follows the names in the
program's code; on classes also methods that Python calls by itself (operators, properties, `__getattr__`); in
containers and objects of libraries it follows everything. So no attribute, item or method that the code can read is
left out. If some code accesses attributes by computed names (`computed`), all attributes of all objects are followed;
if an object was given to a library's code, everything behind the object is followed (`whole`).

Each reference gets a guard. State that no guard can look up (an iterator, an object of a library in C) is *opaque*.
Functions of libraries are assumed to depend only on their arguments: `kinds.INERT` has the list. `functions`, `objects`
and `containers` say how objects are examined.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from operator import attrgetter
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, Final, TypeAlias

from ..capture.structure import joined, members
from ..tensor.tensor import Tensor
from .contents import ObjectKind, dict_of
from .guard_checks import MISSING, VALUES, Guard, identity
from .kinds import NOT_READ

MAX_GUARDS: Final = 1024
_BUILT_IN: Final = (BuiltinFunctionType, type)
_SHARED: Final = (FunctionType, MethodType, ModuleType, type)  # objects behind these have other owners, too

Look: TypeAlias = "Callable[[Search, Any, str], None]"


class TooManyGuards(Exception):  # noqa: N818 - it is caught in this package, and no error
    """The function depends on too much; the name is that of the last guard."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Search:
    """One search. `whole`: ids of objects of which all attributes count, and whether everything behind them counts,
    too. `ran`: the program's code that did run, if known: no other code counts. `computed`: names that code computes
    count.

    Results: `guards` and `shapes`, with names, by identity; `kinds` of objects by id(); `builtins`; `classes`: the
    names in classes whose number of names is a shape, by id(); `states`, which `settle` renews; `opaque` objects;
    `tensors`, names by id(); `codes` of the program's functions; `objects` by id(), with their names; `constants`: the
    given names that were found; `asked`: the first expression that asks for computed names. `seen`: the calls that ask
    objects at a path, and whose objects are known; None before the capture.
    """

    def __init__(
        self,
        look: Look,
        constants: frozenset[str],
        whole: Mapping[int, bool] = MappingProxyType({}),
        ran: AbstractSet[CodeType] | None = None,
        *,
        computed: bool = True,
    ) -> None:
        self.ran = ran
        self.attributes: set[str] = set()  # that the code names
        self.whole = dict(whole)
        self.asked = self.asked_modules = ""
        self.bare: set[tuple[str, str]] = set()  # names that the code uses as values
        self.seen: AbstractSet[tuple[CodeType, int]] | None = None
        self.partial = False  # something was left out, since computed names do not count
        self._look = look
        self._given = constants
        self._computed = computed
        self._clear()

    def _clear(self) -> None:
        """Forget all findings except the names in the code."""
        self.guards: dict[Any, tuple[Guard, str]] = {}
        self.shapes: dict[Any, tuple[Guard, str]] = {}
        self.kinds: dict[int, ObjectKind] = {}
        self.builtins: dict[tuple[int, str], tuple[Mapping[str, Any], str, Any]] = {}
        self.classes: dict[int, frozenset[str]] = {}
        self.states: list[Any] = []
        self.opaque: list[tuple[str, str]] = []  # objects that no run can look up, and their names
        self.tensors: dict[int, str] = {}
        self.codes: set[CodeType] = set()
        self.objects: dict[int, tuple[Any, str]] = {}
        self.constants: dict[str, None] = {}
        self._todo: deque[tuple[Any, str]] = deque()
        self._deep = False  # the objects being followed are behind a whole one

    def run(self, roots: Iterable[tuple[Any, str]]) -> None:
        """Search from these roots, until a pass finds no new names."""
        given = list(roots)
        self._roots = {id(value) for value, _ in given}
        before: Any = None
        while before != (before := self._known()):
            self._clear()
            self._todo.extend(given)
            while self._todo:
                self._look_at(*self._todo.popleft())

    def _known(self) -> tuple[Any, ...]:
        """A measure of the findings: with more findings, a pass follows more."""
        return (len(self.attributes), len(self.bare), len(self.whole), self.asked, self.asked_modules)

    def _look_at(self, value: Any, name: str) -> None:
        if isinstance(value, Tensor):
            for key, part in members(value) or ():  # of a global tensor
                self.tensors.setdefault(id(part), joined(name, key))
            self.tensors.setdefault(id(value), name)
        elif type(value) not in VALUES and id(value) not in self.objects:
            self.objects[id(value)] = (value, name)
            self._deep = self.whole.get(id(value), False) and not isinstance(value, _SHARED)
            self._look(self, value, name)

    def take(self, again: Search) -> None:
        """Take over the findings of another search, made after the capture; guards found before keep their values."""
        self.guards = {key: self.guards.get(key, found) for key, found in again.guards.items()}
        self.shapes = {key: self.shapes.get(key, found) for key, found in again.shapes.items()}
        self.kinds = {key: self.kinds.get(key, found) for key, found in again.kinds.items()}
        self.builtins = {key: self.builtins.get(key, found) for key, found in again.builtins.items()}
        self.classes.update(again.classes)
        self.opaque, self.constants = again.opaque, {**self.constants, **again.constants}
        self.asked, self.attributes, self.objects = again.asked, again.attributes, again.objects

    def settle(self) -> None:
        """Accept the present states, at the end of the capture."""
        for each in self.states:
            each.renew()

    # -- notes -------------------------------------------------------------------------------------------------------

    def follow(self, value: Any, name: str, *, by: str = "") -> None:
        """Examine a value later. `by`: the only kind of name (`names`) under which the code has it."""
        if type(value) not in VALUES:
            bare = not by or (by, name.rpartition(".")[2]) in self.bare  # code may ask the value for attributes
            if self._deep or (self.asked and type(value) is ModuleType and bare):
                self.whole[id(value)] = True
            self._todo.append((value, name))

    def deepen(self) -> None:
        """Treat everything behind the current object as whole."""
        self._deep = True

    def note(
        self,
        get: Callable[[Any], Any],
        key: Any,
        value: Any,
        name: str,
        *,
        known: Any = None,
        by: str = "",
    ) -> None:
        """Note a guard and examine its value. `known`: the identity of the guard, if the key does not show it."""
        if self._add((get, key, value), name, known) and value is not MISSING:
            self.follow(value, name, by=by)

    def attribute(self, value: Any, attribute: str, name: str) -> None:
        """Note an attribute that Python keeps elsewhere than in the object's dict."""
        known = (attribute, id(value))
        self.note(attrgetter(attribute), value, getattr(value, attribute), joined(name, attribute), known=known)

    def _add(self, guard: Guard, name: str, known: Any = None) -> bool:
        """Add a guard; False if it is excused, or there already."""
        if self.excuses(name):
            return False
        known = identity(*guard[:2]) if known is None else known
        if known in self.guards:
            return False
        self._check_count(name)
        self.guards[known] = (guard, name)
        return True

    def _check_count(self, name: str) -> None:
        if len(self.guards) + len(self.shapes) + len(self.kinds) >= MAX_GUARDS:
            raise TooManyGuards(name)

    def shape(self, get: Callable[[Any], Any], key: Any, name: str, *, known: Any = None) -> None:
        """Note a shape: the result of `get(key)` is compared by `==`."""
        known = (id(get), id(key)) if known is None else known
        if known not in self.shapes and not self.excuses(name):
            self._check_count(name)
            self.shapes[known] = ((get, key, get(key)), name)

    def state(self, state: Any, name: str, *, renewed: bool = False) -> None:
        """Note a state that compares itself. `renewed`: accept its state after the capture."""
        if self._add((state, None, True), name) and renewed:
            self.states.append(state)

    def builtin(self, names: Mapping[str, Any], name: str) -> None:
        if not self.excuses(name):
            self.builtins[id(names), name] = (names, name, names[name])
            if not isinstance(names[name], _BUILT_IN):
                self.follow(names[name], name)

    def kind(self, value: Any, name: str) -> None:
        """Note an object's class and the dict of its attributes."""
        if not self.excuses(name):
            self._check_count(name)
            self.kinds[id(value)] = ObjectKind(value, id(value) not in self._roots, type(value), dict_of(value))

    def members(
        self,
        get: Callable[[Any], Any],
        namespace: Mapping[Any, Any],
        name: str,
        only: AbstractSet[str] | None,
        *,
        by: str = "",
    ) -> None:
        """Note the members of these names, or all."""
        for key, member in list(namespace.items()):
            if (only is None or key in only) and (key not in NOT_READ or key in self.attributes):
                self.note(get, key, member, f"{name}.{key}" if name else str(key), by=by)

    # -- refusals, and excuses ---------------------------------------------------------------------------------------

    def excuses(self, name: str) -> bool:
        """Return whether it is a constant that the user has named, or behind one."""
        if self._given:
            parts = name.split(".")
            for n in range(len(parts)):
                constant = ".".join(parts[: n + 1])
                if constant in self._given:
                    self.constants[constant] = None
                    return True
        return False

    def refuse(self, name: str, what: str = "has state that a run cannot check") -> None:
        """Refuse an object whose state no guard can look up."""
        if not self.excuses(name):
            self.opaque.append((f"{name} {what}", name))

    def ask(self, expression: str) -> None:
        """Note that code asks for attributes by computed names."""
        if expression and not self.excuses(called(expression)):
            self.partial = self.partial or not self._computed
            self.asked = self.asked or (expression if self._computed else "")

    def ask_modules(self, expression: str) -> None:
        """Note that code asks for modules by computed names."""
        if not self.excuses(called(expression)):
            self.partial = self.partial or not self._computed
            self.asked_modules = self.asked_modules or (expression if self._computed else "")


def called(expression: str) -> str:
    """The called part of an expression, by which a user can name it as a constant."""
    return expression.partition("(")[0].strip()
