"""Examines functions, their code, and modules, for the search of the state that a function may read (`search`).

Only code that did run counts, if that is known. Of a module, the names that the code uses count.
"""

from __future__ import annotations

import decimal
import sys
from contextlib import _GeneratorContextManager
from importlib.util import resolve_name
from operator import attrgetter, methodcaller
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any, Final, NamedTuple

from ..capture.structure import joined
from ..locations.frames import OWNERS, FrameOwner
from .computed import FORMATS, SELF_ASKING
from .guard_checks import MISSING, VALUES, found_or_missing
from .kinds import INERT, builtins_of, is_of_program, parts_of, root
from .names import ATTRIBUTE, GLOBAL, VARIABLE, names_of, within
from .search import Search

_IMPORTERS: Final = frozenset(("import_module", "__import__", "modules"))
_OF_LIBRARIES: Final = (FunctionType, BuiltinFunctionType, ModuleType, type)
_CELLS: Final = frozenset(("__closure__", "cell_contents"))
_DEFAULTS: Final = ("__defaults__", "__kwdefaults__")
_OF_FUNCTIONS: Final = ("__name__", "__qualname__", "__doc__", "__annotations__")
_REGISTRY: Final = ("dispatch_cache", "cache_token")  # of functions of one dispatch: made anew when needed
_ASKING: Final = {
    id(each): each
    for each in (getattr, hasattr, vars, dir, attrgetter, methodcaller, object.__getattribute__, str.format)
}


class Code(NamedTuple):
    """Code that ran in a capture, with its globals; of a library, or of the program."""

    code: CodeType
    outer: dict[str, Any]
    library: bool

    def look(self, search: Search, _name: str) -> None:
        (look_at_library if self.library else look_at_code)(search, self.code, self.outer)


class Extra(NamedTuple):
    """Attributes of an argument other than its members: a run does not look at them."""

    names: tuple[str, ...]

    def look(self, search: Search, name: str) -> None:
        """Refuse attributes that the code names, or may name."""
        for each in self.names if search.asked else search.attributes.intersection(self.names):
            search.refuse(joined(name, each))


def ask_by_value(search: Search, value: Any, name: str) -> bool:
    """Note `getattr` and similar functions under another name: the code does not show the requested attribute."""
    if id(value) in _ASKING:
        if name.rpartition(".")[2] != value.__name__:
            search.ask(name)
        return True
    return False


def look_at_builtin(search: Search, value: Any, name: str) -> None:
    """A function or a bound method in C, which may ask for any attribute."""
    if not isinstance(value.__self__, ModuleType) and value.__name__ in SELF_ASKING | FORMATS:
        search.ask(name)
    for each in parts_of(value):
        search.follow(each, name)


def look_at_function(search: Search, function: FunctionType, name: str) -> None:
    """A function of the program, or a library's wrapper of one."""
    code = function.__code__
    owner = OWNERS[code.co_filename]
    if owner is FrameOwner.PACKAGE:
        return
    if owner is FrameOwner.INSTALLED and root(function.__globals__.get("__name__")) in INERT:
        return
    ran = search.ran is None or code in search.ran
    if owner is FrameOwner.PROGRAM and ran:
        look_at_code(search, code, function.__globals__)
    if ran or id(function) in search.whole or search.attributes.intersection(_DEFAULTS):
        for attribute in _DEFAULTS:  # they may be replaced; those of keywords are in a dict
            if found := getattr(function, attribute):
                search.note(function.__getattribute__, attribute, found, f"{function.__name__}.{attribute}")
    look_at_closure(search, function)
    for attribute in search.attributes.intersection(_OF_FUNCTIONS):
        search.attribute(function, attribute, name)
    everything = owner is not FrameOwner.PROGRAM or search.asked or id(function) in search.whole
    only = None if everything else search.attributes | {"__wrapped__", "registry"}
    search.members(vars(function).__getitem__, vars(function), name, only)


def look_at_closure(search: Search, function: FunctionType) -> None:
    """The variables of enclosing functions that the code reads."""
    code = function.__code__
    read: Any = code.co_freevars
    if OWNERS[code.co_filename] is FrameOwner.PROGRAM and not search.attributes & _CELLS:
        read = set[str]().union(*[names_of(each).cells for each in codes_in(search, code)])
    for free, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if free in read and free not in _REGISTRY:
            look_at_cell(search, cell, free)


def look_at_cell(search: Search, cell: CellType, name: str) -> None:
    """A variable of an enclosing function, which may be empty."""
    get = cell.__getattribute__
    try:
        contents = cell.cell_contents
    except ValueError:
        search.note(found_or_missing(get), "cell_contents", MISSING, name)
        return
    if isinstance(contents, _GeneratorContextManager):
        for part in (contents.func, contents.args, contents.kwds):  # a decorator makes a new one of these at each call
            search.follow(part, name)
    else:
        search.note(get, "cell_contents", contents, name, by=VARIABLE)


