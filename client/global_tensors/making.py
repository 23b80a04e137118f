"""From values and tensors to global tensors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from ...interpreter.errors import MetadataError, MetadataTypeError
from ...interpreter.layouts.layout import BROADCAST, Layout, Partial, layout_of
from ...interpreter.layouts.placement import Placement
from ...interpreter.types.meta import Meta
from ..calls.checks import core_of, core_of_tensor, own
from ..core.core import Core
from ..device_arrays.given import is_on_gpu
from ..host_arrays.uploads import as_tensor, copied
from ..locations.locations import located
from ..outbox.current import plain_of
from ..tensor.tensor import Tensor
from .checks import checked
from .form import Form, grid_coordinates
from .published import whole_shape
from .tensor import GlobalTensor


def global_tensor(core: Core, values: Any, placement: Any, layout: Any, dtype: Any) -> GlobalTensor:
    """A global tensor of values. Each device gets only its part of an array; a tensor is moved within the machine."""
    where = checked(core, placement)
    if isinstance(values, Tensor):
        tensor = core.global_calls.to_global(
            own(core_of_tensor(core, values), values), where, BROADCASTS[len(where.grid)] if layout is None else layout
        )
        return tensor if dtype is None else tensor.astype(dtype)  # type: ignore[return-value]
    if is_on_gpu(values):
        first = where.names[0]
        return global_tensor(core, as_tensor(core_of(core, first), values, first, dtype), where, layout, None)
    array = host_values(values, dtype)
    meta = Meta.of(array.shape, array.dtype) if dtype is None else Meta.of(array.shape, dtype)
    form = form_of(meta, where, layout)
    with core.global_calls.grouped(where):
        parts = [
            as_tensor(core_of(core, name), part_of(array, form, number), name, dtype)
            for number, name in enumerate(where.names)
        ]
    return GlobalTensor(form, parts)


BROADCASTS = {1: (BROADCAST,), 2: (BROADCAST, BROADCAST)}


def host_values(values: Any, dtype: Any) -> Any:
    """The values as a host array, of which parts can be taken. They are checked when they are uploaded."""
    if isinstance(values, np.ndarray):
        return values
    _, array = copied(plain_of(values), dtype, lambda meta: np.empty(meta.shape, meta.dtype))
    return array


def part_of(array: Any, form: Form, number: int) -> Any:
    """One device's part: its share of the values, or zeros if another device has the addend."""
    begin, shape = form.shares[number]
    share = array[tuple(slice(low, low + size) for low, size in zip(begin, shape, strict=True))]
    coordinates = grid_coordinates(form.placement.grid)[number]
    is_zero = any(at and atom == Partial("sum") for at, atom in zip(coordinates, form.layout, strict=True))
    return np.zeros_like(share) if is_zero else share


def form_of(meta: Meta, placement: Placement, layout: Any) -> Form:
    """The form; MetadataError at the user's line for a layout that does not fit."""
    try:
        atoms: Layout = layout_of(
            BROADCASTS[len(placement.grid)] if layout is None else layout, len(placement.grid), meta
        )
    except MetadataError as error:
        raise located(error) from None
    return Form.of(meta, placement, atoms)


def of_parts(core: Core, given: Any, placement: Any, layout: Any, dtype: Any) -> GlobalTensor:
    """A global tensor of plain tensors that lie on the devices of the placement. Its parts are copies, since values are
    independent.

    MetadataError for parts of the wrong number, home, shape or dtype.
    """
    where = checked(core, placement)
    if isinstance(given, Tensor | np.ndarray) or not isinstance(given, Iterable):
        raise located(MetadataTypeError(f"global_tensor: parts must be a list of tensors, not {type(given).__name__}"))
    parts: list[Any] = list(given)
    if len(parts) != len(where.names):
        raise located(MetadataError(f"global_tensor: expected {len(where.names)} parts, got {len(parts)}"))
    for part, name in zip(parts, where.names, strict=True):
        if type(own(core_of_tensor(core, part), part)) is GlobalTensor:
            raise located(MetadataTypeError("global_tensor: each part must be a plain tensor"))
        if part._home != name:
            raise located(MetadataError(f"global_tensor: the part for {name} is on {part._home}: use to_device"))
    metas = [part._known_meta() for part in parts]
    try:
        atoms = layout_of(BROADCASTS[len(where.grid)] if layout is None else layout, len(where.grid), metas[0])
    except MetadataError as error:
        raise located(error) from None
    form = form_of(Meta.of(whole_shape(metas, where.grid, atoms), metas[0].dtype), where, atoms)
    for meta, wanted, name in zip(metas, form.metas, where.names, strict=True):
        if meta is not wanted:
            raise located(MetadataError(f"global_tensor: the part on {name} is {meta}, but must be {wanted}"))
    with core.global_calls.grouped(where):
        made = GlobalTensor(form, [part.copy() for part in parts])
        return made if dtype is None else made.astype(dtype)  # type: ignore[return-value]
