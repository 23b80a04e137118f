"""Divides work into blocks, so that a kernel's temporaries stay small for operands of any size."""

from __future__ import annotations

import numpy as np

from ...schema.opdef import ArrayModule

# The bytes of a block's temporaries: few enough for a core's cache on the host, enough to keep a whole device busy.
HOST_BLOCK_BYTES = 1 << 21
DEVICE_BLOCK_BYTES = 1 << 26


def parts(xp: ArrayModule, count: int, nbytes: int) -> list[slice]:
    """range(count) as slices of at most a block, if each element takes `nbytes` bytes; each has at least one
    element."""
    step = _step(count, nbytes, HOST_BLOCK_BYTES if xp is np else DEVICE_BLOCK_BYTES)
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def block_bytes(count: int, nbytes: int) -> int:
    """The bytes of the largest of these blocks on the host. No list is made, so `count` may be any number."""
    return nbytes * min(_step(count, nbytes, HOST_BLOCK_BYTES), count)


def _step(count: int, nbytes: int, block: int) -> int:
    """The number of elements of a block."""
    return max(1, min(count, block // max(nbytes, 1)))
