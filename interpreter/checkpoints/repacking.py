"""Chooses the values files whose remaining values a new generation writes again.

A values file can be removed when no generation needs any value in it. Large values have files of their own; small ones
share a *pack*, of which a few may be needed for long. So each generation moves the values of some packs into its own:

- of packs that are less than half in use, since the rest is waste;
- of small packs of about the same size, if there are many: generations with few values each would leave as many files.

A generation moves at most `MAX_MOVED_BYTES`, and leaves the rest to the next generation. Packs of one size make one of
the next size, so a value moves a logarithmic number of times (size-tiered merging, as in Cassandra and Lucene).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import Final, NamedTuple

from ..wire.limits import MIB

LARGE_VALUE_BYTES: Final = 4 * MIB  # bytes from which a value has a file of its own
FULL_PACK_BYTES: Final = 32 * MIB  # bytes from which a pack gets no more values
MAX_PACKS_PER_TIER: Final = 8  # packs of one tier
MAX_MOVED_BYTES: Final = 32 * MIB  # bytes that a generation moves


class Pack(NamedTuple):
    """A values file: its id, its size, and the bytes of it that are needed."""

    id: int
    size: int
    live: int


def to_repack(packs: Iterable[Pack]) -> list[int]:
    """The ids of files whose values move: first of wasteful packs, then of small ones, those with the fewest bytes."""
    ordered = sorted(packs, key=_live)
    wanted = [pack for pack in ordered if pack.live * 2 < pack.size]
    small = [pack for pack in ordered if pack.size < LARGE_VALUE_BYTES and pack.live * 2 >= pack.size]
    for _, alike in groupby(small, key=_tier):
        tier = list(alike)
        if len(tier) > MAX_PACKS_PER_TIER:
            wanted += tier
    chosen, left = [], MAX_MOVED_BYTES
    for pack in wanted:
        left -= pack.live
        if left >= 0:
            chosen.append(pack.id)
    return chosen


def _live(pack: Pack) -> tuple[int, int]:
    return pack.live, pack.id


def _tier(pack: Pack) -> int:
    return pack.live.bit_length() // 3  # each tier is eight times the one before
