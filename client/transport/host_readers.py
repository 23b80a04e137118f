"""Host arrays that are handed over: they are read-only for as long as an upload from them is read.

Theory of operation. A host array lies in `HostMemory`, which the machine reads. An upload from it is another array over
the same memory (`HostReaders.lend`), which is sent in place of a copy. As long as that array lives, or a daemon uses
an upload of it (from `sent` to `returned`), the memory is in use: neither the user's array nor views that are taken of
it then can be written. When the last use has ended, that array and the uploaded views themselves can be written
again.

Guarantees. An upload that was never sent, because the session ended or the message was refused, is handed back as well:
the array of the upload dies with the message. Uses end anywhere, on any thread and also inside of locks. So there are
no locks here, and each change of the uses is one atomic operation, followed by `_settle`, which checks the uses again
after it has set the flags. The thread that sets flags last has checked after that, so the flags are right in the end.
If an exception from outside stops the end of a use, the end is repeated (`finalisers`).

The end of a session on a daemon hands nothing back: the daemon may continue to read for other sessions with a tensor in
the memory, whose end would not be reported. Nothing is handed back in a forked child either, which may share
the memory with its parent: host arrays cannot be written there at all.

Rejected: a lock, for which a finalizer must not wait. A count of uses: `+=` is two operations.
"""

from __future__ import annotations

import itertools
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...interpreter.concurrency.finalisers import redone
from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.types.meta import DTYPE_NAMES, Meta
from ...interpreter.wire.frames import MAPPED_ARRAY
from ...interpreter.wire.host_memory import HostMemory, host_memory_of
from ..process.forks import FORKS

INHERITED_USE: Final = 0  # the use that a forked child begins, and that never ends

_uses = itertools.count(1)


class HostReaders:
    """The readers of one piece of host memory. `owner`: the connection that can read it."""

    __slots__ = ("__weakref__", "_array", "_sent", "_uploaded", "_uses", "owner")

    def __init__(self, owner: object) -> None:
        self.owner = owner
        self._array: Any = lambda: None  # the user's array, held weakly
        self._uploaded: dict[int, weakref.ref[NDArray[Any]]] = {}  # views of it that were uploaded, by identity
        self._uses: dict[int, weakref.ref[NDArray[Any]] | None] = {}  # -> the array of the upload
        self._sent: deque[int] = deque()  # the uses that a daemon will end
        FORKS.inherited.add(self)

    @property
    def handed_over(self) -> bool:
        """Return whether the memory is being read, or going to be."""
        return bool(self._uses)

    def array(self, memory: HostMemory, shape: Sequence[int], dtype: Any) -> NDArray[Any]:
        """The user's array over the memory. One per memory."""
        array = np.ndarray(shape, dtype, memory)
        self._array = weakref.ref(array)
        return array

    def lend(self, array: NDArray[Any], memory: HostMemory) -> NDArray[Any]:
        """An array for an upload of that packed array. The user's array is read-only while it lives."""
        offset = address_of(array) - address_of(memory)
        upload: NDArray[Any] = np.ndarray(array.shape, array.dtype, memory, offset)
        upload.flags.writeable = False
        with SHIELD:
            use = next(_uses)
            self._uses[use] = weakref.ref(upload, partial(self._end, use))
            if array is not self._array() and array.flags.writeable:
                key = id(array)
                self._uploaded[key] = weakref.ref(array, partial(self._uploaded.pop, key))
            self._settle()
        return upload

    def sent(self) -> None:
        """Note that the memory was sent for one upload; one `returned` follows."""
        use = next(_uses)
        self._uses[use] = None
        self._sent.append(use)
        self._settle()

    def returned(self) -> None:
        """Note that the daemon no longer needs one upload. No effect if it has returned all."""
        with suppress(IndexError):
            self._end(self._sent.popleft())

    def inherit(self) -> None:
        """Hand back nothing any more: in a forked child, the parent may share the memory."""
        self._uses[INHERITED_USE] = None
        self._settle()

    @redone
    def _end(self, use: int, _gone: object = None) -> None:
        self._uses.pop(use, None)
        self._settle()

    def _settle(self) -> None:
        """Make the arrays writable if, and only if, their memory is not in use."""
        while True:
            free = not self._uses
            for each in (self._array, *list(self._uploaded.values())):
                array = each()
                if array is not None:
                    array.flags.writeable = free
            if free == (not self._uses):
                return


def array_in_place(values: Any, dtype: Any, owner: object) -> tuple[Meta, NDArray[Any]] | None:
    """Meta and payload of an upload without a copy; None if the values have to be copied.

    This works for a packed array in host memory of that owner, from 64 KiB on, whose numbers need no conversion.
    """
    if type(values) is not np.ndarray or values.base is None or values.nbytes < MAPPED_ARRAY:
        return None
    memory = host_memory_of(values)
    if memory is None or memory.readers.owner is not owner:
        return None
    flags, kind = values.flags, values.dtype
    if not (flags.c_contiguous and flags.aligned and kind in DTYPE_NAMES and kind.isnative):
        return None
    if not (dtype is None or is_dtype(kind, dtype)):
        return None
    return Meta.of(values.shape, kind), memory.readers.lend(values, memory)


def is_dtype(kind: np.dtype[Any], wanted: Any) -> bool:
    """Return whether it is the wanted dtype; False if `wanted` is no dtype."""
    with suppress(TypeError):
        return bool(kind == np.dtype(wanted))
    return False


def address_of(array: NDArray[Any]) -> int:
    return int(array.__array_interface__["data"][0])
