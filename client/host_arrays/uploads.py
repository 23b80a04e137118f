"""Makes a tensor of the user's values: checks and copies the values, and sends the copy in an UPLOAD message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import metadata_error
from ...interpreter.layouts.placement import Placement
from ...interpreter.schema.promotion import WIRE_INTEGERS
from ...interpreter.types.meta import Meta
from ...interpreter.wire.arrays import name_of
from ...interpreter.wire.forms import shown
from ...interpreter.wire.gpu_payload import GpuPayload
from ...interpreter.wire.messages import Upload, encode_message
from ..calls.checks import Device, home_of, own
from ..core.core import Core
from ..device_arrays.given import copy_with_event, is_on_gpu, on_gpu, to_host
from ..locations.locations import located
from ..outbox.current import capture_of
from ..tensor.operators import GLOBALS, SCALARS
from ..tensor.tensor import Tensor
from .through_blocks import through_block


def as_tensor(core: Core, values: ArrayLike | Tensor, device: Device | None = None, dtype: Any = None) -> Tensor:
    """A tensor with a copy of the values; the implementation of `Session.asarray`."""
    given: Any = values
    home = given.device if device is None and type(values) in GLOBALS else home_of(core, device)
    if isinstance(values, Tensor):
        stays = type(own(core, values)) in GLOBALS and home == values.device
        moved = values.copy() if stays else values.to_device(home)
        return moved if dtype is None else moved.astype(dtype)
    if isinstance(home, Placement):
        return core.global_calls.upload(core, values, home, dtype)
    on_device = is_on_gpu(values)
    capture = capture_of(core.outbox)
    if capture is not None:
        return capture.constant(to_host(on_gpu(values)) if on_device else values, home, dtype)
    return upload_on_device(core, on_gpu(values), home, dtype) if on_device else upload(core, values, home, dtype)


def upload_on_device(core: Core, array: Any, home: str, dtype: Any) -> Tensor:
    """A tensor with a copy of a CuPy array: through the host, unless its home is the array's own device."""
    if core.transport.memory.gpu(home) != array.device.id or not array.size:
        return upload(core, to_host(array), home, dtype)
    try:
        meta = Meta.of(array.shape, array.dtype)
        check_castable(meta.dtype, meta.dtype if dtype is None else np.dtype(dtype))
    except (TypeError, ValueError) as error:
        raise located(metadata_error(error, f"asarray: {error}", "asarray")) from None
    if core.transport.eager:
        filled = through_block(core, array, meta, home)
        made = upload(core, to_host(array), home, None) if filled is None else filled
    else:
        made = send_upload(core, meta, home, copy_with_event(array))
    return made if dtype is None or np.dtype(dtype) == meta.dtype else made.astype(dtype)


def upload(core: Core, values: ArrayLike, home: str, dtype: Any) -> Tensor:
    """Upload the values; returns the new tensor. Values in memory that the machine reads are not copied."""
    memory = core.outbox.transport.memory
    meta, array = memory.lend(values, dtype) or copied(values, dtype, memory.new_array)
    return send_upload(core, meta, home, array)


def send_upload(core: Core, meta: Meta, home: str, array: NDArray[Any] | GpuPayload) -> Tensor:
    """Send an array that the machine now owns; returns the new tensor."""
    outbox = core.outbox
    if meta.nbytes > outbox.transport.inline_work:
        outbox.make_way()
    with outbox.lock, SHIELD:
        id_, location = outbox.new_id(), outbox.locations.here(3)
        outbox.messages.append(encode_message(Upload(id_, meta.shape, name_of(meta.dtype), home, array, location)))
        made = Tensor(core, id_, meta, home)
    outbox.appended()
    return made


def copied(values: ArrayLike, dtype: Any, new_array: Callable[[Meta], NDArray[Any]]) -> tuple[Meta, NDArray[Any]]:
    """A copy of the values in a new array; MetadataError unless they are numbers of the dtype."""
    try:
        source = unmasked(values) if isinstance(values, np.ndarray) else numbers_of(values, dtype)
        meta = Meta.of(source.shape, source.dtype.newbyteorder("=") if dtype is None else np.dtype(dtype))
        check_castable(source.dtype, meta.dtype)
        array = new_array(meta)
        array[...] = source
    except (TypeError, ValueError, OverflowError) as error:
        raise located(metadata_error(error, f"asarray: {error}", "asarray")) from None
    return meta, array


def unmasked(values: NDArray[Any]) -> NDArray[Any]:
    """The array; TypeError if elements are masked."""
    if type(values) is not np.ndarray and np.ma.is_masked(values):
        raise TypeError(
            "some elements are masked, and tensors have no masks: fill the masked elements first (values.filled(0))"
        )
    return values


def numbers_of(values: Any, dtype: Any) -> NDArray[Any]:
    """The values as an array; TypeError or OverflowError unless they are numbers, even if NumPy would accept them."""
    if dtype is not None and type(values) in SCALARS:
        return np.asarray(values, dtype=dtype)
    array = np.asarray(values)
    mixed = array.dtype.kind == "O"  # large ints, fractions; or None, which NumPy takes for NaN
    if array.dtype.kind not in "biufc" and not (dtype is not None and mixed and all(map(is_number, array.flat))):
        raise unfit(array)
    return array if dtype is None else np.asarray(values, dtype=dtype)


def unfit(array: NDArray[Any]) -> Exception:
    """The error for elements that are no numbers: it names the first such element, and the remedy."""
    unsupported = f"dtype {array.dtype} is not supported"
    if array.dtype.kind in "US":
        return TypeError(f"text is not a number: {unsupported}; convert it with int() or float()")
    if array.dtype.kind != "O":
        return TypeError(unsupported)
    first = next((value for value in array.flat if not is_number(value)), None)
    if first is not None or None in array.flat:
        hint = "; for a missing value use nan" if first is None else ""
        return TypeError(f"{type(first).__name__} is not a number: {unsupported}{hint}")
    large = next((value for value in array.flat if isinstance(value, int) and value not in WIRE_INTEGERS), None)
    if large is not None:
        which = shown(large) if large.bit_length() <= 128 else f"of {large.bit_length()} bits"
        return OverflowError(f'the integer {which} has more than 64 bits; with dtype="float64" it is rounded')
    return TypeError(f'{unsupported}; choose a dtype for the numbers: dtype="float64", for example')


def is_number(value: Any) -> bool:
    """Return whether Python can convert the value to a number."""
    return any(hasattr(value, name) for name in ("__float__", "__complex__", "__index__"))


def check_castable(given: np.dtype[Any], wanted: np.dtype[Any]) -> None:
    """TypeError if a conversion would silently drop imaginary parts, or if the elements are not numbers."""
    if given.kind not in "biufc":
        raise TypeError(f"dtype {given} is not supported")
    if given.kind == "c" and wanted.kind not in "cb":
        raise TypeError(f"{given.name} cannot become {wanted.name}: take the real part first")
