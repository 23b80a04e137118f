"""Refusals: questions for room to which the answer was no, remembered as long as nothing has changed.

Each value that is to leave a device asks the host for room, and each value there asks the store. Where all tiers are
full, one request would look at every value of the host for every value of the device.

What is remembered is a search for copies that may leave which let none leave. The same search in the same state lets
none leave either. A *question* is that state, in numbers that are at hand:

- who asks, for whose account, and which copies are spared, here and on the tiers below;
- of each of these tiers, its planned bytes and its newest candidate. A copy that has left lowers the first, and only
  one that has come since raises it, which is the newest candidate as long as it stays. So if both are as they were, the
  candidates are;
- the number of the newest use, where sessions have floors: what a floor keeps depends on the order of the search.

How many bytes are needed is no part of it: whether they fit is asked before, and a search that fails goes to the end.
Where no search has failed, no question is made up: the first failure has the later searches make theirs up.

Pins, exports, failures, and copies on devices that are not below may change the answer, too. They do so between
messages, or as instructions retire, but not while room is made. So refusals are forgotten at the end of the outermost
`with`: one `make_room`, or all values of a checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, TypeAlias

from ..model.session import VmSession
from ..model.tensor import Copy
from .making_room import Room

Question: TypeAlias = tuple[Any, ...]


class Refusals:
    """Questions refused since the outermost `with` was entered (`known`); has any search `failed` since?"""

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


def question(room: Room, session: VmSession, bound: Collection[Copy]) -> Question:
    """May anything leave for the room that a session wants? What is `bound` on the tiers below stays there."""
    device, spare, account, _, own = room
    below = device.tiers
    kept = frozenset([copy for copy in spare if copy.device is device])
    kept_below = frozenset([copy for copy in bound if copy.device in below])
    tiers = [device, *below]
    plans = [(tier.planned, next(reversed(tier.candidates), None)) for tier in tiers]
    used = device.uses.newest if any(tier.floor for tier in tiers) else 0
    return device, session, account, own, kept, kept_below, used, *plans
