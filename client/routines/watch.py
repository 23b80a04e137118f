"""Watching a capture: what the function does that no search of its code and data can see.

A profile function sees each call that this thread makes, also in libraries:

- code of the program that the search has not found, such as that of `eval`, or of a function that a library had kept
- attributes that are asked for by computed names (`getattr`, `vars`), and objects that are given to libraries' code,
  which may read any of their attributes
- functions in C that read what no place can tell: clocks, files, the environment's and NumPy's random numbers

A profiler that runs already is called as before, if it is a function; one in C (cProfile) keeps its place, and then
nothing is watched. What a library does for the log, for warnings and for imports does not count: nothing of it reaches
a program. Errors are raised when the capture is over, since the function may catch what is raised inside of it.
"""

from __future__ import annotations

import dis
import gc
import inspect
import linecache
import random
import sys
from collections.abc import Callable, Iterator
from functools import cached_property
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any, Final, TypeAlias

import numpy as np

from ...interpreter.concurrency.blocks import ends_block
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import CaptureError
from ..locations.frames import OWNERS, PACKAGE, PROGRAM
from .guards import Guards, refusal
from .kinds import INERT, is_installed, is_of_program, is_program_class, is_random, root

Profile: TypeAlias = Callable[[FrameType, str, Any], Any]

# Functions in C whose results depend on more than their arguments, by module, or by module and class: all of them, but
# for the names given.
CLOCKS: Final = frozenset(("now", "today", "utcnow"))
READS: Final = frozenset(
    ("read", "read1", "readall", "readinto", "readline", "readlines", "getvalue", "getbuffer", "tell")
)
HARMLESS: Final = {
    "time": frozenset(("sleep", "strftime", "strptime", "mktime")),
    "posix": frozenset(("fspath", "_path_normpath", "register_at_fork", "_path_splitroot_ex")),
    **dict.fromkeys(
        ("_socket", "_sqlite3", "sqlite3", "select", "_posixsubprocess", "_queue", "_ctypes", "gc"), frozenset()
    ),
}
READERS: Final = {
    "builtins": frozenset(("input", "globals")),
    "_io": frozenset(("open", "open_code")),
    "sys": frozenset(("_getframe",)),
}
ASKED: Final = frozenset(("getattr", "vars", "hasattr"))  # of an object, for any of its attributes
WHOLE: Final = frozenset(("__reduce_ex__", "__reduce__", "__getstate__", "__dir__"))  # of its object
# Libraries that read clocks, files and more, without effect on what their callers get.
SILENT: Final = frozenset(
    ("logging", "warnings", "importlib", "linecache", "traceback", "inspect", "_pytest", "threading", "tqdm")
)
_GLOBALS: Final = ("LOAD_GLOBAL", "LOAD_NAME")
_NOTHING: Final = ("PUSH_NULL", "PRECALL", "CACHE")
_LOADS: Final = ("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE")  # and what begins like them


