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
    """Methods and properties that issue an op on this tensor; the result is a new tensor."""

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
        """Return the elements in another shape: ``reshape(3, 2)`` or ``reshape((3, 2))``.

        The result shares memory where strides can express it, until one of the two is written. Values are independent:
        unlike with NumPy's views, writing to one never changes the other.

        :param shape: The new shape, with one -1 at most.
        :returns: The result, a new tensor.
        :raises MetadataError: The shape has another number of elements.
        """
        wanted = shape[0] if len(shape) == 1 else shape
        return self._call("reshape", shape=wanted)

    def permute_dims(self, axes: Sequence[int]) -> Tensor:
        """Reorder the axes. Shares memory until one of the two is written.

        :param axes: Axis i of the result is axis ``axes[i]`` of this tensor.
        :returns: The result, a new tensor.
        """
        return self._call("permute_dims", axes=axes)

    def squeeze(self, axis: Axes = None) -> Tensor:
        """Drop axes of size one. Shares memory until one of the two is written.

        :param axis: The axis, or several; all axes of size one by default.
        :returns: The result, a new tensor.
        """
        return self._call("squeeze", axis=axis)

    def astype(self, dtype: Any) -> Tensor:
        """Convert the elements to another dtype.

        :param dtype: The dtype.
        :returns: The result, a new tensor.
        """
        return self._call("astype", dtype=dtype)

    def sum(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Sum over the axes.

        :param axis: The axis, or several; all by default.
        :param keepdims: The axes stay, with size one.
        :returns: The result, a new tensor.
        """
        return self._call("sum", axis=axis, keepdims=keepdims)

    def prod(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Product over the axes.

        :param axis: The axis, or several; all by default.
        :param keepdims: The axes stay, with size one.
        :returns: The result, a new tensor.
        """
        return self._call("prod", axis=axis, keepdims=keepdims)

    def mean(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Mean over the axes.

        :param axis: The axis, or several; all by default.
        :param keepdims: The axes stay, with size one.
        :returns: The result, a new tensor.
        """
        return self._call("mean", axis=axis, keepdims=keepdims)

    def var(self, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
        """Variance over the axes.

        :param axis: The axis, or several; all by default.
        :param correction: The sum of squares is divided by the number of elements less this.
        :param keepdims: The axes stay, with size one.
        :returns: The result, a new tensor.
        """
        return self._call("var", axis=axis, correction=correction, keepdims=keepdims)

    def std(self, axis: Axes = None, *, correction: float = 0.0, keepdims: bool = False) -> Tensor:
        """Standard deviation over the axes.

        :param axis: The axis, or several; all by default.
        :param correction: The sum of squares is divided by the number of elements less this.
        :param keepdims: The axes stay, with size one.
        :returns: The result, a new tensor.
        """
        return self._call("std", axis=axis, correction=correction, keepdims=keepdims)

    def max(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Largest element along the axes.

        :param axis: The axis, or several; all by default.
        :param keepdims: The axes stay, with size one.
        :returns: The result, a new tensor.
        """
        return self._call("max", axis=axis, keepdims=keepdims)

    def min(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Smallest element along the axes.

        :param axis: The axis, or several; all by default.
        :param keepdims: The axes stay, with size one.
        :returns: The result, a new tensor.
        """
        return self._call("min", axis=axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        """Index of the largest element along an axis.

        :param axis: The axis; by default the index is that of the flattened tensor.
        :param keepdims: The axes stay, with size one.
        :returns: The result, a new tensor.
        """
        return self._call("argmax", axis=axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Tensor:
        """Index of the smallest element along an axis.

        :param axis: The axis; by default the index is that of the flattened tensor.
        :param keepdims: The axes stay, with size one.
        :returns: The result, a new tensor.
        """
        return self._call("argmin", axis=axis, keepdims=keepdims)

    def all(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Whether all elements along the axes are true.

        :param axis: The axis, or several; all by default.
        :param keepdims: The axes stay, with size one.
        :returns: The result, a new tensor.
        """
        return self._call("all", axis=axis, keepdims=keepdims)

    def any(self, axis: Axes = None, *, keepdims: bool = False) -> Tensor:
        """Whether one of the elements along the axes is true.

        :param axis: The axis, or several; all by default.
        :param keepdims: The axes stay, with size one.
        :returns: The result, a new tensor.
        """
        return self._call("any", axis=axis, keepdims=keepdims)


def frozen_index(key: Any, op: OpDef) -> FrozenAttributes:
    """The index as an attribute of an op; MetadataError if the key is no index."""
    try:
        return op.freeze({"index": key})
    except MetadataError as error:
        raise located(error) from None


def tensors_of_index(key: Any) -> list[Any]:
    """The tensors among the entries of an index."""
    if type(key) is tuple:
        return [entry for entry in key if isinstance(entry, Methods)]
    return [key] if isinstance(key, Methods) else []


def with_tensor_marks(key: Any) -> tuple[Any, ...]:
    """The index as ops take it: a tuple with the text "tensor" in place of each tensor."""
    entries = key if type(key) is tuple else (key,)
    return tuple("tensor" if isinstance(entry, Methods) else entry for entry in entries)
