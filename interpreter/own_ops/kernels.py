"""A user's function as a kernel: it cannot change its operands, and its results are checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..schema.opdef import ArrayModule, Arrays, Attributes, Kernel
from .signature import OUT, Schema


def kernel_of(function: Callable[..., Any], schema: Schema) -> Kernel:
    """The kernel that calls the function. Where the function has no `out`, its results are copied once."""

    def kernel(xp: ArrayModule, inputs: Arrays, outputs: Arrays, attributes: Attributes) -> Arrays | None:
        given = [read_only(each) for each in inputs]
        named = schema.as_given(attributes)
        if schema.fills and outputs:
            named[OUT] = outputs[0] if schema.outputs == 1 else tuple(outputs)
        made = listed(function(*given, **named), schema, filled=OUT in named)
        if not outputs:  # their shapes were unknown
            return [xp.array(each, order="C") for each in made]
        for number, (result, target) in enumerate(zip(made, outputs, strict=True)):
            store(result, target, number)
        return None

    return kernel


def read_only(array: Any) -> Any:
    """The same values, read-only if the array module has read-only arrays, as NumPy does."""
    if not isinstance(array, np.ndarray):
        return array
    shown = array.view()
    shown.flags.writeable = False
    return shown


def listed(made: Any, schema: Schema, *, filled: bool) -> list[Any]:
    """The results of a function, as a list of `schema.outputs` entries: None for those that it has filled."""
    if filled and made is None:
        return [None] * schema.outputs
    several = made if schema.outputs > 1 else (made,)
    if not isinstance(several, tuple | list) or len(several) != schema.outputs:
        raise TypeError(f"the kernel gives {schema.outputs} arrays in a tuple, not {type(made).__name__}")
    return list(several)


def store(result: Any, target: Any, number: int) -> None:
    """Copy a result to its target, if it was computed elsewhere; TypeError or ValueError if it does not fit."""
    if result is None or result is target:
        return
    shape, dtype = getattr(result, "shape", None), getattr(result, "dtype", None)
    if shape is None or dtype is None:
        raise TypeError(f"the kernel's result {number} is not an array, but {type(result).__name__}")
    if shape != target.shape or dtype != target.dtype:
        wanted = f"{target.dtype}{list(target.shape)}"
        raise ValueError(f"the kernel's result {number} is {dtype}{list(shape)}; its infer function said {wanted}")
    target[...] = result
