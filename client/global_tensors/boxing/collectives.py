"""What moves among the devices of a group, made of plain ops and moves on plain tensors.

Sums are taken in the order of the devices, element by element, whichever way the bytes go: so the bits of a result
depend on the group alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ....interpreter.layouts.layout import Split
from ....interpreter.layouts.shares import shares
from ...tensor.tensor import Tensor
from .pieces import cut, joined

REDUCTIONS: Final = {"sum": "add", "max": "maximum", "min": "minimum"}
DIRECT: Final = 1 << 12  # bytes up to which each device gets all of the others' parts


def gather(parts: Sequence[Tensor], axis: int, homes: Sequence[str]) -> list[Tensor]:
    """Each device gets the parts of all, joined along an axis."""
    return [joined([part.to_device(home) for part in parts], axis) for home in homes]


def scatter(parts: Sequence[Tensor], reduction: str, axis: int) -> list[Tensor]:
    """Each device gets its share along an axis of the parts' reduction."""
    rows = shares(parts[0].shape, (len(parts),), (Split(axis),))
    made = []
    for mine, row in zip(parts, rows, strict=True):
        ends = tuple((begin, begin + size) for begin, size in zip(row.begin, row.shape, strict=True))
        made.append(reduced([cut(part, ends).to_device(mine._home) for part in parts], reduction))
    return made


def reduce(parts: Sequence[Tensor], reduction: str) -> list[Tensor]:
    """Each device gets the parts' reduction."""
    homes = [part._home for part in parts]
    axis = widest_axis(parts[0].shape)
    if axis is None or parts[0].nbytes <= DIRECT or len(parts) == 2:
        return [reduced([part.to_device(home) for part in parts], reduction) for home in homes]
    return gather(scatter(parts, reduction, axis), axis, homes)


def reduced(parts: Sequence[Tensor], reduction: str) -> Tensor:
    """The reduction of tensors on one device, in their order."""
    first, *rest = parts
    for part in rest:
        (first,) = first._core.calls.call(first._core, REDUCTIONS[reduction], [first, part])
    return first


def widest_axis(shape: tuple[int, ...]) -> int | None:
    """The longest axis, None if there is none that can be cut."""
    axis = max(range(len(shape)), key=shape.__getitem__, default=None)
    return axis if axis is not None and shape[axis] > 1 else None
