"""Watches a capture for accesses that no search of code and data can find.

A profile function sees each call that this thread makes, also in libraries:

- code of the program that the search has not found, such as code of `eval`, or a function that a library had kept
- objects that are passed to libraries' code, which may read any of their attributes, and objects behind them
- functions in C whose state no guard can look up (`readers`): clocks, files, random numbers of the system and of
  NumPy, other threads

A profiler that is already active is called as before, if it is a function; one in C (cProfile) stays active, and then
nothing is watched. Errors are raised at the end of the capture, since the function may catch those raised inside of it.
"""

from __future__ import annotations

import gc
import os
import random
import sys
from collections.abc import Callable, Iterable
from importlib.util import resolve_name
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final, TypeAlias

import numpy as np

from ...interpreter.concurrency.blocks import ends_block
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import CaptureError
from ..locations.frames import OWNERS, PACKAGE, PROGRAM
from .computed import PATHS, WHOLE
from .contents import dict_of
from .guard_checks import MISSING
from .guards import Guards, refusal
from .kinds import INERT, is_installed, is_of_program, is_program_class, root
from .names import expression_of, names_of
from .readers import (
    DRAWING,
    OWN,
    PICKLES,
    SILENT,
    THREADS,
    is_of_package,
    is_read,
    is_read_of,
    is_silent,
    sources_in,
    state_of,
)
from .search import called

Profile: TypeAlias = Callable[[FrameType, str, Any], Any]
_GROUPS: Final = (tuple, list, set, frozenset, dict)


class Watch:
    """`with Watch(guards):` while a function is captured."""

    def __init__(self, guards: Guards) -> None:
        self._guards = guards
        self._known: dict[CodeType, bool] = {}  # code -> it has nothing new
        self._closures: dict[CodeType, dict[str, Any]] = {}  # new code, with its globals
        self._ran: set[CodeType] = set()
        self._before: Profile | None = None
        self._set: Profile | None = None  # the function by which calls are watched, while they are
        self._watched = False
        self._replaced = False  # the function has set another profiler
        self._threads = False  # it has started threads
        self._collected = False  # the garbage collector runs by itself
        self._states: dict[int, Any] = {}  # of sources of random numbers, by id()
        self._drawn: dict[str, Any] = {}  # sources that libraries may use, by name
        self._error: CaptureError | None = None

    def __enter__(self) -> None:
        before: Any = sys.getprofile()
        sources = [value for _, value in sources_in(self._guards.found)]
        self._states = {id(value): state_of(value) for value in (np.random.mtrand._rand, random._inst, *sources)}
        try:
            with SHIELD:
                self._collected = gc.isenabled()
                gc.disable()  # callbacks and finalisers that it would run here are no part of the function
                if before is None or callable(before):
                    self._before, self._set = before, self._see if before is None else self._see_and_tell
                    sys.setprofile(self._set)
        except BaseException:
            self.__exit__()
            raise

    @ends_block
    def __exit__(self, *_: object) -> None:
        with SHIELD:
            if self._set is not None:
                self._replaced = sys.getprofile() != self._set
                self._set, self._watched = None, True  # otherwise it would keep itself alive
                if not self._replaced:  # otherwise the function has chosen the profiler
                    sys.setprofile(self._before)
            if self._collected:
                gc.enable()

    def settle(self) -> None:
        """Finish the capture; CaptureError for state that no run can check."""
        self._find_closures()
        known = self._watched and not self._replaced and not self._threads
        if self._replaced and not self._guards.excuses("sys.setprofile"):
            self._error = self._error or refusal(
                "the function replaces the profile function by which its capture is watched", "sys.setprofile"
            )
        search = self._guards.settle(self._ran if known else None)
        if self._error is not None:
            raise self._error
        for name, value in (*sources_in(search), *self._drawn.items()):
            if not search.excuses(name) and self._states.get(id(value)) != state_of(value):
                raise refusal(f"{name} returns different numbers each time", name)

    def _find_closures(self) -> None:
        """Find the functions with new code that are still alive, in one pass over all objects."""
        codes = self._closures
        referrers = gc.get_referrers(*codes) if codes else ()
        functions = [each for each in referrers if isinstance(each, FunctionType) and each.__code__ in codes]
        for function in functions:
            self._guards.reached(function, "")
        for code in codes.keys() - {each.__code__ for each in functions}:
            self._guards.ran(code, codes[code])

    # -- observations ------------------------------------------------------------------------------------------------

    def _see_and_tell(self, frame: FrameType, event: str, argument: Any) -> None:
        self._see(frame, event, argument)
        if self._before is not None:
            self._before(frame, event, argument)

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            if not self._known.get(frame.f_code):
                self._called(frame, frame.f_code)
        elif event == "c_call":
            self._called_in_c(frame, argument)

    def _called(self, frame: FrameType, code: CodeType) -> None:
        """Handle the call of a Python function."""
        owner = OWNERS[code.co_filename]
        if owner is PROGRAM:
            self._ran.add(code)
        if owner is PACKAGE or code in self._guards.found.codes:
            self._known[code] = True
        elif owner is PROGRAM:
            self._known[code] = True
            if not code.co_filename.startswith("<") or is_made_by_program(frame):
                self._new_code(frame, code)
        else:
            self._library(frame, code)

    def _new_code(self, frame: FrameType, code: CodeType) -> None:
        """Note code of the program that the search has not found."""
        if code.co_name == "<module>" and is_silent(frame):  # a module that is imported
            return
        if code.co_freevars:
            self._closures[code] = frame.f_globals
        else:
            self._guards.ran(code, frame.f_globals)

    def _library(self, frame: FrameType, code: CodeType) -> None:
        """Handle a library's code: its state, and the program's objects that it receives."""
        module = frame.f_globals.get("__name__", "")
        name = root(module)
        caller = frame.f_back
        asked = caller is not None and OWNERS[caller.f_code.co_filename] is PROGRAM
        if module == "os" and code.co_qualname.startswith("_Environ."):
            self._guards.reached(os.environ, "os.environ")
        elif (module, code.co_name) in _IMPORTERS:
            self._imported(frame)
        elif name == "random" and code.co_name == "__init__" and frame.f_locals.get("x", 0) is None:
            self._refuse(frame, "random.Random")
        elif asked and caller is not None and code.co_name in OWN.get(module, ()):
            self._refuse(frame, f"{module}.{code.co_name}")
        elif is_installed(code) and name not in INERT | SILENT:
            self._known[code] = True
            self._guards.ran(code, frame.f_globals, library=True)
        if name in DRAWING:
            self._drawn["numpy.random"] = np.random.mtrand._rand
        if asked and (name not in SILENT or name == "inspect"):
            self._given(frame.f_locals.values())

    def _imported(self, frame: FrameType) -> None:
        """Note a module that is found by its name, or an object in it."""
        name, package = str(frame.f_locals.get("name")), frame.f_locals.get("package")
        full = resolve_name(name, package) if name.startswith(".") else name
        path = full.replace(":", ".").split(".")
        for n in range(len(path)):
            module = sys.modules.get(".".join(path[: n + 1]))
            if module is not None:
                self._guards.reached(module, module.__name__)
        self._guards.named(path)

    def _given(self, values: Iterable[Any]) -> None:
        """Note the objects that a library's function receives: it may read all of them."""
        for value in list(values):
            if type(value) in _GROUPS:
                if value:
                    self._given(value.values() if type(value) is dict else value)
            elif has_attributes(value):
                self._guards.given(value)

    def _called_in_c(self, frame: FrameType, function: Any) -> None:
        owner = getattr(function, "__self__", None)
        name = getattr(function, "__name__", "")  # or another callable
        if not isinstance(owner, ModuleType) and owner is not None:
            self._method(frame, owner, name)
            return
        module = owner.__name__ if owner is not None else function.__module__ or ""
        if module == "_thread" and name in THREADS:
            if not is_of_package(frame):
                self._threads = True
                self._refuse(frame, "threading.Thread")
        elif name in PATHS and module == "builtins":
            self._asked(frame)
        elif module == "_pickle" and name in PICKLES:
            self._guards.asks(expression_of(frame) or name)
        elif is_read(module, name, frame) and not is_silent(frame):
            self._refuse(frame, f"{module}.{name}")

    def _asked(self, frame: FrameType) -> None:
        """Find the object that the program asks for an attribute by a computed name."""
        if OWNERS[frame.f_code.co_filename] is not PROGRAM:
            return
        path = names_of(frame.f_code).paths.get(frame.f_lasti)
        if path is not None:
            value = value_at(frame, path.names)
            if value is MISSING:
                self._guards.asks(path.expression)
            else:
                self._guards.asked(value, frame.f_code, frame.f_lasti, path.expression)

    def _method(self, frame: FrameType, owner: Any, name: str) -> None:
        kind = owner if isinstance(owner, type) else type(owner)
        if name in WHOLE and has_attributes(owner):
            self._guards.given(owner)
        elif root(kind.__module__) == "_pickle" and name in PICKLES:
            self._guards.asks(expression_of(frame) or name)
        elif is_read_of(kind, name) and not is_silent(frame):
            self._refuse(frame, f"{kind.__module__}.{kind.__qualname__}.{name}")

    def _refuse(self, frame: FrameType, name: str) -> None:
        """Refuse a result that no run can check."""
        expression = expression_of(frame) or name
        if self._error is None and not any(map(self._guards.excuses, (called(expression), name))):
            self._error = refusal(f"{expression} returns state that a run cannot check", called(expression) or name)


