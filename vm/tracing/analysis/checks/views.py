"""The layouts of views, computed by NumPy, to check tensord's own layout rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from .....interpreter.programs.program import Step
from .....interpreter.schema.indexing import native_index
from .....interpreter.types.meta import Meta

VIEWS: Final[Mapping[str, Callable[[Any, Mapping[str, Any]], Any]]] = {
    "broadcast_to": lambda x, given: np.broadcast_to(x, given["shape"]),
    "diagonal": lambda x, given: np.diagonal(x, given["offset"], -2, -1),
    "expand_dims": lambda x, given: np.expand_dims(x, given["axis"]),
    "flip": lambda x, given: flipped(x, given["axis"]),
    "getitem": lambda x, given: selected(x, native_index(given["index"])),
    "matrix_transpose": lambda x, _given: np.swapaxes(x, -1, -2),
    "moveaxis": lambda x, given: np.moveaxis(x, given["source"], given["destination"]),
    "permute_dims": lambda x, given: np.transpose(x, given["axes"]),
    "reshape": lambda x, given: np.reshape(x, given["shape"]),
    "squeeze": lambda x, given: np.squeeze(x, given["axis"]),
    "transpose": lambda x, given: np.transpose(x, given["axes"]),
}


def flipped(x: Any, axis: Any) -> Any:
    """A view of the array with these axes reversed, or all (None). Also of an array without axes, for which `np.flip`
    makes no view."""
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    chosen = {each % x.ndim for each in axes}
    return x[(*(slice(None, None, -1 if n in chosen else None) for n in range(x.ndim)), Ellipsis)]


def selected(x: Any, index: tuple[Any, ...]) -> Any:
    """The selection as an array, even if it is a single element."""
    return x[index] if Ellipsis in index else x[(*index, Ellipsis)]


def layout_of_view(base: Meta, steps: Sequence[Step], meta: Meta) -> tuple[int, tuple[int, ...]] | None:
    """Offset and strides, in bytes, of what these view steps make from a packed value; None if that is not a view.

    The value's memory is allocated but not touched, so its size does not matter, unless the steps have to copy it.
    """
    whole = np.empty(base.shape, base.dtype)
    view: Any = whole
    for step in steps:
        made = VIEWS[step.op](view, dict(step.attributes))
        view = view if isinstance(made, np.generic) and view.ndim == 0 else made  # NumPy flips nothing to a scalar
    if not isinstance(view, np.ndarray) or view.shape != meta.shape or not np.may_share_memory(view, whole):
        return None
    return view.__array_interface__["data"][0] - whole.__array_interface__["data"][0], view.strides
