"""The array API standard's chapter "Utility Functions": `all`, `any` and `diff`, methods of `Namespace`.

Each method issues the op of its name, which checks the arguments. Operands of an op are tensors, so `diff` sends the
operands that are given, and two attributes that say which ones these are.
"""

from __future__ import annotations

from typing import TypeAlias

from ..tensor.tensor import Tensor
from .functions import Functions

Axes: TypeAlias = int | tuple[int, ...] | None


class Utility(Functions):
    """Tests of truth, and differences along an axis."""

    def all(self, x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Whether all elements along the axes (None: all axes) are true.

        Every non-zero number is true, NaN included; the result for no elements is True.
        """
        return self._call("all", x, axis=axis, keepdims=keepdims)

    def any(self, x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """Whether any element along the axes (None: all axes) is true.

        Every non-zero number is true, NaN included; the result for no elements is False.
        """
        return self._call("any", x, axis=axis, keepdims=keepdims)

    def diff(
        self, x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
    ) -> Tensor:
        """Differences of neighbours along `axis`, taken `n` times.

        `prepend` and `append` are first joined to the ends of x.

        These two have the shape of x except along the axis, and a dtype that promotes with x's. ValueError for other
        shapes and negative `n`, IndexError for an axis that x does not have.
        """
        ends = [end for end in (prepend, append) if end is not None]
        is_given = {"prepend": prepend is not None, "append": append is not None}
        return self._call("diff", x, *ends, axis=axis, n=n, **is_given)