_IMPORTERS: Final = frozenset((("importlib", "import_module"), ("pkgutil", "resolve_name")))


def value_at(frame: FrameType, path: tuple[str, ...]) -> Any:
    """The object at a path, as far as it is stored: computing a property again could have effects."""
    first, *attributes = path
    names = frame.f_locals if first in frame.f_locals else frame.f_globals
    value = names.get(first, MISSING)
    for name in attributes:
        stored = dict_of(value) if has_plain_attribute(type(value), name) else None
        value = (stored or {}).get(name, MISSING)
    return value


def has_plain_attribute(kind: type, name: str) -> bool:
    """Return whether the attribute is stored in the object itself, not computed by its class."""
    finds: Any = kind.__getattribute__
    if finds not in (object.__getattribute__, ModuleType.__getattribute__):
        return False
    attribute = next((vars(base)[name] for base in kind.__mro__ if name in vars(base)), None)
    return not hasattr(type(attribute), "__set__") and not hasattr(type(attribute), "__delete__")


def is_made_by_program(frame: FrameType) -> bool:
    """Return whether code without a file belongs to the program, and not to a library's generated code, such as
    `namedtuple`.

    Code of no module counts as the program's: `__main__` may be a library that runs the program (`python -m`).
    """
    module = frame.f_globals.get("__name__")
    return module is None or (is_of_program(module) and not module.startswith("namedtuple_"))


def has_attributes(value: Any) -> bool:
    """Return whether the program can set attributes of the value."""
    if isinstance(value, ModuleType):
        return root(value.__name__) not in INERT
    if isinstance(value, type):
        return is_program_class(value)
    if isinstance(value, FunctionType):
        return OWNERS[value.__code__.co_filename] is PROGRAM
    return is_program_class(type(value))
