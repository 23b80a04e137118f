"""Guards: the Python state outside of the arguments that a capture depends on.

A function reads globals and cells of its closure, and finds tensors, numbers and other objects there, behind them, or
in functions that it calls. When the capture begins, a search (`search`) notes a guard for each of these. Before each
run all guards are checked (`guard_checks`); if one fails, the function is captured anew.

During the capture, `watch` observes what the search cannot see: code that was not found, objects that libraries
receive, functions that read state outside of Python (clocks, files, random numbers). The search is then repeated with
these observations, and only for code that did run. Guards of the first search keep their values from before the
capture. State that cannot be looked up before each run is a CaptureError at the end of the capture, unless the user has
named it as a constant. So no read goes unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from operator import itemgetter
from types import CodeType
from typing import Any, Final

from ...interpreter.errors import CaptureError
from ..capture.structure import joined, members
from ..locations.locations import located
from ..tensor.tensor import Tensor
from .contents import Kinds
from .functions import Code, Extra
from .guard_checks import LOOKUP_ERRORS, VALUES, Guard, IdentityGuards, Shapes, reference
from .look_at import look_at
from .search import MAX_GUARDS, Search, TooManyGuards

PLAIN_CONTAINERS: Final = (dict, list, tuple, slice)
REMEDY: Final = 'pass it as an argument, or name it as a constant: routine(constants=["{}"])'


class Guards:
    """The state that a function depends on besides its arguments. `behind`: objects behind the arguments, with names
    (`behind_arguments`). `tensors`: names of tensors by id(); `constants`: the user's constants that were found."""

    def __init__(
        self, function: Any, behind: Iterable[tuple[Any, str]] = (), constants: frozenset[str] = frozenset()
    ) -> None:
        self._roots: list[tuple[Any, str]] = [(function, ""), *behind]
        self._given = constants
        self._late: dict[Any, Code] = {}
        self._reached: list[tuple[Callable[[], Any], str]] = []  # reached in other ways; those made inside are gone
        self._whole: list[tuple[Callable[[], Any], bool]] = []  # objects that a library received or was asked for
        self._named: set[str] = set()  # attributes that a library accesses by name
        self._seen: set[tuple[CodeType, int]] = set()  # calls whose object is known
        self._expression = ""  # the first of those calls
        self._asked = ""  # the expression by which a function in C accesses any attributes
        try:
            search = self._searched()
        except CaptureError:  # computed names lead to too much, and that code may not run
            search = self._searched(computed=False)
        self._search: Search | None = search
        self._arrange(search)
        self.tensors = search.tensors

    def _searched(
        self, ran: AbstractSet[CodeType] | None = None, *, after: bool = False, computed: bool = True
    ) -> Search:
        reached = [(value, name) for get, name in self._reached if (value := get()) is not None]
        whole = {id(value): deep for get, deep in self._whole if (value := get()) is not None}
        search = Search(look_at, self._given, whole, ran, computed=computed)
        search.attributes |= self._named
        search.seen = self._seen if after else None
        search.ask(self._asked)
        try:
            search.run((*self._roots, *((each, "") for each in self._late.values()), *reached))
        except TooManyGuards as error:
            asked = f", since {search.asked} may read any attribute" if search.asked else ""
            name = error.name or "the function"
            raise refusal(
                f"{name} leads to more than {MAX_GUARDS} objects outside of the arguments{asked}, "
                "and a run must check all of them",
                error.name.partition(".")[0],
            ) from None
        return search

    # -- while the capture runs ------------------------------------------------------------------------------------

    @property
    def found(self) -> Search:
        """The findings of the search, until `settle`."""
        if self._search is None:
            raise AssertionError("the capture has ended")
        return self._search

    def ran(self, code: CodeType, outer: dict[str, Any], *, library: bool = False) -> None:
        """Note code that ran but was not found, with its globals."""
        self._late.setdefault((code, id(outer)), Code(code, outer, library))

    def reached(self, value: Any, name: str) -> None:
        """Note an object that was reached in a way that the search does not see."""
        self._reached.append((reference(value), name))

    def asked(self, value: Any, code: CodeType, offset: int, expression: str) -> None:
        """Note an object that was asked for an attribute by a computed name: any attribute may count."""
        self._expression = self._expression or expression
        self._seen.add((code, offset))
        self._whole.append((reference(value), False))

    def given(self, value: Any) -> None:
        """Note an object that a library's code received: everything behind it may count."""
        self._whole.append((reference(value), True))

    def named(self, names: Iterable[str]) -> None:
        """Note attributes that a library accesses by name."""
        self._named.update(names)

    def asks(self, expression: str) -> None:
        """Note that a function in C may access any attribute."""
        self._asked = self._asked or expression

    def excuses(self, name: str) -> bool:
        """Return whether the user has named it, or an object around it, as a constant."""
        return self.found.excuses(name)

    def settle(self, ran: AbstractSet[CodeType] | None = None) -> Search:
        """At the end of the capture, add the observations. CaptureError for state that cannot be guarded.

        `ran`: the program's code that did run, if known. Reads of other code, such as that of a side effect's callback,
        are left out, since they did not reach the program. Returns the findings that count.
        """
        search = self.found
        new = self._late or self._reached or self._whole or self._named or self._asked
        if new or search.asked or search.partial or (ran is not None and search.codes - ran):
            search.take(self._searched(ran, after=True))
        search.settle()
        self._arrange(search)
        if search.opaque:
            what, name = search.opaque[0]
            expression = search.asked or self._expression
            raise refusal(f"{what}, and {expression} may read any attribute" if expression else what, name)
        self._search = None
        self._roots, self._late, self._reached, self._whole = [], {}, [], []  # keep only the objects that guards need
        return search

    def _arrange(self, search: Search) -> None:
        """Arrange the findings for the checks before each run."""
        kinds: Guard = (Kinds(search.kinds.values()), None, True)
        self._identity_guards = IdentityGuards((*search.guards.values(), (kinds, "the class of an object")))
        self._shapes = Shapes((*search.shapes.values(), *builtins_in(search)), search.classes)
        self.constants = search.constants  # grows with excused guards

    # -- before each run -------------------------------------------------------------------------------------------

    def hold(self) -> bool:
        """Return whether everything is unchanged."""
        try:
            return self._identity_guards.hold() and self._shapes.hold()
        except LOOKUP_ERRORS:
            return False

    def broken(self) -> str | None:
        """The name of the first guard that fails; None if all are unchanged."""
        return self._identity_guards.broken() or self._shapes.broken()


