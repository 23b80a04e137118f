"""DLPack, both ways: arrays of other libraries as values for tensors, and values of tensors for other libraries."""

from __future__ import annotations

from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import MetadataAttributeError, MetadataBufferError, MetadataTypeError
from ...interpreter.types.device_names import kind_of
from ...interpreter.wire.forms import shown
from ..device_arrays.lent import CPU, DLPackDevice, capsule, dlpack_device_of, lent
from ..locations.locations import located

if TYPE_CHECKING:
    from .tensor import Tensor


def host_array(exporter: Any) -> NDArray[Any]:
    """The values of an array of another library, on the host; AttributeError if it does not support DLPack.

    An array on a GPU is fetched by its own method if it has one, else asked for a host copy, as DLPack 1 defines it.
    BufferError for an array that cannot be exported, and for dtypes that NumPy does not have (bfloat16).
    """
    if not hasattr(exporter, "__dlpack_device__"):
        message = f"from_dlpack: {type(exporter).__name__} has no method __dlpack__: use asarray"
        raise located(MetadataAttributeError(message, op="from_dlpack"))
    kind, _ = exporter.__dlpack_device__()
    if int(kind) == CPU[0]:
        return imported(exporter)
    for method in ("get", "cpu"):  # CuPy, PyTorch
        if hasattr(exporter, method):
            exported = getattr(exporter, method)()
            return exported if isinstance(exported, np.ndarray) else imported(exported)
    return imported(exporter, device="cpu", copy=True)


def imported(exporter: Any, **options: Any) -> NDArray[Any]:
    """The exporter's values on the host, as a NumPy array."""
    try:
        return np.from_dlpack(exporter, **options)
    except (RuntimeError, BufferError) as error:  # NumPy raises these for dtypes that it lacks; or the exporter
        raise located(MetadataBufferError(f"from_dlpack: {error}", op="from_dlpack")) from None


def exported(tensor: Tensor, stream: Any, max_version: Any, dl_device: Any, copy: Any) -> Any:
    """A capsule with the tensor's value; see `Tensor.__dlpack__`."""
    check_copy(copy, "__dlpack__")
    version, wanted = pair("max_version", max_version), pair("dl_device", dl_device)
    where = dlpack_device(tensor)
    if where != CPU and wanted in (None, where):
        options = {"max_version": version, "copy": copy}
        given = {name: one for name, one in options.items() if one is not None}
        return capsule(tensor._core.outbox, with_known_meta(tensor)._id, tensor._home, stream, given)
    if stream is not None:
        raise export_error("a tensor is handed over in host memory, which has no streams")
    if wanted not in (None, CPU):
        there = "" if where == CPU else f", or {where}, where it lies"
        raise export_error(f"a tensor is handed over in host memory: ask for the device (1, 0){there}")
    if copy is False and kind_of(tensor.device) != "cpu":
        raise export_error(f"the tensor is on {tensor.device}, and reaches the host only as a copy: allow a copy")
    array = tensor.numpy()
    read_only, says_so = not array.flags.writeable, version is not None and version >= (1, 0)
    if copy is False and not read_only:
        raise export_error("the value lies in the machine's memory, and was copied from there: allow a copy")
    if copy is False and not says_so:
        raise export_error("the value is mapped read-only, which DLPack before 1.0 cannot say: allow a copy")
    copied = copy or (read_only and copy is None)
    return array.__dlpack__(max_version=version, copy=copied or None)


def dlpack_device(tensor: Tensor) -> DLPackDevice:
    """The device on which `exported` hands the tensor over by default: its GPU, else the host."""
    return dlpack_device_of(tensor._core.outbox, tensor._home)


def cupy_array(tensor: Tensor) -> Any:
    """The value in the memory of its GPU; see `Tensor.cupy`."""
    return lent(tensor._core.outbox, with_known_meta(tensor)._id, tensor._home)


def with_known_meta(tensor: Tensor) -> Tensor:
    """The tensor, once its shape is known."""
    return tensor if tensor._living()._meta is not None else tensor.wait()


def check_copy(copy: Any, function: str) -> None:
    """MetadataTypeError unless it is True, False or None."""
    if not (copy is None or isinstance(copy, bool | np.bool)):
        raise located(
            MetadataTypeError(f"{function}: copy must be True, False or None, not {shown(copy)}", op=function)
        )


def pair(name: str, given: Any) -> tuple[int, int] | None:
    """Two ints, or None; MetadataTypeError for anything else."""
    if given is None:
        return None
    try:
        first, second = map(index, given)
    except (TypeError, ValueError):
        message = f"__dlpack__: {name} must be None or a pair of ints, not {shown(given)}"
        raise located(MetadataTypeError(message)) from None
    return first, second


def export_error(message: str) -> MetadataBufferError:
    """The error at the user's line for an export that is not possible."""
    return located(MetadataBufferError(message, op="__dlpack__"))
