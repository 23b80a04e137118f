"""The system calls by which something comes to a disk, watched: counted, failing, fatal, or written down."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

CALLS: Final = ("open", "write", "pwrite", "ftruncate", "fsync", "rename", "unlink", "mkdir")
Real = Callable[..., Any]
# What happens in place of a call: its name, the real one, its arguments.
Watch = Callable[[str, Real, tuple[Any, ...], dict[str, Any]], Any]


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """Every such call goes through `watch`; of `open`, those that may make a file."""
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
    """A watch that does something at the n-th call, counted from 1, and counts the calls."""

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
    """Write half of what was to be written; nothing for other calls."""
    if name == "write":
        fd, view = arguments
        real(fd, memoryview(view)[: len(view) // 2])
