"""Calls kernels on one piece of the operands after another, so that their temporaries have the size of one piece.

This is possible for ops whose elements each depend only on the operands' elements at the same position. Pieces fit
into a processor's cache, which is faster than writing every temporary to memory and reading it back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .opdef import UNCOUNTED_BYTES, BoundKernel

MAX_PIECE = 1 << 11  # the most elements of a piece


def length_of_pieces(scratch: int, elements: int) -> int:
    """The number of elements of a piece whose temporaries stay below `UNCOUNTED_BYTES`, if those of `elements` elements
    take `scratch` bytes."""
    fitting = UNCOUNTED_BYTES * elements // max(scratch, 1)
    return min(MAX_PIECE, 1 << max(fitting.bit_length() - 1, 0))


def in_pieces(kernel: BoundKernel, length: int = MAX_PIECE) -> BoundKernel:
    """The kernel, called on one piece of its NumPy operands and its one result after another.

    The result may be the memory of an operand of the same shape: each piece is read before it is written.
    """

    def run(*arrays: Any) -> None:
        tensors = [array for array in arrays if isinstance(array, np.ndarray)]
        flags: Any = [["readonly"]] * (len(tensors) - 1) + [["writeonly"]]
        with np.nditer(tensors, ["external_loop", "buffered", "zerosize_ok"], flags, buffersize=length) as pieces:
            for piece in pieces:
                rest = iter(piece)
                kernel(*[next(rest) if isinstance(array, np.ndarray) else array for array in arrays])

    return run
