"""Host memory: a client fills it and its machine reads it in place, so that an upload from it copies nothing.

Client and machine each have an object of a type of its own (`HostMemory`, `MemorySegment`) as the base of their
arrays over the memory. NumPy shortens a chain of views of one type, but never skips such a base. So each base lives as
long as any view of it, on any thread, and its end says that its side no longer uses that part of the memory.

The machine treats such memory like a client's segment (decision 0008): it never writes there, and copies indices for
its kernels. Within one process the root is a `HostMemory`; a daemon gets it in a `MemorySegment`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .segments import MemorySegment, segment_of


class HostMemory(np.ndarray[tuple[int], np.dtype[np.uint8]]):
    """Bytes, over memory of any kind. `readers`: the client's record of its readers."""

    readers: Any = None

    @classmethod
    def over(cls, memory: Any, nbytes: int, readers: Any) -> HostMemory:
        """The first `nbytes` bytes of a buffer, which is kept alive."""
        if isinstance(memory, np.ndarray):  # NumPy would take it for the base of plain arrays over this
            memory = cls(nbytes, np.uint8, memory)
        made = cls(nbytes, np.uint8, memory)
        made.readers = readers
        return made


def host_memory_of(array: Any) -> HostMemory | None:
    """The host memory in which an array lies; None if it lies elsewhere."""
    base = array.base
    if type(base) is np.ndarray:
        base = base.base
    return base if type(base) is HostMemory else None


def is_clients(array: NDArray[Any]) -> bool:
    """Return whether the array lies in memory that a client may still write."""
    return host_memory_of(array) is not None or segment_of(array) is not None


def room_of(base: Any) -> int:
    """The bytes of the client's memory that is an array's base; 0 if the base is other memory."""
    if isinstance(base, MemorySegment):
        return base.size
    return base.nbytes if type(base) is HostMemory else 0
