"""Pinned memory: reused by size class, within a limit, given back when it is dropped on any thread."""

import gc
import threading
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.host_memory import HostMemory
from tensord.streams.cuda.pinned import MIN_BYTES, PinnedPool, is_pinned


class Block:
    """A block of ordinary memory."""

    made: list[int]

    def __init__(self, size):
        self.made.append(size)
        self.size = size
        self.array = np.empty(size, np.uint8)
        self.ptr = self.array.__array_interface__["data"][0]


@pytest.fixture(autouse=True)
def made(monkeypatch):
    sizes: list[int] = []
    monkeypatch.setattr(Block, "made", sizes, raising=False)
    return sizes


def meta(nbytes):
    return Meta.of((nbytes // 8,), "int64")


def take(pool, nbytes) -> Any:
    """An array of `nbytes` bytes, or None."""
    return pool.array(meta(nbytes))


def test_an_array_is_pinned_as_are_its_views_and_no_other(made):
    pool = PinnedPool(1 << 20, Block)
    array: Any = pool.array(Meta.of((4, 3), "float32"))
    assert (array.shape, array.dtype) == ((4, 3), "float32")
    array[...] = 1
    assert is_pinned(array)
    assert is_pinned(array[1:, ::2])
    assert not is_pinned(array.copy())
    memory = HostMemory.over(array, array.nbytes, None)
    assert is_pinned(np.ndarray((4,), np.float32, memory)[1:])  # like an upload from a host array
    assert not is_pinned(HostMemory.over(array.copy(), array.nbytes, None))
    assert made == [MIN_BYTES]


def test_a_block_is_used_again_for_sizes_of_its_class_once_its_last_view_is_gone(made):
    pool = PinnedPool(1 << 20, Block)
    array = take(pool, 80_000)
    part = array[10:20]
    del array
    assert take(pool, 80_000) is not None
    assert len(made) == 2
    del part
    take(pool, 79_000)
    assert len(made) == 2


def test_the_limit_holds_and_free_blocks_make_room():
    pool = PinnedPool(64 * MIN_BYTES, Block)
    held = take(pool, 32 * MIN_BYTES)
    assert take(pool, 40 * MIN_BYTES) is None  # the caller uses pageable memory
    small = [take(pool, MIN_BYTES) for _ in range(32)]
    assert take(pool, 8) is None
    del held, small
    whole = take(pool, 64 * MIN_BYTES)
    assert whole is not None
    assert pool.total == 64 * MIN_BYTES


def test_not_more_than_half_of_the_limit_is_kept_free():
    pool = PinnedPool(64 * MIN_BYTES, Block)
    held = [take(pool, MIN_BYTES) for _ in range(64)]
    held.clear()
    take(pool, MIN_BYTES)
    assert pool.total <= 33 * MIN_BYTES
    pool.trim()
    assert pool.total <= MIN_BYTES


def test_an_array_may_be_dropped_on_any_thread_and_by_the_collector():
    pool = PinnedPool(1 << 20, Block)
    cycle: list[Any] = [take(pool, MIN_BYTES)]
    cycle.append(cycle)
    held = [take(pool, MIN_BYTES)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    del cycle
    gc.collect()
    pool.trim()
    assert pool.total == 0


def test_where_the_system_has_no_more_to_pin_the_caller_uses_pageable_memory():
    def refuse(_size):
        raise RuntimeError("cudaErrorMemoryAllocation: out of memory")

    assert PinnedPool(1 << 20, refuse).array(meta(8)) is None
