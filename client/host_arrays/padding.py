"""Pads values on their device: `asarray` with `padded_to=` and `fill=`."""

from __future__ import annotations

from cmath import isfinite
from typing import Any

import numpy as np

from ...interpreter.errors import MetadataError, MetadataOverflowError, metadata_error
from ...interpreter.schema.attributes import check_shape
from ...interpreter.types.meta import Scalar
from ...interpreter.wire.forms import shown
from ..calls.by_name import call
from ..core.core import Core
from ..locations.locations import located
from ..tensor.operators import SCALARS, as_number
from ..tensor.tensor import Tensor


def padded(core: Core, part: Tensor, shape: Any, fill: Any) -> Tensor:
    """A tensor of that shape with the part at its beginning along each axis, and `fill` elsewhere."""
    try:
        whole = check_shape(shape)
    except (TypeError, ValueError) as error:
        raise located(metadata_error(error, f"asarray: padded_to: {error}", "asarray")) from None
    if len(whole) != part.ndim or any(n > most for n, most in zip(part.shape, whole, strict=True)):
        message = f"asarray: values of shape {part.shape} do not fit into a tensor of shape {whole} (padded_to)"
        raise located(MetadataError(message, op="asarray"))
    attributes = {"shape": whole, "dtype": part.dtype.name}
    try:
        (tensor,) = call(core, "full", [checked_fill(fill, part.dtype)], attributes, device=part.device)
    except MetadataError as error:
        raise located(metadata_error(error, f"asarray: fill: {error.message}", "asarray")) from None
    outbox = core.outbox
    with outbox.lock:
        if outbox.host_results is not None:
            outbox.host_results.leave(tensor._id)  # its values come from the host
    if part.size:
        index = tuple([("slice", 0, n, None) for n in part.shape])
        call(core, "setitem", [tensor, part], {"index": index}, out=[tensor])
    return tensor


def checked_fill(fill: Any, dtype: np.dtype[Any]) -> Scalar:
    """The fill value as a number. MetadataError for anything else, and for a value that `full` would change."""
    converted = fill if type(fill) in SCALARS else as_number(fill)
    if converted is NotImplemented:
        raise MetadataError(f"{type(fill).__name__} is not a number")
    number: Scalar = converted
    no_bool = dtype.kind == "b" and type(number) is int and number not in (0, 1)  # `full` takes other ints for True
    if type(number) in SCALARS and (no_bool or overflows(number, dtype)):
        text = str(number) if type(number) is complex else shown(number)
        raise MetadataOverflowError(f"{text} does not fit {dtype.name}")
    return number


def overflows(number: Scalar, dtype: np.dtype[Any]) -> bool:
    """Return whether a finite number would be infinite in that floating-point dtype."""
    if dtype.kind not in "fc":
        return False
    try:
        whole = complex(number)
    except OverflowError:
        return True
    real = np.finfo(dtype).dtype.type
    with np.errstate(over="ignore"):
        return any(isfinite(part) and not isfinite(real(part)) for part in (whole.real, whole.imag))