class Watch:
    """`with Watch(guards):` while a function is captured."""

    def __init__(self, guards: Guards) -> None:
        self._guards = guards
        self._known: dict[CodeType, bool] = {}  # code -> has it nothing new?
        self._ran: set[CodeType] = set()
        self._before: Profile | None = None
        self._on = False
        self._collected = False  # does the garbage collector run by itself?
        self._drawn: list[tuple[str, Any, Any]] = []  # name, source of random numbers, its state
        self._error: CaptureError | None = None

    def __enter__(self) -> None:
        before: Any = sys.getprofile()
        self._drawn = [(name, value, state_of(value)) for name, value in self._sources()]
        try:
            with SHIELD:
                self._collected = gc.isenabled()
                gc.disable()  # what it would run here, callbacks and finalisers, is no part of the function
                if before is None or callable(before):
                    self._before, self._on = before, True
                    sys.setprofile(self._see if before is None else self._see_and_tell)
        except BaseException:
            self.__exit__()
            raise

    @ends_block
    def __exit__(self, *_: object) -> None:
        with SHIELD:
            if self._on:
                sys.setprofile(self._before)
            if self._collected:
                gc.enable()

    @property
    def ran(self) -> set[CodeType] | None:
        """The program's code that did run; None if that was not watched."""
        return self._ran if self._on else None

    def check(self) -> None:
        """CaptureError for the first thing that no run can look at."""
        if self._error is not None:
            raise self._error
        for name, value, state in self._drawn:
            if state_of(value) != state:
                raise refusal(f"{name} gives other numbers each time", name)

    def _sources(self) -> Iterator[tuple[str, Any]]:
        """The sources of random numbers that the function can reach."""
        found = self._guards.found
        for value, name in list(found.objects.values()):
            if is_random(value) and not self._guards.excuses(name):
                yield name, value
            elif value is np and "random" in found.attributes and not self._guards.excuses(f"{name}.random"):
                yield f"{name}.random", np.random.mtrand._rand
            elif value is random and not self._guards.excuses(name):
                yield name, random._inst

    # -- what is seen ----------------------------------------------------------------------------------------------

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
        """A function in Python."""
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
        """Code of the program that the search has not found."""
        if code.co_name == "<module>" and is_silent(frame):  # a module that is imported
            return
        functions = functions_of(code) if code.co_freevars else []
        for function in functions:
            self._guards.reached(function, "")
        if not functions:
            self._guards.ran(code, frame.f_globals)

    def _library(self, frame: FrameType, code: CodeType) -> None:
        """A library's code: its own state, and the objects of the program that it gets."""
        module = frame.f_globals.get("__name__", "")
        name = root(module)
        if module == "os" and code.co_qualname.startswith("_Environ."):
            import os

            self._guards.reached(os.environ, "os.environ")
        elif module == "importlib" and code.co_name == "import_module":
            self._imported(frame)
        elif name == "random" and code.co_name == "__init__" and frame.f_locals.get("x", 0) is None:
            self._refuse(frame, "random.Random")
        elif is_installed(code) and name not in INERT | SILENT:
            self._known[code] = True
            self._guards.ran(code, frame.f_globals, library=True)
        if frame.f_back is not None and OWNERS[frame.f_back.f_code.co_filename] is PROGRAM and name not in SILENT:
            self._given(frame)

    def _imported(self, frame: FrameType) -> None:
        module = sys.modules.get(str(frame.f_locals.get("name")))
        if module is not None:
            self._guards.reached(module, module.__name__)

    def _given(self, frame: FrameType) -> None:
        """Objects that a library's function gets may be read as a whole."""
        found = self._guards.found.objects
        for each in list(frame.f_locals.values()):
            for one in each if type(each) in (tuple, list) else (each,):
                known = found.get(id(one))
                if known is not None and has_attributes(one):
                    self._guards.reached(one, known[1], whole=True)

    def _called_in_c(self, frame: FrameType, function: Any) -> None:
        owner, name = (
            getattr(function, "__self__", None),
            getattr(function, "__name__", ""),
        )  # or something that is called
        if isinstance(owner, ModuleType) or owner is None:
            module = owner.__name__ if owner is not None else function.__module__ or ""
            if name in ASKED and module == "builtins":
                self._asked(frame)
            elif is_read(module, name, frame) and not is_silent(frame):
                self._refuse(frame, f"{module}.{name}")
        else:
            self._method(frame, owner, name)

    def _method(self, frame: FrameType, owner: Any, name: str) -> None:
        kind = owner if isinstance(owner, type) else type(owner)
        module = root(kind.__module__)
        if name in WHOLE and id(owner) in self._guards.found.objects:
            self._guards.reached(owner, self._guards.found.objects[id(owner)][1], whole=True)
        elif (
            (name in CLOCKS and module == "datetime")
            or (name in READS and module == "_io")
            or (module in HARMLESS and name not in HARMLESS[module])
        ) and not is_silent(frame):
            self._refuse(frame, f"{kind.__module__}.{kind.__qualname__}.{name}")

    def _refuse(self, frame: FrameType, name: str) -> None:
        """A result that no run can look at."""
        expression = expression_of(frame) or name
        called = expression.partition("(")[0].strip()
        if self._error is None and not any(map(self._guards.excuses, (called, name))):
            self._error = refusal(f"{expression} gives what no run can look up", called)

    # -- attributes by computed names ------------------------------------------------------------------------------

    def _asked(self, frame: FrameType) -> None:
        """`getattr(net, name)`, and the like, in the program's code: any attribute may count."""
        if OWNERS[frame.f_code.co_filename] is not PROGRAM:
            return
        loads = arguments_before(frame)
        known, value, rest = value_of(frame, loads)
        if is_plain_name(rest):
            return
        if not known:
            self._refuse(frame, "getattr")
        elif has_attributes(value):
            found = self._guards.found.objects.get(id(value), (value, named(value)))
            self._guards.reached(value, found[1], whole=True)
            if not isinstance(value, type | ModuleType) and is_program_class(type(value)):
                self._guards.reached(type(value), type(value).__name__, whole=True)


