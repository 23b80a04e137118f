"""Steps of collectives, and the interface of the algorithms that make them.

A step moves one chunk from one rank's memory to another's, and is a copy or a merge. Steps are listed in an order in
which they may be done one after the other. Steps without a common chunk may be done at the same time, so a step need
only wait for the chunks that it reads.

Source: Ray's `Communicator` (`python/ray/experimental/channel/communicator.py`) for the narrow interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias

from .collective import CollectiveSpec
from .regions import Region


class ChunkRegion(NamedTuple):
    """A region of a rank's result, which is a chunk of it, or of an input (`chunk` is -1)."""

    rank: int
    region: Region
    chunk: int = -1

    @property
    def is_input(self) -> bool:
        """Return whether it is of an input."""
        return self.chunk < 0


class CollectiveStep(NamedTuple):
    """A step: `target`, a chunk of the receiving rank's result, becomes `source`; or `base` merged with `source`, in
    this order. `base` is on the same rank as the target."""

    target: ChunkRegion
    source: ChunkRegion
    base: ChunkRegion | None = None

    @property
    def rank(self) -> int:
        """The rank that receives."""
        return self.target.rank


Steps: TypeAlias = Sequence[CollectiveStep]


class Communicator(Protocol):
    """An algorithm that carries collectives out between ranks; all methods return the steps.

    The order in which values are merged depends on the collective alone, and all ranks get the same bits of a common
    value. No step has an empty region. A library with collectives of its own, NCCL, is no such algorithm: it has calls
    instead of steps (`library`), and its own order.
    """

    name: str

    def all_reduce(self, given: CollectiveSpec) -> Steps:
        """Each rank's result is the inputs merged."""

    def all_gather(self, given: CollectiveSpec) -> Steps:
        """Each rank's result is the concatenation of the inputs."""

    def reduce_scatter(self, given: CollectiveSpec) -> Steps:
        """Each rank's result is its part of the inputs merged."""

    def broadcast(self, given: CollectiveSpec) -> Steps:
        """Each rank's result is the one input."""

    def all_to_all(self, given: CollectiveSpec) -> Steps:
        """Each rank's result is the concatenation of its parts of all inputs."""


def numbered(steps: Steps, ranks: int) -> list[str]:
    """`step 3 of 8` for each step: its number among those of its rank, and the most of any rank."""
    done, texts = [0] * ranks, []
    for step in steps:
        done[step.rank] += 1
        texts.append(f"step {done[step.rank]} of ")
    return [f"{text}{max(done)}" for text in texts]


def without_empty(steps: Steps) -> Steps:
    """The steps that move data."""
    return [step for step in steps if step.target.region.size]
