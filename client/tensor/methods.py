"""The ops that a tensor has as methods and properties, besides its operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ...interpreter.errors import MetadataError
from ...interpreter.schema.opdef import FrozenAttributes, OpDef
from ..locations.locations import located
from .operators import Operand, Operators

if TYPE_CHECKING:
    from .tensor import Tensor


Axes: TypeAlias = int | tuple[int, ...] | None


class Methods(Operators):
    """Each is an op on this tensor; its result is a new tensor."""

    __slots__ = ()

    if TYPE_CHECKING:

        def _call(self, name: str, *others: Operand, **attributes: Any) -> Tensor: ...

    @property
    def mT(self) -> Tensor:  # noqa: N802 - the array API's name
        """The last two axes swapped: each matrix of a stack transposed. A view, as `T`."""
        return self._call("matrix_transpose")

    @property
    def T(self) -> Tensor:  # noqa: N802 - the array API's name
        """The axes in reverse order. Shares memory until one of the two is written.

        Values are independent: unlike with NumPy's views, writing to one never changes the other.
        """
        return self._call("transpose")

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """Another shape, with one -1 at most: `reshape(3, 2)`, `reshape((3, 2))`.

        Shares memory where strides can express it, until one of the two is written. Values are independent: unlike
        with NumPy's views, writing to one never changes the other.
        """
        wanted = shape[0] if len(shape) == 1 else shape
        return self._call("reshape", shape=wanted)

    def permute_dims(self, axes: Sequence[int]) -> Tensor:
        """Axis i of the result is axis `axes[i]` of this one. Shares memory until one of the two is written."""
        return self._call("permute_dims", axes=axes)

    def squeeze(self, axis: Axes = None) -> Tensor:
        """Drop the given axes of size one, or all of them. Shares memory until one of the two is written."""
        return self._call("squeeze", axis=axis)

    def astype(self, dtype: Any) -> Tensor:
        """Another dtype."""
        return self._call("astype", dtype=dtype)

    def sum(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Sum over the axes."""
        return self._call("sum", axis=axis, keepdims=keepdims)

    def prod(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Product over the axes."""
        return self._call("prod", axis=axis, keepdims=keepdims)

    def mean(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Mean over the axes."""
        return self._call("mean", axis=axis, keepdims=keepdims)

    def var(self, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
        """Variance over the axes; divides by the number of elements less `correction`."""
        return self._call("var", axis=axis, correction=correction, keepdims=keepdims)

    def std(self, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
        """Standard deviation over the axes; see `var`."""
        return self._call("std", axis=axis, correction=correction, keepdims=keepdims)

    def max(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Largest element along the axes."""
        return self._call("max", axis=axis, keepdims=keepdims)

    def min(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Smallest element along the axes."""
        return self._call("min", axis=axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        """Index of the largest element along the axis."""
        return self._call("argmax", axis=axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        """Index of the smallest element along the axis."""
        return self._call("argmin", axis=axis, keepdims=keepdims)

    def all(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Are all elements along the axes true?"""
        return self._call("all", axis=axis, keepdims=keepdims)

    def any(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Is one of the elements along the axes true?"""
        return self._call("any", axis=axis, keepdims=keepdims)


def frozen_index(key: Any, op: OpDef) -> FrozenAttributes:
    """An index as an attribute of an op; MetadataError if it is none."""
    try:
        return op.freeze({"index": key})
    except MetadataError as error:
        raise located(error) from None


def tensors_in(key: Any) -> list[Any]:
    if type(key) is tuple:
        return [entry for entry in key if isinstance(entry, Methods)]
    return [key] if isinstance(key, Methods) else []


def with_places(key: Any) -> tuple[Any, ...]:
    """The index in the form that ops take, with marks for tensors."""
    entries = key if type(key) is tuple else (key,)
    return tuple("tensor" if isinstance(entry, Methods) else entry for entry in entries)
