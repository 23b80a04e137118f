"""Kernels that work piece by piece: their temporaries have the size of one piece, however large the operands are.

This is for ops whose elements each depend only on the operands' elements at the same place. The pieces fit a
processor's cache, so this is faster than to write every temporary to memory and to read it again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .opdef import UNNOTICED, BoundKernel

PIECE = 1 << 11  # elements, at the most


def length_of_pieces(scratch: int, elements: int) -> int:
    """The elements of a piece whose temporaries stay below `UNNOTICED`, where those of `elements` take `scratch`
    bytes."""
    fitting = UNNOTICED * elements // max(scratch, 1)
    return min(PIECE, 1 << max(fitting.bit_length() - 1, 0))


def in_pieces(kernel: BoundKernel, length: int = PIECE) -> BoundKernel:
    """The kernel, called on one piece after the other of its NumPy operands and its one result.

    The result may be the memory of an operand of its shape: a piece is read before it is written.
    """

    def run(*arrays: Any) -> None:
        tensors = [array for array in arrays if isinstance(array, np.ndarray)]
        flags: Any = [["readonly"]] * (len(tensors) - 1) + [["writeonly"]]
        with np.nditer(tensors, ["external_loop", "buffered", "zerosize_ok"], flags, buffersize=length) as pieces:
            for piece in pieces:
                rest = iter(piece)
                kernel(*[next(rest) if isinstance(array, np.ndarray) else array for array in arrays])

    return run
