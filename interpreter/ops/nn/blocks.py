"""Work in blocks, so that a kernel's temporaries stay small for operands of any size."""

from __future__ import annotations

import numpy as np

from ...schema.opdef import ArrayModule

# Bytes of a block's temporaries: on the host they stay in a core's cache, on a device they keep all of it busy.
HOST = 1 << 21
DEVICE = 1 << 26


def parts(xp: ArrayModule, count: int, nbytes: int) -> list[slice]:
    """range(count) in slices of at most a block, at `nbytes` an element; of one element at least."""
    step = _step(count, nbytes, HOST if xp is np else DEVICE)
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]


def block_bytes(count: int, nbytes: int) -> int:
    """The bytes of the largest of these blocks on the host. Nothing is allocated yet: `count` may be any number."""
    return nbytes * min(_step(count, nbytes, HOST), count)


def _step(count: int, nbytes: int, block: int) -> int:
    """The elements of a block."""
    return max(1, min(count, block // max(nbytes, 1)))
