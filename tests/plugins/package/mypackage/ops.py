"""An op of a plain function."""

from __future__ import annotations

import tensord as td


@td.op(elementwise=True)
def damped(x: td.Tensor, y: td.Tensor, *, rate: float = 0.5) -> td.Tensor:
    """x, and a part of the way to y."""
    return x + (y - x) * rate
