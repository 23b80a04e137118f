"""The direct algorithm: each rank reads its data where they are. It has the fewest consecutive steps, for small values.

A reduce_scatter or an all_to_all moves as many bytes directly as around a ring, and needs no memory for intermediate
sums, so they are always direct.
"""

from __future__ import annotations

from .collective import CollectiveSpec
from .regions import Region, along, cut, whole
from .steps import ChunkRegion, CollectiveStep, Steps


class Direct:
    """The `Communicator` without intermediate ranks."""

    name = "direct"

    def all_reduce(self, given: CollectiveSpec) -> Steps:
        """Each rank merges all inputs, in the order of the ranks: n - 1 whole values arrive."""
        region = whole((given.inputs[0].size,))
        return [step for rank in range(given.ranks) for step in merged(rank, range(given.ranks), region, region)]

    def all_gather(self, given: CollectiveSpec) -> Steps:
        """Each rank reads each input, its own first, then its neighbour's."""
        axis, ranks = given.axis, given.ranks
        regions = along(given.outputs()[0].shape, axis, [meta.shape[axis] for meta in given.inputs])
        return [
            CollectiveStep(ChunkRegion(rank, regions[n], n), ChunkRegion(n, whole(given.inputs[n].shape)))
            for rank in range(ranks)
            for n in around(rank, ranks)
        ]

    def reduce_scatter(self, given: CollectiveSpec) -> Steps:
        """Each rank merges its part of all inputs, its own first, then its neighbour's."""
        regions = cut(given.inputs[0].shape, given.axis, given.ranks)
        return [
            step
            for rank, region in enumerate(regions)
            for step in merged(rank, around(rank, given.ranks), region, whole(region.shape))
        ]

    def broadcast(self, given: CollectiveSpec) -> Steps:
        """Each rank reads the input."""
        region = whole((given.inputs[0].size,))
        return [CollectiveStep(ChunkRegion(rank, region, 0), ChunkRegion(0, region)) for rank in range(given.ranks)]

    def all_to_all(self, given: CollectiveSpec) -> Steps:
        """Each rank reads its part of each input, its own first, then its neighbour's."""
        ranks, gathered = given.ranks, given.concat_axis
        parts = [cut(meta.shape, given.axis, ranks) for meta in given.inputs]
        steps = []
        for rank, made in enumerate(given.outputs()):
            regions = along(made.shape, gathered, [part[rank].shape[gathered] for part in parts])
            steps += [
                CollectiveStep(ChunkRegion(rank, regions[n], n), ChunkRegion(n, parts[n][rank]))
                for n in around(rank, ranks)
            ]
        return steps


def merged(rank: int, order: range | list[int], region: Region, result: Region) -> Steps:
    """The steps by which a rank merges a region of all inputs, in that order, into a region of its result."""
    first, *others = order
    target, begin = ChunkRegion(rank, result, 0), ChunkRegion(first, region)
    if not others:
        return [CollectiveStep(target, begin)]
    # Data in its own memory need not be copied.
    start = [
        CollectiveStep(target, ChunkRegion(others.pop(0), region), begin)
        if first == rank
        else CollectiveStep(target, begin)
    ]
    return start + [CollectiveStep(target, ChunkRegion(other, region), target) for other in others]


def around(rank: int, ranks: int) -> list[int]:
    """All ranks, beginning with one."""
    return [(rank + n) % ranks for n in range(ranks)]
