"""An operand of an instruction, bound to one copy of its tensor's storage."""

from __future__ import annotations

from typing import NamedTuple

from .tensor import Copy, Tensor


class Binding(NamedTuple):
    """One tensor operand bound to a copy. `strides` is None where the copy holds the tensor packed."""

    copy: Copy
    tensor: Tensor
    offset: int
    strides: tuple[int, ...] | None
