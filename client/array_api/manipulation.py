"""Manipulation functions. Most results share memory with their operand until one of the two is written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ...interpreter.schema.attributes import check_int, check_shape
from ...interpreter.schema.promotion import broadcast_shapes
from ...interpreter.types.axes import normal_axis
from ..calls.checks import own
from ..tensor.tensor import Tensor
from .functions import Functions, argument_error

Axes: TypeAlias = int | tuple[int, ...]
_ALL = ("slice", None, None, None)


class Manipulation(Functions):
    """broadcast_arrays broadcast_shapes broadcast_to concat expand_dims flip moveaxis permute_dims repeat reshape roll
    squeeze stack tile unstack."""

    def broadcast_arrays(self, *arrays: Tensor) -> tuple[Tensor, ...]:
        """The tensors, broadcast to their common shape. ValueError if they do not broadcast.

        Waits for data-dependent shapes.
        """
        tensors = [own(self._core, each) for each in arrays]
        try:
            shape = broadcast_shapes([each.shape for each in tensors])
        except ValueError as error:
            raise argument_error("broadcast_arrays", error) from None
        return tuple(self._call("broadcast_to", each, shape=shape) for each in tensors)

    def broadcast_shapes(self, *shapes: tuple[int, ...]) -> tuple[int, ...]:
        """The shape that all the shapes broadcast to.

        () without shapes, ValueError if they do not broadcast. Takes shapes, not tensors.
        """
        try:
            return broadcast_shapes(list(map(check_shape, shapes)))
        except (TypeError, ValueError) as error:
            raise argument_error("broadcast_shapes", error) from None

    def broadcast_to(self, x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
        """x broadcast to `shape`; ValueError if that is not possible."""
        return self._call("broadcast_to", x, shape=shape)

    def concat(self, arrays: tuple[Tensor, ...] | list[Tensor], /, *, axis: int | None = 0) -> Tensor:
        """The tensors joined along `axis`; if `axis` is None, their elements in C order as a 1-d tensor.

        ValueError if shapes differ in another axis, TypeError if dtypes do not promote.
        """
        return self._call("concat", *self._sequence("concat", arrays), axis=axis)

    def expand_dims(self, x: Tensor, /, axis: Axes = 0) -> Tensor:
        """x with new axes of size one, at positions `axis` of the result. IndexError if a position does not exist."""
        return self._call("expand_dims", x, axis=axis)

    def flip(self, x: Tensor, /, *, axis: Axes | None = None) -> Tensor:
        """x reversed along the axes, or along all of them; IndexError if one does not exist."""
        return self._call("flip", x, axis=axis)

    def moveaxis(self, x: Tensor, source: Axes, destination: Axes, /) -> Tensor:
        """x with some axes moved to other positions; the other axes keep their order.

        IndexError for axes that do not exist, ValueError if one occurs twice or if `source` and `destination` differ
        in length.
        """
        return self._call("moveaxis", x, source=source, destination=destination)

    def permute_dims(self, x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
        """Axis i of the result is axis `axes[i]` of x; ValueError unless `axes` names each axis once."""
        return self._call("permute_dims", x, axes=axes)

    def repeat(self, x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
        """Each element repeated along `axis`; if `axis` is None, the elements in C order as a 1-d tensor.

        Counts in a tensor of integers, one per element or one for all, make the result's shape data-dependent:
        reading that shape waits. ValueError for negative counts; if a tensor holds them, reading the result raises.
        """
        if isinstance(repeats, Tensor):
            return self._call("repeat_each", x, repeats, axis=axis)
        return self._call("repeat", x, repeats=repeats, axis=axis)

    def reshape(self, x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
        """The elements in C order in another shape, of which one dimension may be -1; ValueError if they do not fit.

        The result never shares values with x, for any `copy`. With False, reading the result raises if the
        memory layout of x does not allow the new shape without a copy.
        """
        return self._call("reshape", x, shape=shape, copy=copy)

    def roll(self, x: Tensor, /, shift: Axes, *, axis: Axes | None = None) -> Tensor:
        """The elements moved by `shift` along the axes, or in C order; those moved out at one end come in at the other.

        ValueError if the numbers of shifts and axes do not match, IndexError for axes that do not exist.
        """
        return self._call("roll", x, shift=shift, axis=axis)

    def squeeze(self, x: Tensor, /, axis: Axes) -> Tensor:
        """x without the axes `axis`, which must have size one.

        ValueError if one has another size, IndexError if it does not exist.
        """
        return self._call("squeeze", x, axis=axis)

    def stack(self, arrays: tuple[Tensor, ...] | list[Tensor], /, *, axis: int = 0) -> Tensor:
        """The tensors joined along a new axis, at position `axis` of the result.

        ValueError if shapes differ, TypeError if dtypes do not promote.
        """
        return self._call("stack", *self._sequence("stack", arrays), axis=axis)

    def tile(self, x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
        """x repeated as a whole, `repetitions[i]` times along axis i; missing axes and repetitions count as ones at
        the front.

        ValueError for negative repetitions.
        """
        return self._call("tile", x, repetitions=repetitions)

    def unstack(self, x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
        """The slices of x along `axis`, without it; IndexError if it does not exist. Waits if x's shape is unknown."""
        shape = own(self._core, x).shape
        try:
            normal = normal_axis(check_int(axis), len(shape))
        except (TypeError, ValueError) as error:
            raise argument_error("unstack", error) from None
        return tuple(self._call("getitem", x, index=(*(_ALL,) * normal, row)) for row in range(shape[normal]))

    def _sequence(self, function: str, arrays: Iterable[Tensor]) -> tuple[Tensor, ...]:
        """The tensors of a function that takes them as one argument; MetadataTypeError if it is not a sequence."""
        try:
            return tuple(arrays)
        except TypeError:
            error = TypeError(f"takes a sequence of tensors, not {type(arrays).__name__}")
            raise argument_error(function, error) from None
