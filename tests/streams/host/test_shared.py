"""Blocks of the cpu pool in memory files: reused, bounded, sealed; uploads adopted in a client's segment."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.segments import (
    F_SEAL_FUTURE_WRITE,
    SHARED_FROM,
    MemorySegment,
    array_at,
    available,
    descriptor_budget,
    new_number,
    open_descriptors,
    segment_of,
)

pytestmark = pytest.mark.skipif(not available(), reason="no sealed memory files here")

LARGE = Meta.of((SHARED_FROM // 4,), "float32")


def block_of(device: Any, buffer: Any) -> Any:
    """The segment that it lies in, if it lies in one."""
    return segment_of(device.bind(buffer, Meta.of((buffer.nbytes,), "uint8")))


def test_only_large_blocks_of_a_shared_device_are_segments(open_device: Callable[..., Any]) -> None:
    private, device = open_device("cpu:1"), open_device("cpu:0", shared=True)
    assert (private.shared, device.shared) == (False, True)
    assert block_of(private, private.allocate(LARGE.nbytes)) is None
    assert block_of(device, device.allocate(SHARED_FROM // 2)) is None
    segment = block_of(device, device.allocate(LARGE.nbytes))
    assert segment is not None
    assert fcntl.fcntl(segment.fd, fcntl.F_GET_SEALS) & F_SEAL_FUTURE_WRITE


def test_a_freed_block_is_reused_and_a_dropped_one_closes_its_descriptor(open_device: Callable[..., Any]) -> None:
    device, before = open_device("cpu:0", shared=True), open_descriptors()
    buffer = device.allocate(LARGE.nbytes)
    number = block_of(device, buffer).number
    device.free(buffer)
    again = device.allocate(LARGE.nbytes)
    assert block_of(device, again).number == number
    assert open_descriptors() == before + 1
    device.free(again)
    device.pool.trim(0)
    del buffer, again
    assert open_descriptors() == before


def test_beyond_the_budget_of_descriptors_memory_is_private(open_device: Callable[..., Any]) -> None:
    device = open_device("cpu:0", shared=True)
    with descriptor_budget(open_descriptors() + 2):
        buffers = [device.allocate(LARGE.nbytes) for _ in range(4)]
    assert [block_of(device, buffer) is not None for buffer in buffers] == [True, True, False, False]
    assert device.allocated == 4 * LARGE.nbytes


def test_where_a_memory_file_cannot_be_made_memory_is_private(
    open_device: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> MemorySegment:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(MemorySegment, "create", fail)
    device = open_device("cpu:0", shared=True)
    assert block_of(device, device.allocate(LARGE.nbytes)) is None


def test_a_discarded_block_goes_back_to_the_system_not_to_the_pool(open_device: Callable[..., Any]) -> None:
    device, before = open_device("cpu:0", shared=True), open_descriptors()
    buffer = device.allocate(LARGE.nbytes)
    device.discard(buffer)
    del buffer
    assert (device.allocated, device.pool.cached, open_descriptors()) == (0, 0, before)


def uploaded(meta: Meta, spare: int = 0) -> Any:
    """An array as it is when a client has put it into a segment of its own."""
    mine = MemorySegment.create(meta.nbytes + spare, new_number())
    theirs = MemorySegment.open_peer(os.getpid(), mine.fd, mine.size, 1, True)
    array_at(mine, 0, meta.shape, meta.dtype)[...] = 5
    return array_at(theirs, 0, meta.shape, meta.dtype)


def test_an_upload_in_a_segment_is_adopted_as_it_is_and_never_pooled(open_device: Callable[..., Any]) -> None:
    device = open_device("cpu:0", shared=True, memory=2 * LARGE.nbytes)
    array = uploaded(LARGE)
    buffer = device.adopt(array)
    assert np.shares_memory(device.bind(buffer, LARGE), array)
    assert device.allocated == LARGE.nbytes
    assert device.adopt(uploaded(Meta.of((LARGE.size + 1,), "float32"))) is None  # over the limit
    device.free(buffer)
    assert (device.allocated, device.pool.cached) == (0, 0)


def test_every_view_of_an_adopted_upload_keeps_the_very_array_that_arrived(open_device: Callable[..., Any]) -> None:
    device, array = open_device("cpu:0", shared=True), uploaded(LARGE)
    buffer = device.adopt(array)
    assert buffer.raw.base is array
    assert device.bind_view(buffer, Meta.of((4,), "float32"), 8, (8,)).base is array


def test_a_small_part_of_a_segment_is_copied(open_device: Callable[..., Any]) -> None:
    device = open_device("cpu:0", shared=True)
    array = uploaded(LARGE, spare=2 * LARGE.nbytes)
    buffer = device.adopt(array)
    assert not np.shares_memory(device.bind(buffer, LARGE), array)
