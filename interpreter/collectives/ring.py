"""The ring algorithm: each rank reads only from the one before it, chunk by chunk, so that all links are always busy.

In an all_reduce over n ranks each rank receives 2 (n - 1) / n of the value: n - 1 chunks to merge, after which each
rank has one chunk of the result, and n - 1 to copy. A large chunk goes around in two slices; in the steps, each slice
is a chunk with a number of its own.

A ring would need memory for intermediate sums in a reduce_scatter, and saves nothing in an all_to_all. These two are
the direct algorithm's.

Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009).
"""

from __future__ import annotations

from itertools import product
from typing import Final

from .collective import CollectiveSpec
from .direct import Direct
from .regions import Region, along, cut, whole
from .steps import ChunkRegion, CollectiveStep, Steps

# Bytes from which a chunk goes around in two slices. Over nodes each slice costs a transfer, and pieces of a transfer
# are merged as they arrive, so slices gain less.
SLICED_CHUNK_BYTES: Final = 1 << 20
SLICED_CHUNK_BYTES_OVER_NODES: Final = 4 << 20


class RingCommunicator(Direct):
    """The `Communicator` over links between neighbours. `over_nodes`: some of these links lead to other nodes."""

    name = "ring"

    def __init__(self, *, over_nodes: bool = False) -> None:
        self.over_nodes = over_nodes

    def all_reduce(self, given: CollectiveSpec) -> Steps:
        """Each chunk begins at the rank after the one that completes it, and goes around."""
        ranks, slices = given.ranks, slices_of(given, over_nodes=self.over_nodes)
        if ranks == 1:
            return super().all_reduce(given)
        regions = [region for chunk in cut((given.inputs[0].size,), 0, ranks) for region in sliced(chunk, slices)]
        steps = []
        for turn, part, rank in product(range(ranks - 1), range(slices), range(ranks)):  # merge
            number = (rank - turn - 1) % ranks * slices + part
            own_input = ChunkRegion(rank, regions[number])
            received = ChunkRegion((rank - 1) % ranks, regions[number], number if turn else -1)  # first an input
            steps.append(CollectiveStep(ChunkRegion(rank, regions[number], number), received, own_input))
        for turn, part, rank in product(range(ranks - 1), range(slices), range(ranks)):  # copy
            number = (rank - turn) % ranks * slices + part
            received = ChunkRegion((rank - 1) % ranks, regions[number], number)
            steps.append(CollectiveStep(ChunkRegion(rank, regions[number], number), received))
        return steps

    def all_gather(self, given: CollectiveSpec) -> Steps:
        """A rank copies its own input, then the chunk that the rank before it received last."""
        axis, ranks = given.axis, given.ranks
        regions = along(given.outputs()[0].shape, axis, [meta.shape[axis] for meta in given.inputs])
        steps = []
        for turn in range(ranks):
            for rank in range(ranks):
                chunk = (rank - turn) % ranks
                received = ChunkRegion((rank - 1) % ranks, regions[chunk], chunk)
                source = ChunkRegion(chunk, whole(given.inputs[chunk].shape)) if turn < 2 else received
                steps.append(CollectiveStep(ChunkRegion(rank, regions[chunk], chunk), source))
        return steps

    def broadcast(self, given: CollectiveSpec) -> Steps:
        """The chunks go from the root to the next rank, and so on: each rank passes on the chunks that it receives."""
        ranks = given.ranks
        steps = []
        for chunk, region in enumerate(cut((given.inputs[0].size,), 0, ranks)):
            source = ChunkRegion(0, region)
            for turn in range(ranks):
                target = ChunkRegion((given.root + turn) % ranks, region, chunk)
                steps.append(CollectiveStep(target, source))
                source = target
        return steps


def sliced(chunk: Region, slices: int) -> list[Region]:
    """The slices of a chunk of elements in one dimension."""
    (begin,) = chunk.begin
    return [Region((begin + piece.begin[0],), piece.shape) for piece in cut(chunk.shape, 0, slices)]


def slices_of(given: CollectiveSpec, *, over_nodes: bool) -> int:
    """The number of slices of a chunk: two if it is large, so that one is on the link while the machine finishes the
    step of the other one and begins the next step."""
    least = SLICED_CHUNK_BYTES_OVER_NODES if over_nodes else SLICED_CHUNK_BYTES
    return 2 if given.nbytes >= given.ranks * least else 1
