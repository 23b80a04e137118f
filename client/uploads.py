"""From the user's values to an upload: a copy of the values, and a message that carries it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..interpreter.errors import metadata_error
from ..interpreter.types.meta import Meta
from ..interpreter.wire.arrays import name_of
from ..interpreter.wire.messages import Upload, encode_message
from .locations import located
from .operators import SCALARS
from .outbox.outbox import Outbox


def upload(outbox: Outbox, values: ArrayLike, home: str, dtype: Any) -> tuple[int, Meta]:
    """Copy the values to memory that the machine reads; returns the new tensor's id and meta."""
    try:
        source = values if isinstance(values, np.ndarray) else numbers_of(values, dtype)
        meta = Meta.of(source.shape, source.dtype.newbyteorder("=") if dtype is None else np.dtype(dtype))
        check_castable(source.dtype, meta.dtype)
        array = outbox.transport.new_array(meta)
        array[...] = source
    except (TypeError, ValueError, OverflowError) as error:
        raise located(metadata_error(error, f"asarray: {error}", "asarray")) from None
    if meta.nbytes > outbox.transport.inline_work:
        outbox.make_way()
    with outbox.lock:
        id_, location = outbox.new_id(), outbox.locations.here(2)
        outbox.messages.append(encode_message(Upload(id_, meta.shape, name_of(meta.dtype), home, array, location)))
    outbox.appended()
    return id_, meta


def numbers_of(values: Any, dtype: Any) -> NDArray[Any]:
    """The values as an array; TypeError unless they are numbers, also where NumPy would make numbers of them."""
    if dtype is not None and type(values) not in SCALARS:
        found = np.asarray(values)
        mixed = found.dtype.kind == "O"  # large ints, fractions; or None, which NumPy takes for NaN
        if found.dtype.kind not in "biufc" and not (mixed and all(map(is_number, found.flat))):
            raise TypeError(f"dtype {found.dtype} is not supported")
    return np.asarray(values, dtype=dtype)


def is_number(value: Any) -> bool:
    """Does the value have a method that makes it a number?"""
    return any(hasattr(value, name) for name in ("__float__", "__complex__", "__index__"))


def check_castable(given: np.dtype[Any], wanted: np.dtype[Any]) -> None:
    """TypeError if a conversion would silently drop imaginary parts, or if the elements are not numbers."""
    if given.kind not in "biufc":
        raise TypeError(f"dtype {given} is not supported")
    if given.kind == "c" and wanted.kind not in "cb":
        raise TypeError(f"{given.name} cannot become {wanted.name}: take the real part first")
