"""Chooses the algorithm of a collective: by its size and the number of ranks alone, so that results are
reproducible.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from .collective import CollectiveKind, CollectiveSpec
from .direct import Direct
from .ring import RingCommunicator
from .steps import Communicator, Steps, without_empty

MIN_CHUNK_BYTES: Final = 64 << 10  # bytes: for smaller chunks the overhead of a step exceeds its transfer time
RING_KINDS: Final = frozenset({CollectiveKind.ALL_REDUCE, CollectiveKind.ALL_GATHER, CollectiveKind.BROADCAST})
DIRECT: Final[Communicator] = Direct()
RING: Final[Communicator] = RingCommunicator()
OVER_NODES: Final[Communicator] = RingCommunicator(over_nodes=True)


class Schedule(NamedTuple):
    """The steps of a collective, and the name of the algorithm."""

    algorithm: str
    steps: Steps


def communicator_of(given: CollectiveSpec, *, over_nodes: bool = False) -> Communicator:
    """The ring for large collectives whose chunks go around; otherwise direct."""
    large = given.ranks > 1 and given.nbytes >= given.ranks * MIN_CHUNK_BYTES
    if not large or given.kind not in RING_KINDS:
        return DIRECT
    return OVER_NODES if over_nodes else RING


def schedule_of(given: CollectiveSpec, *, over_nodes: bool = False) -> Schedule:
    """The steps of a collective. Over several nodes there are fewer and larger steps, which give the same bits."""
    chosen = communicator_of(given, over_nodes=over_nodes)
    make: dict[CollectiveKind, Callable[[CollectiveSpec], Steps]] = {
        CollectiveKind.ALL_REDUCE: chosen.all_reduce,
        CollectiveKind.ALL_GATHER: chosen.all_gather,
        CollectiveKind.REDUCE_SCATTER: chosen.reduce_scatter,
        CollectiveKind.BROADCAST: chosen.broadcast,
        CollectiveKind.ALL_TO_ALL: chosen.all_to_all,
    }
    return Schedule(chosen.name, without_empty(make[given.kind](given)))
