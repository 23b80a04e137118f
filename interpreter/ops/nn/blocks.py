"""Work in blocks, so that what a kernel makes for itself stays small whatever the size of its operands."""

from __future__ import annotations

import numpy as np

from ...schema.opdef import ArrayModule

# Bytes that a block makes at a time: on the host what stays in a core's cache, on a device what keeps all of it busy.
HOST = 1 << 21
DEVICE = 1 << 26


def parts(xp: ArrayModule, count: int, nbytes: int) -> list[slice]:
    """0 to `count`, `nbytes` each, in slices of at most a block, or of one."""
    block = HOST if xp is np else DEVICE
    step = max(1, min(count, block // max(nbytes, 1)))
    return [slice(start, min(start + step, count)) for start in range(0, count, step)]
