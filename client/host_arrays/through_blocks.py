"""From an array on the GPU to a tensor of a daemon, through a block of the daemon's memory that this process fills.

The daemon never opens memory of a client: if the client freed it meanwhile, or died, the device would be lost. It makes
a block for the client instead (`vm/admission/shares`), which the client opens and fills, in the order of CuPy's current
stream. The client waits until that is done, since a client's kernels may never end, and the daemon must not wait for
them. Then the daemon copies the value out of the block, on the device.
"""

from __future__ import annotations

from typing import Any, Final

from ...interpreter.errors import TensordError
from ...interpreter.types.meta import Meta
from ..calls.by_name import call
from ..core.core import Core
from ..device_arrays.given import copy_and_wait
from ..device_arrays.lent import array_over, borrow
from ..tensor.tensor import Tensor

MIN_BLOCK_BYTES: Final = 1 << 20  # bytes from which a block is faster than a copy through the host


def through_block(core: Core, array: Any, meta: Meta, home: str) -> Tensor | None:
    """A tensor with a copy of the array; None if there is no block for it, or none worthwhile."""
    outbox = core.outbox
    if meta.nbytes < MIN_BLOCK_BYTES or outbox.depth:
        return None
    flat = Meta.of((meta.size,), meta.dtype)
    (empty,) = call(core, "empty", (), {"shape": flat.shape, "dtype": flat.dtype.name}, device=home)
    try:
        block = borrow(outbox, empty._id, home)
    except TensordError:  # no memory, no share of it, no handles: copy through the host
        return None
    filled = Tensor(core, block.export, flat, home)
    try:
        target = array_over(outbox, block)
        copy_and_wait(target, array)
        (copied,) = call(core, "concat", [filled], {"axis": 0})
        return copied.reshape(meta.shape)
    finally:
        filled._id = 0  # the end of the array over the block releases the block
