"""The operators of a global tensor: those of a tensor, issued by `GlobalCalls` as one call for each part."""

from __future__ import annotations

from typing import cast

from ...interpreter.schema.opdef import OpDef
from ..locations.tracebacks import PUBLIC_ERRORS, hide
from ..tensor.operators import SCALARS, Binary, Operand, Unary, as_number, set_operators
from ..tensor.tensor import Tensor


def add_operators(tensor: type[Tensor]) -> None:
    """Add the operators to the class."""
    accepted = SCALARS | {tensor, Tensor}

    def forward(op: OpDef, in_place: bool) -> Binary:
        def operate(self: Tensor, other: Operand, /) -> Tensor:
            try:
                if type(other) not in accepted:
                    other = as_number(other)
                    if other is NotImplemented:
                        return cast("Tensor", NotImplemented)
                return self._core.global_calls.operate(op, self, other, in_place)
            except PUBLIC_ERRORS as error:
                hide(error)
                raise

        return operate

    def unary(op: OpDef) -> Unary:
        def operate(self: Tensor) -> Tensor:
            try:
                return self._core.global_calls.operate(op, self)
            except PUBLIC_ERRORS as error:
                hide(error)
                raise

        return operate

    set_operators(tensor, forward, unary)
