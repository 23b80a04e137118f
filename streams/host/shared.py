"""Blocks of the cpu pool that other processes may map: each in a memory file of its own.

A client maps a fetched value and computes on it in place. So a block is sealed, once it is mapped here, against all
later writable mappings. Each block has its own file, since a file is the unit that is opened, sealed, and kept alive by
its mappings. The pool reuses blocks like any others: first touch of 64 MiB costs 62 ms in a memory file, and another
mapping of it 10 us.

A file costs a descriptor. Memory is private for small blocks, and where segments may keep no more descriptors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...interpreter.wire.segments import SHARED_FROM, Segment, available, descriptors_left, new_number


def shared_block(nbytes: int) -> NDArray[np.uint8]:
    """A block that others may map, if it is worth it and may be had; else a private one. MemoryError if there is none.

    A process that ran out of descriptors may have some later, so each call tries again.
    """
    if nbytes >= SHARED_FROM and available() and descriptors_left() > 0:
        try:
            segment = Segment.create(nbytes, new_number())
            segment.seal_future_writes()
        except OSError:  # out of descriptors, mappings or memory: the latter is found out below
            pass
        else:
            return np.ndarray(nbytes, np.uint8, segment)
    return np.empty(nbytes, np.uint8)
