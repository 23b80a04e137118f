"""Refusals: a cache of searches for victims that found none, valid as long as nothing has changed.

Evicting a value from a device needs room on the host, and making that room needs room in the store. Without the cache,
if all tiers are full, one request would visit every value of the host for every value of the device.

The cache holds searches that freed nothing: the same search in the same state frees nothing again. A *question* is that
state, in numbers that are at hand:

- the session that asks, its account, and the spared copies on the device and the tiers below;
- for the device and each of these tiers, the planned bytes and the newest candidate. A copy that leaves lowers the
  planned bytes, and only a copy that arrives raises them, which is then the newest candidate. So if both are unchanged,
  the candidates are unchanged;
- the number of the newest use, if sessions have floors, since the effect of a floor depends on the order of the search.

The needed bytes are not part of the question: whether they fit is checked before, and a failing search visits all
candidates. Questions are only computed after a first search has failed.

Pins, exports, failures, and copies on other devices may also change the answer, but only between messages or when
instructions retire, not while room is being made. So the cache is cleared at the end of the outermost `with`: one
`make_room`, or all values of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeAlias

from ..model.session import VmSession
from ..model.tensor import Copy
from .making_room import RoomRequest

Question: TypeAlias = tuple[Any, ...]


class RefusedQuestions:
    """The refused questions since the outermost `with` was entered (`known`), and whether a search has `failed`."""

    def __init__(self) -> None:
        self.depth = 0
        self.failed = False
        self.known: set[Question] = set()

    def __enter__(self) -> None:
        self.depth += 1

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if not self.depth and self.failed:
            self.failed = False
            self.known.clear()


def question_of(room: RoomRequest, session: VmSession, bound: Collection[Copy]) -> Question:
    """The question whether a session's request for room finds a victim. `bound`: copies that must stay everywhere."""
    device, spare, account, _, own = room
    below = device.tiers
    spared = frozenset([copy for copy in spare if copy.device is device])
    bound_below = frozenset([copy for copy in bound if copy.device in below])
    tiers = [device, *below]
    plans = [(tier.planned, next(reversed(tier.candidates), None)) for tier in tiers]
    used = device.uses.newest if any(tier.eviction.floor for tier in tiers) else 0
    return device, session, account, own, spared, bound_below, used, *plans
