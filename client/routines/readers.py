"""Reads of state outside of Python, or that no guard can look up: clocks, files, random numbers, threads.

They are functions in C and of libraries, listed by module and name. Reads by a library for the log, for warnings and
for imports do not count, since they do not reach a program.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

import numpy as np

from ..locations.frames import OWNERS, PACKAGE, PROGRAM
from .kinds import LOCKS, is_random, root
from .search import Search

# Functions in C whose results depend on more than their arguments, by module, or by module and class: all of them,
# except the given names.
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
    **dict.fromkeys(("_posixshmem", "resource", "_tracemalloc"), frozenset()),
}
READERS: Final = {
    "builtins": frozenset(("input",)),
    "_io": frozenset(("open", "open_code")),
    "numpy._core._multiarray_umath": frozenset(("fromfile",)),
    "numpy.core._multiarray_umath": frozenset(("fromfile",)),  # of NumPy 1
}
THREADS: Final = frozenset(("start_new_thread", "start_joinable_thread", "start_new"))
# Calls that the program's own code may not make, though libraries may.
OWN: Final = {
    "builtins": frozenset(("globals",)),
    "sys": frozenset(
        (
            "_getframe",
            "_current_frames",
            "getrefcount",
            "getrecursionlimit",
            "getswitchinterval",
            "gettrace",
            "getprofile",
        )
    ),
    "_thread": frozenset(("get_ident", "get_native_id", "_count")),
    "_weakref": frozenset(("getweakrefcount", "getweakrefs")),
    "_signal": frozenset(("getsignal",)),
    "threading": frozenset(("current_thread", "active_count", "enumerate")),
}
PICKLES: Final = frozenset(("dumps", "dump"))  # these read everything of an object
DRAWING: Final = frozenset(("scipy", "sklearn"))  # libraries that draw from NumPy's own source by default
# Libraries that read clocks, files and more, without effect on what their callers get.
SILENT: Final = frozenset(
    ("logging", "warnings", "importlib", "linecache", "traceback", "inspect", "_pytest", "threading", "tqdm")
)


def is_read(module: str, name: str, frame: FrameType) -> bool:
    """Return whether that function in C returns state that no guard can look up, to code at the frame."""
    if module in HARMLESS:
        return name not in HARMLESS[module]
    if name in READERS.get(module, ()):
        return True
    return name in OWN.get(module, ()) and OWNERS[frame.f_code.co_filename] is PROGRAM


def is_read_of(kind: type, name: str) -> bool:
    """Return whether that method of a class in C returns state that no guard can look up."""
    module = root(kind.__module__)
    if module == "datetime":
        return name in CLOCKS
    if module == "_io":
        return name in READS
    return (module in HARMLESS and name not in HARMLESS[module]) or (name == "locked" and kind in LOCKS)


def is_silent(frame: FrameType | None) -> bool:
    """Return whether the frame belongs to tensord, or to a library whose reads do not reach the program."""
    while frame is not None:
        owner = OWNERS[frame.f_code.co_filename]
        if owner is PROGRAM and frame.f_code.co_name != "<module>":
            return False
        if owner is PACKAGE or (owner is not PROGRAM and root(frame.f_globals.get("__name__", "")) in SILENT):
            return True
        frame = frame.f_back
    return False


def is_of_package(frame: FrameType | None) -> bool:
    """Return whether tensord itself is the caller, perhaps through libraries."""
    while frame is not None and OWNERS[frame.f_code.co_filename] not in (PACKAGE, PROGRAM):
        frame = frame.f_back
    return frame is not None and OWNERS[frame.f_code.co_filename] is PACKAGE


def sources_in(search: Search) -> Iterator[tuple[str, Any]]:
    """The sources of random numbers that a search has found, by name."""
    for value, name in search.objects.values():
        if is_random(value):
            yield name, value
        elif value is np and "random" in search.attributes:
            yield f"{name}.random", np.random.mtrand._rand
        elif value is random:
            yield name, random._inst


def state_of(value: Any) -> Any:
    """A state that changes when numbers are drawn."""
    if isinstance(value, random.Random):
        return value.getstate()
    legacy = isinstance(value, np.random.RandomState)
    if legacy or isinstance(value, np.random.BitGenerator):
        return frozen(value.get_state(legacy=False) if legacy else value.state)
    return frozen(value.bit_generator.state)


def frozen(state: Any) -> Any:
    """A state in a comparable form."""
    if isinstance(state, dict):
        return [(key, frozen(each)) for key, each in state.items()]
    return state.tobytes() if isinstance(state, np.ndarray) else state