def builtins_in(search: Search) -> Iterator[tuple[Guard, str]]:
    """The guards for the builtins that code uses: one for each mapping of builtins."""
    by_mapping: dict[int, list[tuple[Mapping[str, Any], str, Any]]] = {}
    for each in search.builtins.values():
        by_mapping.setdefault(id(each[0]), []).append(each)
    for some in by_mapping.values():
        names, values = [name for _, name, _ in some], tuple(value for _, _, value in some)
        yield (itemgetter(*names), some[0][0], values if len(values) > 1 else values[0]), f"a name of builtins: {names}"


def refusal(what: str, name: str) -> CaptureError:
    """The error for state that cannot be guarded, with the remedy."""
    return located(CaptureError(f"{what}: {REMEDY.format(name)}"))


def behind_arguments(arguments: Iterable[tuple[str, Any]]) -> Iterator[tuple[Any, str]]:
    """Objects that a function may reach through its arguments and that the call's key does not cover, with names: other
    objects, the classes of containers, and attributes that are no members."""
    for name, value in arguments:
        if isinstance(value, Tensor) or type(value) in VALUES:  # also a global tensor: its form is in the key
            continue
        named_members = members(value)
        if named_members is None:
            yield value, name
            continue
        yield from behind_arguments((joined(name, key), each) for key, each in named_members)
        kind = type(value)
        if kind not in PLAIN_CONTAINERS:
            yield kind, kind.__name__
            fields = {key for key, _ in named_members} if not isinstance(value, dict | list) else ()
            yield Extra(tuple(key for key in getattr(value, "__dict__", ()) if key not in fields)), name
