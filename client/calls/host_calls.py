"""Host calls: a function of the program that the machine calls, and whose results are tensors.

Source: JAX's `pure_callback`. As there, only its operands and results order the function in the program, and the metas
of its results are declared beforehand, so that ops on them can be issued at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import MetadataError, MetadataTypeError, metadata_error
from ...interpreter.schema.attributes import check_dtype, check_shape
from ...interpreter.types.meta import Meta
from ...interpreter.wire.host_calls import LABEL
from ...interpreter.wire.messages import Effect, encode_message
from ..core.core import Core
from ..locations.locations import located
from ..outbox.current import capture_of
from ..requests.effects import check_callback
from ..tensor.tensor import Tensor
from ..transport.host_functions import HostFunction
from .checks import Device, device_of, on_one_device, own


def host_call(
    core: Core, function: Callable[..., Any], tensors: Sequence[Tensor], result: Any, device: Device | None
) -> Tensor | list[Tensor]:
    """Issue a host call; returns its result, or a list of results, as `result` says. `device`: by default the first
    operand's."""
    check_callback(function, LABEL)
    metas, many = result_metas(result)
    operands = [on_one_device(own(core, tensor)) for tensor in tensors]
    home = device_of(core, operands[0]._home if device is None and operands else device)
    called = HostFunction(function, metas, many=many, loop=core.loop)
    capture = capture_of(core.outbox)
    made = issue(core, called, operands, home) if capture is None else capture.host_call(called, operands, home)
    return made if many else made[0]


def issue(core: Core, function: HostFunction, operands: Sequence[Tensor], home: str) -> list[Tensor]:
    """Append the message; returns the results."""
    outbox, metas = core.outbox, function.metas
    ids = tuple([tensor._id for tensor in operands])
    wire = tuple([meta.plain for meta in metas])
    with outbox.lock, SHIELD:
        outputs = tuple([outbox.new_id() for _ in metas])
        message = Effect(ids, 0, function, 0, outbox.locations.here(3), outputs=outputs, metas=wire, device=home)
        outbox.messages.append(encode_message(message))
        made = [Tensor(core, id_, meta, home) for id_, meta in zip(outputs, metas, strict=True)]
    outbox.appended()
    return made


def result_metas(result: Any) -> tuple[list[Meta], bool]:
    """The metas of the results, and whether `result` is a list or tuple of them: then the function returns one, too."""
    if not isinstance(result, list | tuple) or is_shape_and_dtype(result):
        return [meta_of(result)], False
    if not result:
        raise located(MetadataError(f"{LABEL}: result= names no result; a function without results is an effect"))
    return [meta_of(each) for each in result], True


def is_shape_and_dtype(result: Any) -> bool:
    """Return whether the value is a shape and a dtype."""
    return type(result) is tuple and len(result) == 2 and not has_meta(result[1]) and not isinstance(result[1], tuple)


def has_meta(value: Any) -> bool:
    """Return whether the value has a shape and a dtype, as arrays and tensors have."""
    return hasattr(value, "shape") and hasattr(value, "dtype") and not isinstance(value, type)


def meta_of(result: Any) -> Meta:
    """The meta of one result: (shape, dtype), or an object that has both. MetadataError for anything else."""
    if has_meta(result):
        shape, dtype = result.shape, result.dtype
    elif is_shape_and_dtype(result):
        shape, dtype = result
    else:
        message = "a result must be (shape, dtype), or an object with both, such as a tensor"
        raise located(MetadataTypeError(f"{LABEL}: {message}, and not {type(result).__name__}"))
    try:
        return Meta.of(check_shape(shape), check_dtype(dtype))
    except (TypeError, ValueError, OverflowError) as error:
        raise located(metadata_error(error, f"{LABEL}: {error}", LABEL)) from None
