"""Meta: the shape and dtype of a tensor. Interned, so that equal metas are the same object.

Interning makes a signature lookup a dictionary access keyed by identities. The table holds its metas weakly:
a meta lives as long as a tensor or a cached signature uses it. The newest metas are kept longer, since small tensors
are short-lived, and making a meta costs more than finding it.

The checks of operands are for infer functions. They raise TypeError; `infer` adds the op's name.
"""

from __future__ import annotations

import math
import os
import threading
from collections import deque
from typing import Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import DTypeLike

Shape: TypeAlias = tuple[int, ...]
# The type of a Python scalar operand: it takes part in promotion weakly (NEP 50) and has no shape.
ScalarType: TypeAlias = type[bool] | type[int] | type[float] | type[complex]
Scalar: TypeAlias = bool | int | float | complex

DTYPES: dict[str, np.dtype[np.generic]] = {
    name: np.dtype(name)
    for name in (
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
        "complex64",
        "complex128",
    )
}
# NumPy builds a dtype's name anew each time, in Python.
DTYPE_NAMES: dict[np.dtype[np.generic], str] = {dtype: name for name, dtype in DTYPES.items()}
NEWEST_METAS = 256  # metas that live on without users
MAX_NDIM = 64  # NumPy's limit
MAX_SIZE = 2**63 - 1  # bytes; as in NumPy, empty dimensions count as size 1
SCALAR_TYPES: dict[str, ScalarType] = {"bool": bool, "int": int, "float": float, "complex": complex}


class Meta:
    """Shape and dtype of a tensor; interned by `Meta.of`, compared by identity.

    `nbytes` is the size of a packed copy; `strides` are those of a packed C-order array, in bytes; `plain` is (shape,
    name of the dtype), which is also its form on the wire.
    """

    __slots__ = ("__weakref__", "dtype", "nbytes", "ndim", "plain", "shape", "size", "strides")

    shape: Shape
    dtype: np.dtype[np.generic]
    ndim: int
    size: int
    nbytes: int
    strides: tuple[int, ...]
    plain: tuple[Any, ...]

    def __init__(self, shape: Shape, dtype: np.dtype[np.generic]) -> None:
        self.shape = shape
        self.dtype = dtype
        self.ndim = len(shape)
        self.size = math.prod(shape)
        self.nbytes = self.size * dtype.itemsize
        self.strides = packed_strides(shape, dtype.itemsize)
        self.plain = (shape, DTYPE_NAMES[dtype])

    @staticmethod
    def of(shape: Shape, dtype: DTypeLike) -> Meta:
        """Return the one Meta of a shape and dtype.

        :param shape: A tuple of ints that are not negative.
        :param dtype: One of DTYPES.
        :returns: The Meta.
        :raises ValueError: A dimension is negative, or the tensor would be too large for any memory.
        :raises TypeError: The dtype is not one of DTYPES.
        """
        resolved = np.dtype(dtype)
        key = (shape, resolved)
        meta = _interned.get(key)
        if meta is None:
            if resolved not in DTYPE_NAMES:
                raise TypeError(f"dtype {resolved} is not supported; use one of {', '.join(DTYPES)}")
            clean = tuple(int(n) for n in shape)
            if any(n < 0 for n in clean):
                raise ValueError(f"shape {shape} has a negative dimension")
            if math.prod(max(n, 1) for n in clean) * resolved.itemsize > MAX_SIZE:
                raise ValueError(f"shape {shape} is too large for any memory")
            with _interning[0]:  # links make metas on threads of their own
                meta = _interned.setdefault((clean, resolved), Meta(clean, resolved))
            _newest.append(meta)
        return meta

    def __repr__(self) -> str:
        return f"{self.dtype.name}{list(self.shape)}"

    def __reduce__(self) -> tuple[object, ...]:
        return (Meta.of, (self.shape, self.dtype.name))


OperandMeta: TypeAlias = Meta | ScalarType
Metas: TypeAlias = tuple[OperandMeta, ...]

_interned: WeakValueDictionary[tuple[Shape, np.dtype[np.generic]], Meta] = WeakValueDictionary()
_newest: deque[Meta] = deque(maxlen=NEWEST_METAS)
# One lock, in a list, since a forked child replaces it. Re-entrant: a finaliser or a signal handler may interrupt.
_interning: list[threading.RLock] = [threading.RLock()]


def _renew_lock() -> None:
    """A forked child would inherit a lock that another thread holds."""
    _interning[0] = threading.RLock()


os.register_at_fork(after_in_child=_renew_lock)


def packed_strides(shape: Shape, itemsize: int) -> tuple[int, ...]:
    """Byte strides of a C-order array of that shape."""
    strides = [itemsize] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(strides)


def tensor_metas(metas: Metas) -> tuple[Meta, ...]:
    """The metas of the operands, all of which have to be tensors."""
    for m in metas:
        if not isinstance(m, Meta):
            raise TypeError(f"expected a tensor, got the Python scalar type {m.__name__}")
    return metas  # type: ignore[return-value]


def tensor_meta(metas: Metas) -> Meta:
    """The meta of the first operand, which has to be a tensor."""
    return tensor_metas(metas[:1])[0]
