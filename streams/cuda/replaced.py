"""Other functions in CuPy's modules, for the thread that captures and as long as it does."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

# CuPy's modules are one set for all devices. A thread may replace functions of several.
_ONE_THREAD: Final = threading.RLock()


@contextmanager
def replaced(module: str, functions: Mapping[str, Callable[..., Any]]) -> Iterator[None]:
    """Have this thread call these functions of a module within the block. All others call the module's own, and so does
    this one if the module is not loaded, or has none of that name."""
    found: Any = sys.modules.get(module)
    with _ONE_THREAD:
        theirs = {name: getattr(found, name) for name in functions if hasattr(found, name)}
        for name, function in theirs.items():
            setattr(found, name, chosen(functions[name], function, threading.get_ident()))
        try:
            yield
        finally:
            for name, function in theirs.items():
                setattr(found, name, function)


def chosen(ours: Callable[..., Any], theirs: Callable[..., Any], thread: int) -> Callable[..., Any]:
    """Our function for that thread, theirs for others."""

    def function(*args: Any, **kwargs: Any) -> Any:
        return (ours if threading.get_ident() == thread else theirs)(*args, **kwargs)

    return function
