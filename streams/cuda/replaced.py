"""Replaces functions in CuPy's modules for one thread while it captures a CUDA graph.

A module belongs to the whole process, so the replacement looks at the calling thread: other threads get the module's
own function. One thread at a time replaces functions.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

# CuPy's modules are shared by all devices. A thread may replace functions of several modules.
_ONE_THREAD: Final = threading.RLock()


@contextmanager
def replaced(module: str, functions: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Within the block, make this thread call these functions instead of a module's own. Other threads call the
    module's own, and so does this one if the module is not loaded, or lacks the name."""
    loaded: Any = sys.modules.get(module)
    with _ONE_THREAD:
        theirs = {name: getattr(loaded, name) for name in functions if hasattr(loaded, name)}
        for name, function in theirs.items():
            setattr(loaded, name, chosen(functions[name], function, threading.get_ident()))
        try:
            yield
        finally:
            for name, function in theirs.items():
                setattr(loaded, name, function)


def chosen(ours: Callable[..., Any], theirs: Callable[..., Any], thread: int) -> Callable[..., Any]:
    """A function that calls `ours` on that thread, and `theirs` on others."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return (ours if threading.get_ident() == thread else theirs)(*args, **kwargs)

    return function
