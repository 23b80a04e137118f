"""Intercepts the system calls that write to a disk: to count them, to make them fail, to end the process, or to log
them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

CALLS: Final = ("open", "write", "pwrite", "ftruncate", "fsync", "rename", "unlink", "mkdir")
Real = Callable[..., Any]
# Called in place of a system call, with its name, the real function, and the arguments.
Watch = Callable[[str, Real, tuple[Any, ...], dict[str, Any]], Any]


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Each of these calls goes through `watch`; of the calls of `open`, only those that may create a file."""
    with ExitStack() as stack:
        for name in CALLS:
            stack.enter_context(patch.object(os, name, _watched(name, getattr(os, name), watch)))
        yield


def _watched(name: str, real: Real, watch: Watch) -> Real:
    def call(*arguments: Any, **options: Any) -> Any:
        if name == "open" and not arguments[1] & os.O_CREAT:
            return real(*arguments, **options)
        return watch(name, real, arguments, options)

    return call


class Nth:
    """A watch that counts the calls, and calls `then` at the n-th one, counted from 1."""

    def __init__(self, n: int, then: Watch) -> None:
        self.count = 0
        self.called: list[str] = []
        self._n = n
        self._then = then

    def __call__(self, name: str, real: Real, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        self.count += 1
        self.called.append(name)
        if self.count == self._n:
            return self._then(name, real, arguments, options)
        return real(*arguments, **options)


def half(name: str, real: Real, arguments: tuple[Any, ...]) -> None:
    """Write half of the bytes, for a call that writes; do nothing for other calls."""
    if name == "write":
        fd, view = arguments
        real(fd, memoryview(view)[: len(view) // 2])
