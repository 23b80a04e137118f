"""Blocks of the cpu pool that other processes may map, each in a memory file of its own.

A client maps a fetched value and computes on it in place. So a block is sealed against later writable mappings once it
is mapped here. Each block has its own file, since a file is the unit that is opened, sealed, and kept alive by its
mappings. The pool reuses these blocks like any others: the first touch of 64 MiB costs 62 ms in a memory file, another
mapping of it 10 us.

A file costs a descriptor, so small blocks lie in private memory, and so do all blocks once segments have used up their
share of descriptors.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...interpreter.wire.segments import SHARED_FROM, MemorySegment, available, descriptors_left, new_number


def shared_block(nbytes: int) -> NDArray[np.uint8]:
    """A block that others may map, if its size makes that worthwhile and a file can be made; else a private block.
    MemoryError if there is no memory.

    Each call tries again, since a process that ran out of descriptors may have some later.
    """
    if nbytes >= SHARED_FROM and available() and descriptors_left() > 0:
        try:
            segment = MemorySegment.create(nbytes, new_number())
            segment.seal_future_writes()
        except OSError:  # no descriptors, mappings or memory; the code below finds out if it is memory
            pass
        else:
            return np.ndarray(nbytes, np.uint8, segment)
    return np.empty(nbytes, np.uint8)
