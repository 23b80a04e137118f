"""Functions of the program that the machine calls, and their results.

A function gets read-only arrays. Its results must have the declared metas; Python numbers, and lists of them, are
converted if they fit. Every exception becomes a KernelError.
"""

from __future__ import annotations

import asyncio
import inspect
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import KernelError, TensordError, kernel_error, text_of, without_frames
from ...interpreter.types.meta import Meta
from ...interpreter.wire.host_calls import LABEL, refusal_of

KIND_ORDER: Final = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}  # as Python converts bool, int, float, complex


class HostFunction:
    """A function, and the metas of its results. `many`: it returns a list or tuple of them. `loop`: the loop of a
    coroutine function; None for a loop of the session's own."""

    __slots__ = ("function", "loop", "many", "metas")

    def __init__(
        self,
        function: Callable[..., Any],
        metas: Sequence[Meta],
        *,
        many: bool,
        loop: AbstractEventLoop | None = None,
    ) -> None:
        self.function = function
        self.metas = tuple(metas)
        self.many = many
        self.loop = loop

    @property
    def is_async(self) -> bool:
        """Return whether it is a coroutine function."""
        return is_async(self.function)

    def results(self, value: Any) -> list[NDArray[Any]]:
        """The function's results as arrays; KernelError unless they have the requested form."""
        if self.many and not isinstance(value, list | tuple):
            kind = type(value).__name__
            raise KernelError(
                f"{LABEL}: the function returned {kind}, but result= asks for a list of {len(self.metas)}"
            )
        values = value if self.many else [value]
        arrays = [array_of(each, meta) for each, meta in zip(values, self.metas, strict=False)]
        arrays += [np.asarray(each) for each in values[len(arrays) :]]
        why = refusal_of(self.metas, arrays)
        if why:
            raise KernelError(f"{LABEL}: {why}")
        return arrays

    def __call__(self, *arrays: Any) -> list[NDArray[Any]]:
        """Call it on this thread; its exceptions are raised as KernelError."""
        try:
            found = self.function(*map(read_only, arrays))
            return self.results(run_to_end(found) if self.is_async else found)
        except BaseException as error:
            failure = failure_of(error)
            raise failure from failure.__cause__


def run_to_end(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine, on a new event loop on this thread, whose other loop, if any, waits."""
    around = asyncio._get_running_loop()  # noqa: SLF001 - as loops do
    asyncio._set_running_loop(None)  # noqa: SLF001
    try:
        return asyncio.run(coroutine)
    finally:
        asyncio._set_running_loop(around)  # noqa: SLF001


def is_async(function: Any) -> bool:
    """Return whether it is a coroutine function, or an object that is called as one."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """The array, made read-only."""
    array.flags.writeable = False
    return array


def array_of(value: Any, meta: Meta) -> NDArray[Any]:
    """A result as an array. Python numbers, and lists of them, take the requested dtype, if they fit."""
    array = np.asarray(value)
    if hasattr(value, "dtype") or array.dtype == meta.dtype or not is_weaker(array.dtype, meta.dtype):
        return array
    converted = array.astype(meta.dtype)
    fits = converted.dtype.kind not in "iu" or np.array_equal(converted, array)
    return converted if fits else array


def is_weaker(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    """Return whether the first dtype is of the second's kind, or of one that Python's arithmetic converts to it."""
    return one.kind in KIND_ORDER and KIND_ORDER[one.kind] <= KIND_ORDER[other.kind]


def failure_of(error: BaseException) -> TensordError:
    """The error of a call, from an exception of its function. The machine adds the line of the call."""
    if isinstance(error, KernelError) and error.op is None and error.location is None:
        return error  # made here
    message = f"{LABEL}: {type(error).__name__}: {text_of(error)}"
    plain = isinstance(error, MemoryError | TensordError)  # of this process, and of another call
    failure = KernelError(message) if plain else kernel_error(error, message, op="", location=None)
    failure.op = None
    failure.__cause__ = without_frames(error)
    return failure
