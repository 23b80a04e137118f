"""Packs that are mostly waste, or small and many, are moved, within bounds."""

from __future__ import annotations

import random

from tensord.interpreter.checkpoints.repacking import (
    FULL_PACK_BYTES,
    LARGE_VALUE_BYTES,
    MAX_MOVED_BYTES,
    MAX_PACKS_PER_TIER,
    Pack,
    to_repack,
)


def test_packs_stay_as_long_as_half_of_them_is_needed():
    assert (
        to_repack(
            [Pack(1, 1000, 500), Pack(2, 1000, 1000), Pack(3, 0, 0), Pack(4, LARGE_VALUE_BYTES, LARGE_VALUE_BYTES)]
        )
        == []
    )
    assert to_repack(
        [Pack(1, 1000, 499), Pack(2, FULL_PACK_BYTES, 1), Pack(3, FULL_PACK_BYTES, FULL_PACK_BYTES // 2)]
    ) == [2, 1]


def test_many_small_packs_of_about_one_size_move():
    packs = [Pack(id_, 100 + id_, 100 + id_) for id_ in range(MAX_PACKS_PER_TIER)]
    assert to_repack(packs) == []
    packs.append(Pack(99, 50_000, 50_000))
    assert to_repack(packs) == []
    packs.append(Pack(98, 90, 90))
    assert to_repack(packs) == [98, *range(MAX_PACKS_PER_TIER)]
    assert to_repack([Pack(id_, LARGE_VALUE_BYTES, LARGE_VALUE_BYTES) for id_ in range(1000)]) == [], (
        "large values never move"
    )


def test_what_moves_is_bounded():
    packs = [Pack(id_, FULL_PACK_BYTES, FULL_PACK_BYTES // 2 - 1) for id_ in range(9)]
    assert len(to_repack(packs)) == MAX_MOVED_BYTES // (FULL_PACK_BYTES // 2 - 1)
    assert to_repack(
        [Pack(1, 3 * MAX_MOVED_BYTES, MAX_MOVED_BYTES + 1), Pack(2, 3 * MAX_MOVED_BYTES, MAX_MOVED_BYTES)]
    ) == [2]
    rnd = random.Random(1)
    for _ in range(100):
        packs = [
            Pack(id_, size := rnd.randrange(FULL_PACK_BYTES), rnd.randrange(size + 1))
            for id_ in range(rnd.randrange(200))
        ]
        chosen = set(to_repack(packs))
        assert sum(pack.live for pack in packs if pack.id in chosen) <= MAX_MOVED_BYTES


def test_a_value_moves_seldom_while_one_after_the_other_is_added():
    """Ten thousand generations of one new value: few files, and each value moves a few times."""
    packs: dict[int, int] = {}
    moved = 0
    for number in range(10_000):
        chosen = to_repack(Pack(id_, size, size) for id_, size in packs.items())
        moved += (size := sum(map(packs.pop, chosen)))
        packs[number] = size + 1000
        assert len(packs) <= 5 * MAX_PACKS_PER_TIER
    assert moved < 5 * 10_000 * 1000