def is_read(module: str, name: str, frame: FrameType) -> bool:
    """Does that function in C give what no place can tell, to code at the frame?"""
    if module in HARMLESS:
        return name not in HARMLESS[module]
    own = name not in ("globals", "_getframe") or OWNERS[frame.f_code.co_filename] is PROGRAM
    return own and name in READERS.get(module, ())


def is_silent(frame: FrameType | None) -> bool:
    """Is the frame one of tensord, or of a library whose readings do not reach the program, up to the program's own?"""
    while frame is not None:
        owner = OWNERS[frame.f_code.co_filename]
        if owner is PROGRAM and frame.f_code.co_name != "<module>":
            return False
        if owner is PACKAGE or (owner is not PROGRAM and root(frame.f_globals.get("__name__", "")) in SILENT):
            return True
        frame = frame.f_back
    return False


def is_made_by_program(frame: FrameType) -> bool:
    """Is code without a file the program's, rather than what a library has made, such as `namedtuple`?"""
    module = frame.f_globals.get("__name__", "__main__")
    return is_of_program(module) and not module.startswith("namedtuple_")


def has_attributes(value: Any) -> bool:
    """Has it attributes that the program may set?"""
    if isinstance(value, ModuleType):
        return root(value.__name__) not in INERT
    if isinstance(value, type):
        return is_program_class(value)
    return is_program_class(type(value)) and not isinstance(value, FunctionType)


def named(value: Any) -> str:
    """A name for something that has no other."""
    return str(getattr(value, "__name__", type(value).__name__))


def state_of(value: Any) -> Any:
    """What tells whether numbers were drawn since."""
    if isinstance(value, random.Random):
        return value.getstate()
    generator = value if isinstance(value, np.random.BitGenerator) else getattr(value, "bit_generator", None)
    return repr(value.get_state(legacy=False) if generator is None else generator.state)


def functions_of(code: CodeType) -> list[FunctionType]:
    """The functions with that code."""
    return [each for each in gc.get_referrers(code) if isinstance(each, FunctionType) and each.__code__ is code]


def expression_of(frame: FrameType | None) -> str:
    """The text of the call that the program's code is at, "" if its source is not there."""
    while frame is not None and OWNERS[frame.f_code.co_filename] is not PROGRAM:
        frame = frame.f_back
    if frame is None:
        return ""
    positions = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    line, end, first, last = positions
    if line is None or first is None or last is None or line != end:
        return ""
    text = linecache.getline(frame.f_code.co_filename, line, frame.f_globals)
    return text.encode()[first:last].decode(errors="replace")


def arguments_before(frame: FrameType) -> list[dis.Instruction]:
    """The instructions that load the arguments of the call that the frame is at."""
    before: list[dis.Instruction] = []
    for each in dis.get_instructions(frame.f_code):
        if each.offset >= frame.f_lasti:
            break
        before.append(each)
    starts = [n for n, each in enumerate(before) if each.opname in _GLOBALS and each.argval in ASKED]
    behind = before[starts[-1] + 1 :] if starts else []
    return [each for each in behind if each.opname not in _NOTHING]


def value_of(frame: FrameType, loads: list[dis.Instruction]) -> tuple[bool, Any, list[dis.Instruction]]:
    """What the first of these instructions, with the attributes behind it, loads, if that is known; and the rest."""
    first = loads[0] if loads else None
    if first is None or not first.opname.startswith((*_LOADS, *_GLOBALS)):
        return False, None, loads
    name = first.argval[0] if isinstance(first.argval, tuple) else first.argval  # of two that are loaded at once
    names: dict[str, Any] = frame.f_globals if first.opname in _GLOBALS else frame.f_locals
    if name not in names:
        return False, None, loads
    known, value, count = True, names[name], 1
    while count < len(loads) and loads[count].opname == "LOAD_ATTR":
        if known:
            known, value = kept_attribute(value, loads[count].argval)
        count += 1
    return known, value, loads[count:]


def kept_attribute(value: Any, name: str) -> tuple[bool, Any]:
    """An attribute, if it is kept as it is: to compute a property once more than the program does has effects."""
    kept = inspect.getattr_static(value, name, None)
    own = is_program_class(type(kept)) and hasattr(kept, "__get__")
    computed = own or isinstance(kept, property | cached_property)
    return not computed, None if computed else getattr(value, name, None)


def is_plain_name(loads: list[dis.Instruction]) -> bool:
    """Is the second argument a text of the code, which counts as a name anyway?"""
    if not loads or loads[0].opname != "LOAD_CONST":
        return False
    return all(each.opname.startswith("LOAD_") for each in loads)
