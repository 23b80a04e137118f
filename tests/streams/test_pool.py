"""The pool: size classes, reuse, its bound."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensord.streams.device import LaunchOrder
from tensord.streams.pool import Pool, owner_of, size_class


def pool(keep=1 << 20):
    return Pool(keep, lambda nbytes: np.empty(nbytes, np.uint8), size_class)


@given(st.integers(0, 1 << 40))
def test_a_class_holds_what_was_asked_for_and_wastes_little(nbytes):
    capacity = size_class(nbytes)
    assert capacity >= max(nbytes, 1)
    assert capacity % 64 == 0
    assert capacity <= max(64, nbytes + 63, nbytes * 9 // 8)
    assert size_class(capacity) == capacity


def test_a_freed_buffer_is_the_next_one_of_its_class():
    buffers = pool()
    first = buffers.take(100)
    buffers.give(first)
    assert buffers.cached == 128
    again = buffers.take(120)
    assert again is first
    assert again.nbytes == 120
    assert buffers.cached == 0
    assert buffers.take(100) is not first


def test_memory_that_no_launch_may_still_use_is_preferred_or_made_if_there_is_room():
    order = LaunchOrder()
    buffers = Pool(1 << 20, lambda nbytes: np.empty(nbytes, np.uint8), size_class, order)
    order.reached = 5
    old, busy = buffers.take(100), buffers.take(100)
    old.behind, busy.behind = 5, 6
    for buffer in (old, busy):
        buffers.give(buffer)
    buffers.prefer_reached(100, room=0)
    assert buffers.take(100) is old
    buffers.prefer_reached(100, room=255)
    assert buffers.take(100) is busy
    buffers.give(busy)
    buffers.prefer_reached(100, room=256)
    assert buffers.take(100) not in {old, busy}
    assert buffers.cached == 128
    order.reached = 6
    buffers.prefer_reached(100, room=1 << 20)
    assert buffers.take(100) is busy
    assert buffers.cached == 0


def test_another_class_does_not_get_it():
    buffers = pool()
    first = buffers.take(100)
    buffers.give(first)
    assert buffers.take(1000) is not first


def test_giving_twice_is_an_error_and_changes_nothing():
    buffers = pool()
    buffer = buffers.take(100)
    buffers.give(buffer)
    with pytest.raises(ValueError, match="free already"):
        buffers.give(buffer)
    assert buffers.cached == 128


def test_what_is_kept_is_bounded():
    buffers = pool(keep=1024)
    taken = [buffers.take(128) for _ in range(100)]
    for buffer in taken:
        buffers.give(buffer)
    assert 0 < buffers.cached <= 1024


def test_a_new_size_displaces_the_old_ones():
    buffers = pool(keep=1024)
    old = [buffers.take(128) for _ in range(8)]
    for buffer in old:
        buffers.give(buffer)
    new = buffers.take(256)
    buffers.give(new)
    assert buffers.take(256) is new


@pytest.fixture
def full():
    """A pool that is full of small buffers."""
    buffers = pool(keep=1 << 20)
    for buffer in [buffers.take(64) for _ in range(1 << 14)]:
        buffers.give(buffer)
    assert buffers.cached == buffers.keep
    return buffers


@pytest.mark.parametrize("size", [100, 1 << 19])
def test_no_single_buffer_displaces_thousands(full, size):
    """Dropping thousands would take long, on the thread that drives the machine."""
    before = full.kept().blocks
    full.give(full.take(size))
    assert 0 < before - full.kept().blocks < 1000


def test_a_new_size_displaces_thousands_in_the_end(full):
    for _ in range(100):
        new = full.take(1 << 18)
        full.give(new)
    assert full.take(1 << 18) is new


def test_a_buffer_larger_than_half_of_the_bound_does_not_displace_the_rest():
    buffers = pool(keep=1024)
    small = buffers.take(128)
    buffers.give(small)
    buffers.give(buffers.take(1000))
    assert buffers.cached == 128


def test_trim_drops_down_to_a_target():
    buffers = pool()
    taken = [buffers.take(64) for _ in range(10)]
    for buffer in taken:
        buffers.give(buffer)
    buffers.trim(320)
    assert buffers.cached == 320
    buffers.trim(0)
    assert buffers.cached == 0


def test_many_distinct_sizes_leave_no_growing_table():
    buffers = pool()
    for nbytes in range(20_000):
        buffers.give(buffers.take(nbytes))
    assert len(buffers.by_size) <= 4096


def test_what_is_kept_is_told_with_its_blocks_and_the_largest_of_them():
    pool = Pool(1 << 20, bytearray, size_class)
    taken = [pool.take(size) for size in (64, 100, 100)]
    assert pool.kept() == (0, 0, 0)
    for buffer in taken:
        pool.give(buffer)
    assert pool.kept() == (64 + 2 * size_class(100), 3, size_class(100))
    assert pool.owners() == {id(buffer.raw) for buffer in taken}


def test_the_owner_of_memory_is_at_the_bottom_of_its_views():
    block = np.empty(64, np.uint8)
    assert owner_of(np.ndarray((2, 2), np.float32, block)[1:].T) is block
    assert owner_of(block) is block
    memory = bytearray(64)
    assert owner_of(np.ndarray(8, np.uint8, memory)[2:]) is memory
