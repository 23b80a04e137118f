"""Partial tensors: the values that are there move, and the rest is made on the device.

Source: Glow's partial tensors, whose transfers leave the padding out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..interpreter.errors import MetadataError, metadata_error
from ..interpreter.schema.attributes import check_shape
from ..interpreter.types.meta import Scalar
from .locations import located
from .operators import SCALARS, as_number
from .tensor import Tensor

if TYPE_CHECKING:
    from .session import Session


def padded(session: Session, part: Tensor, shape: Any, fill: Any) -> Tensor:
    """A tensor of that shape on the part's device, with the part at its beginning along each axis and `fill` behind."""
    try:
        whole = check_shape(shape)
    except (TypeError, ValueError) as error:
        raise located(metadata_error(error, f"asarray: padded_to: {error}", "asarray")) from None
    if len(whole) != part.ndim or any(n > most for n, most in zip(part.shape, whole, strict=True)):
        message = f"asarray: values of shape {part.shape} are no part of a tensor of shape {whole} (padded_to)"
        raise located(MetadataError(message, op="asarray"))
    attributes = {"shape": whole, "dtype": part.dtype.name}
    try:
        (tensor,) = session.call("full", [filling(fill)], attributes, device=part.device)
    except MetadataError as error:
        raise located(metadata_error(error, f"asarray: fill: {error.message}", "asarray")) from None
    outbox = session._outbox
    with outbox.lock:
        if outbox.host_results is not None:
            outbox.host_results.leave(tensor._id)  # it comes from the host
    if part.size:
        index = tuple([("slice", 0, n, None) for n in part.shape])
        session.call("setitem", [tensor, part], {"index": index}, out=[tensor])
    return tensor


def filling(fill: Any) -> Scalar:
    """The number that is the rest."""
    found = fill if type(fill) in SCALARS else as_number(fill)
    if found is NotImplemented:
        raise MetadataError(f"{type(fill).__name__} is no number")
    number: Scalar = found
    return number
