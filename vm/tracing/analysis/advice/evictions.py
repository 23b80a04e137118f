"""Repeated evictions: values that are evicted from a device to make room and come back, more than once.

Cost: the transfers from the second eviction on, minus the time in which the device computed. A value counts
as the same value while it moves, and after it is written in place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter

from ...record import Record
from .finding import FORCED, Evidence, Finding, ends_of, finding, read_by, written_by

OUT, BACK = FORCED[:2], FORCED[2]


def repeated_evictions(evidence: Evidence) -> Iterator[Finding]:
    """Devices whose values leave and come back more than once."""
    rounds: dict[str, list[list[Record]]] = defaultdict(list)
    for moves in _values(evidence).values():
        returns = [record for record in moves if record.op.startswith(BACK)]
        if len(returns) > 1:
            rounds[ends_of(returns[0])[1]].append(moves)
    for device, values in rounds.items():
        costs = [(record, evidence.exposed(record)) for moves in values for record in moves[_first(moves) :]]
        needed = peak_away_bytes(values)
        returned = sum(record.op.startswith(BACK) for record, _ in costs)
        yield finding("evictions", costs, count=returned, nbytes=needed, devices=(device,))


def peak_away_bytes(values: Iterable[Sequence[Record]]) -> int:
    """The most bytes that were away at one time. With that much more memory, all values would have stayed."""
    moves = sorted((record for each in values for record in each), key=attrgetter("admitted", "id"))
    changes = (-record.nbytes if record.op.startswith(BACK) else record.nbytes for record in moves)
    return max(accumulate(changes), default=0)


def _first(moves: list[Record]) -> int:
    """The number of moves up to the first return."""
    return 1 + next(index for index, record in enumerate(moves) if record.op.startswith(BACK))


def _values(evidence: Evidence) -> dict[int, list[Record]]:
    """The evictions and returns of each value, in their order."""
    value: dict[int, int] = {}
    moves: dict[int, list[Record]] = defaultdict(list)
    for record in evidence.records:
        if record.op.startswith(FORCED):
            for source, target in zip(read_by(record), written_by(record), strict=False):
                value[target] = value.get(source, source)
                moves[value[target]].append(record)
    return moves
