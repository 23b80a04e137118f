"""Host arrays: NumPy arrays in memory that the machine reads directly, and pools of them.

While an upload reads a host array, the array is read-only, and its pool does not return it
(`transport/host_readers`). Source of the pools: Glow's `TensorPool`.
"""

from __future__ import annotations

import weakref
from collections import deque
from functools import partial
from threading import RLock
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import ConnectionLost, DeviceMemoryError, MetadataError, ProtocolError, metadata_error
from ...interpreter.schema.attributes import check_dtype, check_int, check_shape
from ...interpreter.types.meta import Meta
from ...interpreter.types.sizes import size
from ...interpreter.wire.host_memory import host_memory_of
from ..core.core import Core
from ..locations.locations import located
from ..locations.tracebacks import make_public
from ..waiting.on_loop import on_loop
from ..waiting.steps import Awaiting, Steps, on_thread


def host_meta(function: str, shape: Any, dtype: Any) -> Meta:
    """The meta of a host array, float64 by default; MetadataError for invalid shapes and dtypes."""
    try:
        return Meta.of(check_shape(shape), check_dtype("float64" if dtype is None else dtype))
    except (TypeError, ValueError, OverflowError) as error:
        raise located(metadata_error(error, f"{function}: {error}", function)) from None


def new_host_array(core: Core, meta: Meta, function: str = "empty_host") -> NDArray[Any]:
    """A host array with undefined contents; DeviceMemoryError if this process has no memory for it."""
    try:
        memory = core.transport.memory.host_memory(meta.nbytes)
        if memory is None:  # the machine cannot read memory of this process
            return np.empty(meta.shape, meta.dtype)
        array: NDArray[Any] = memory.readers.array(memory, meta.shape, meta.dtype)
    except MemoryError:
        needed = f"{meta} needs {size(meta.nbytes)} of memory, which this process cannot get"
        message = f"{function}: {needed}; use smaller arrays"
        raise located(DeviceMemoryError(message, op=function)) from None
    return array


def is_handed_over(array: NDArray[Any]) -> bool:
    """Return whether an upload is using the memory of a host array."""
    memory = host_memory_of(array)
    return memory is not None and memory.readers.handed_over


class HostPool:
    """Host arrays of one shape and dtype, for repeated use: `get`, fill, `asarray`, `put`.

    Thread-safe. A pool ends with its session, with its block, or with `close`; arrays outside of the pool stay valid.
    """

    def __init__(self, core: Core, meta: Meta, count: int, *, grow: bool) -> None:
        self._core = core
        self._meta = meta
        self._grow = grow
        self._lock = RLock()  # a signal handler may interrupt a method
        self._in: deque[NDArray[Any]] = deque()
        self._out: dict[int, weakref.ref[NDArray[Any]]] = {}  # by identity
        self._made = self._gets = self._missed = 0
        self._closed = False
        self.reserve(count)

    def get(self) -> NDArray[Any] | None:
        """Take an array from the pool. Never waits for an array to be handed back.

        :returns: A writable array with undefined contents: a new one if none is free, or None with ``grow=False``.
        :raises ProtocolError: The pool is closed.
        """
        return on_thread(self._core.outbox, self._getting())

    def get_async(self) -> Awaiting[NDArray[Any] | None]:
        """`array = await pool.get_async()`: like `get`, but may ask the machine, while the loop goes on."""
        return on_loop(self._core.outbox, self._getting())

    def _getting(self) -> Steps[NDArray[Any] | None]:
        self._check_open()
        array = self._take()
        if array is None and self._in and self._core.outbox.answers():
            yield self._core.answers.ask_to_catch_up()  # the answer comes after everything handed back so far
            array = self._take()
        with self._lock:
            self._gets += 1
            if array is None:
                self._missed += 1
                if not self._grow:
                    return None
                array = self._make()
            key = id(array)
            self._out[key] = weakref.ref(array, partial(self._out.pop, key))
        return array

    def put(self, array: NDArray[Any]) -> None:
        """Give an array back. If it is still handed over, `get` returns it only after it was handed back.

        :param array: An array from `get`.
        :raises MetadataError: `get` has not returned this array, for example a view, or the array was given back
            already.
        """
        with self._lock, SHIELD:
            found = self._out.pop(id(array), None)
            if found is None or found() is not array:
                again = any(each is array for each in self._in)
                why = "the array is already in the pool" if again else "it is a view, or not an array of this pool"
                raise located(
                    MetadataError(f"put: {why}: put back each array that `get` returned, once, and no view of it")
                )
            if not self._closed:
                self._in.append(array)

    def reserve(self, count: int) -> None:
        """Make more arrays.

        :param count: The number of arrays.
        :raises ProtocolError: The pool is closed.
        """
        self._check_open()
        for _ in range(check_count(count)):
            with self._lock:
                self._in.append(self._make())

    def stats(self) -> dict[str, int]:
        """Count the arrays of the pool.

        :returns: `made` in all; `free` for `get`; `out`, with the program; `handed_over` of all; `bytes` of all;
            `gets`, and the number of them that found none (`missed`).
        """
        with self._lock:
            mine = list(self._in)
            out = [array for each in list(self._out.values()) if (array := each()) is not None]
            busy = sum(map(is_handed_over, mine))
            return {
                "made": self._made,
                "free": len(mine) - busy,
                "out": len(out),
                "handed_over": busy + sum(map(is_handed_over, out)),
                "bytes": (len(mine) + len(out)) * self._meta.nbytes,
                "gets": self._gets,
                "missed": self._missed,
            }

    def close(self) -> None:
        """Drop the arrays in the pool. Closing twice is fine."""
        with self._lock:
            self._closed = True
            self._in.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._closed:
            return f"<tensord.HostPool of {self._meta} closed>"
        stats = self.stats()
        counts = ", ".join(f"{stats[name]} {text}" for name, text in STATES.items())
        return f"<tensord.HostPool of {self._meta}: {counts}, {size(stats['bytes'])}>"

    def _check_open(self) -> None:
        if self._closed:
            raise located(ProtocolError("the pool is closed: make another one with session.pool()"))
        if self._core.closed:
            raise located(ConnectionLost("the session has ended, and the pool with it"))

    def _take(self) -> NDArray[Any] | None:
        """The writable array that was put back first; None if there is none."""
        with self._lock:
            for _ in range(len(self._in)):
                array = self._in.popleft()
                if not is_handed_over(array):
                    return array
                self._in.append(array)
        return None

    def _make(self) -> NDArray[Any]:
        array = new_host_array(self._core, self._meta, "pool")
        self._made += 1
        return array


def check_count(count: Any) -> int:
    """A number of arrays; MetadataError for anything else."""
    try:
        number = check_int(count)
    except (TypeError, ValueError) as error:
        raise located(metadata_error(error, f"pool: count: {error}", "pool")) from None
    if number < 0:
        raise located(MetadataError(f"pool: count: {number} arrays cannot be made", op="pool"))
    return number


STATES = {"free": "free", "out": "out", "handed_over": "handed over"}
make_public(HostPool)
