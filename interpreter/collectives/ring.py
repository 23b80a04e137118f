"""Ring: each rank reads only from the one before it, chunk by chunk, so that all links are busy all the time.

Of an all_reduce each rank receives 2 (n - 1) / n of the value, whatever n is: n - 1 chunks to be merged, after which
each rank has one chunk of the result, and n - 1 to be copied.

Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009).
"""

from __future__ import annotations

from .collective import Collective
from .direct import Direct
from .regions import along, cut, whole
from .steps import Place, Step, Steps


class Ring(Direct):
    """`Communicator` over the links between neighbours, for what needs no memory on its way."""

    name = "ring"

    def all_reduce(self, given: Collective) -> Steps:
        """A chunk begins at the rank behind the one that has it merged at last, and goes around."""
        ranks = given.ranks
        if ranks == 1:
            return super().all_reduce(given)
        regions = cut((given.inputs[0].size,), 0, ranks)
        steps = []
        for turn in range(ranks - 1):
            for rank in range(ranks):
                chunk = (rank - turn - 1) % ranks
                own, before = (
                    Place(rank, regions[chunk]),
                    Place((rank - 1) % ranks, regions[chunk], chunk if turn else -1),
                )
                steps.append(Step(Place(rank, regions[chunk], chunk), before, own))
        for turn in range(ranks - 1):
            for rank in range(ranks):
                chunk = (rank - turn) % ranks
                steps.append(Step(Place(rank, regions[chunk], chunk), Place((rank - 1) % ranks, regions[chunk], chunk)))
        return steps

    def all_gather(self, given: Collective) -> Steps:
        """A rank copies its own input, then what the rank before it got last."""
        axis, ranks = given.axis, given.ranks
        regions = along(given.outputs()[0].shape, axis, [meta.shape[axis] for meta in given.inputs])
        steps = []
        for turn in range(ranks):
            for rank in range(ranks):
                chunk = (rank - turn) % ranks
                before = Place((rank - 1) % ranks, regions[chunk], chunk)
                source = Place(chunk, whole(given.inputs[chunk].shape)) if turn < 2 else before
                steps.append(Step(Place(rank, regions[chunk], chunk), source))
        return steps

    def broadcast(self, given: Collective) -> Steps:
        """The chunks go from the root to the rank behind it, and so on: a rank passes on what it has got."""
        ranks = given.ranks
        steps = []
        for chunk, region in enumerate(cut((given.inputs[0].size,), 0, ranks)):
            source = Place(0, region)
            for turn in range(ranks):
                target = Place((given.root + turn) % ranks, region, chunk)
                steps.append(Step(target, source))
                source = target
        return steps
