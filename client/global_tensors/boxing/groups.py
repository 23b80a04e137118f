"""What moves among the parts of a group, each on a device of its own: collectives, which routines record, too."""

from __future__ import annotations

from collections.abc import Sequence

from ....interpreter.collectives.choice import RING, communicator_of
from ....interpreter.collectives.collective import REDUCTIONS, collective
from ....interpreter.types.meta import Meta
from ...collectives.collectives import all_gather as gather
from ...collectives.collectives import all_reduce as reduce
from ...collectives.collectives import all_to_all as exchange
from ...collectives.collectives import reduce_scatter as scatter
from ...tensor.tensor import Tensor

__all__ = ["exchange", "gather", "goes_around", "reduce", "reduced", "scatter"]


def goes_around(meta: Meta, ranks: int, reduction: str) -> bool:
    """Does a collective reduce such parts chunk by chunk, each from another device on?"""
    return communicator_of(collective("all_reduce", [meta] * ranks, ranks, reduction=reduction)) is RING


def reduced(parts: Sequence[Tensor], reduction: str, home: str) -> Tensor:
    """The reduction of tensors on one device, in their order."""
    first, *rest = [part.to_device(home) for part in parts]
    for part in rest:
        (first,) = first._core.calls.call(first._core, REDUCTIONS[reduction][0], [first, part])
    return first