def look_at_code(search: Search, code: CodeType, outer: dict[str, Any]) -> None:
    """The names in code of the program with these globals."""
    search.codes.update(within(code))
    codes = codes_in(search, code)
    all_names = [names_of(each) for each in codes]
    for inner, names in zip(codes, all_names, strict=True):
        search.attributes |= names.attributes
        search.bare |= names.bare
        for expression in names.asks:
            search.ask(expression)
        for offset, path in names.paths.items():
            if search.seen is None or (inner, offset) not in search.seen:
                search.ask(path.expression)
        for expression in names.modules:
            search.ask_modules(expression)
        for expression in names.frames:
            search.refuse(expression, "returns state that a run cannot check")
    look_at_globals(search, dict.fromkeys(name for names in all_names for name in names.globals), outer)
    for module in dict.fromkeys(module for names in all_names for module in names.imports):
        look_at_import(search, module.name, module.level, outer)
    if search.attributes & _IMPORTERS:
        for name in search.attributes & sys.modules.keys():
            look_at_import(search, name, 0, outer)
    if any("__import__" in each for names in all_names for each in names.modules):
        look_at_modules(search)


def codes_in(search: Search, code: CodeType) -> list[CodeType]:
    """The code and its inner functions, as far as they count."""
    return [each for each in within(code) if search.ran is None or each in search.ran]


def look_at_globals(search: Search, names: dict[str, None], outer: dict[str, Any]) -> None:
    """The globals that code loads, and the builtins that no global hides."""
    builtins = builtins_of(outer)
    own = []
    for name in names:
        if name in outer:
            search.note(outer.__getitem__, name, outer[name], name, by=GLOBAL)
        elif name in builtins:
            own.append(name)
        else:
            search.note(found_or_missing(outer.__getitem__), name, MISSING, name)
    if own:
        free = outer.keys().isdisjoint
        search.shape(free, frozenset(own), "builtins", known=("no globals", id(outer), *own))
        for name in own:
            search.builtin(builtins, name)


def look_at_library(search: Search, code: CodeType, outer: dict[str, Any]) -> None:
    """The mutable globals that a library's code names: containers and objects."""
    for name in dict.fromkeys(name for each in within(code) for name in names_of(each).globals):
        found = outer.get(name)
        if type(found) not in VALUES and not isinstance(found, _OF_LIBRARIES):
            search.note(outer.__getitem__, name, found, joined(outer.get("__name__", ""), name))


def look_at_import(search: Search, name: str, level: int, outer: dict[str, Any]) -> None:
    """An imported module and the packages around it."""
    full = resolve_name("." * level + name, outer.get("__package__") or "") if level else name
    parts = full.split(".")
    for n in range(len(parts)):
        module = ".".join(parts[: n + 1])
        if module in sys.modules:
            search.note(sys.modules.__getitem__, module, sys.modules[module], module)


def look_at_modules(search: Search) -> None:
    """All modules of the program, for code that finds them by computed names."""
    search.shape(len, sys.modules, "sys.modules")
    for name, module in list(sys.modules.items()):
        if is_of_program(name):
            search.note(sys.modules.__getitem__, name, module, f"sys.modules.{name}")


def look_at_module(search: Search, module: ModuleType, name: str) -> None:
    """The names of a module that code uses."""
    namespace = vars(module)
    if module is decimal:
        look_at_decimals(search)
    if root(module.__name__) in INERT:
        return
    if is_of_program(module.__name__):
        everything = id(module) in search.whole
        only = None if everything else search.attributes | {"__getattr__"}
        search.members(namespace.__getitem__, namespace, name, only, by=ATTRIBUTE)
        if everything:  # there may be more
            search.shape(tuple, namespace, name)
    else:  # of a library: everything except functions and classes
        data = {key: each for key, each in namespace.items() if not isinstance(each, FunctionType | type)}
        search.members(namespace.__getitem__, data, name, search.attributes, by=ATTRIBUTE)


def look_at_decimals(search: Search) -> None:
    """The context on which all arithmetic with decimal numbers depends."""
    search.shape(decimals, None, "decimal.getcontext", known="decimals")


def decimals(_key: Any) -> tuple[Any, ...]:
    """This thread's context of decimal arithmetic."""
    found = decimal.getcontext()
    traps = tuple(found.traps.values())
    return (found.prec, found.rounding, found.Emin, found.Emax, found.capitals, found.clamp, traps)
