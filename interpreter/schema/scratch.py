"""Functions that compute the memory of kernels' temporaries from the metas of a call; declarations of ops are
composed of them.

The figures were measured with NumPy (tests/interpreter/ops/test_scratch.py), with packed and with strided operands.
They are upper bounds of the peak, accurate to an eighth plus `UNCOUNTED_BYTES` bytes.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..types.meta import Meta, Metas, OperandMeta
from .opdef import Attributes, OutputMetas, Scratch
from .promotion import DType

# Bytes per element of the dtypes in which kernels compute with integers and booleans.
_WORKING_BYTES = {"b": 8, "i": 8, "u": 8}


def scratch(*, operands: float = 0, results: float = 0, working: float = 0, elements: float = 0) -> Scratch:
    """A weighted sum of these: the operands' bytes, the results' bytes if known, the bytes of the first operand in
    the dtype in which kernels compute (`working`), and the number of elements of the largest tensor."""

    def estimate(metas: Metas, outputs: OutputMetas, _attributes: Attributes) -> int:
        found = operands * total(metas) + results * total(outputs) + elements * largest((*metas, *outputs))
        return int(found + (working * in_working(metas[0]) if working else 0))

    return estimate


def total(metas: Iterable[OperandMeta | None]) -> int:
    """The bytes of all tensors together."""
    return sum(m.nbytes for m in metas if isinstance(m, Meta))


def largest(metas: Iterable[OperandMeta | None]) -> int:
    """The number of elements of the largest tensor."""
    return max((m.size for m in metas if isinstance(m, Meta)), default=0)


def in_working(meta: OperandMeta | None) -> int:
    """The bytes of a tensor in the dtype in which kernels compute."""
    return meta.size * working_size(meta.dtype) if isinstance(meta, Meta) else 0


def working_size(dtype: DType) -> int:
    """The bytes of an element in the dtype in which kernels compute: 8 for integers, 4 for float16."""
    return _WORKING_BYTES.get(dtype.kind, max(dtype.itemsize, 4))


def in_double(meta: OperandMeta | None) -> int:
    """The bytes of a tensor in double precision."""
    return meta.size * (16 if meta.dtype.kind == "c" else 8) if isinstance(meta, Meta) else 0


def is_single(metas: Iterable[OperandMeta | None]) -> bool:
    """Whether a tensor does not have double precision."""
    return any(m.dtype.itemsize < (16 if m.dtype.kind == "c" else 8) for m in metas if isinstance(m, Meta))
