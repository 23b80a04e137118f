"""The steps of a collective on plain arrays, one after the other: the reference for every other way to do them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .choice import schedule_of
from .collective import CollectiveSpec
from .steps import ChunkRegion, Steps


def compute(given: CollectiveSpec, inputs: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The results of a collective, one for each rank."""
    results = [np.empty(meta.shape, meta.dtype) for meta in given.outputs()]
    carry_out(given, schedule_of(given).steps, inputs, results)
    return results


def carry_out(
    given: CollectiveSpec, steps: Steps, inputs: Sequence[NDArray[Any]], results: Sequence[NDArray[Any]]
) -> None:
    """Do the steps on packed results."""
    merge = getattr(np, given.merge)
    given_arrays, made = ([array.reshape(-1) if given.flat else array for array in some] for some in (inputs, results))

    def array_at(chunk: ChunkRegion) -> NDArray[Any]:
        return (given_arrays if chunk.is_input else made)[chunk.rank][chunk.region.slices]

    for step in steps:
        target, source = array_at(step.target), array_at(step.source)
        if step.base is None:
            target[...] = source
        else:
            merge(array_at(step.base), source, out=target)
