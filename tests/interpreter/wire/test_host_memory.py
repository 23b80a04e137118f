"""Host memory: its owner, and the arrays that keep it alive."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.wire.host_memory import HostMemory, host_memory_of, is_clients, room_of
from tensord.interpreter.wire.segments import MemorySegment, available, new_number

from ...each_case import each_case

SIZE = 1 << 16


def plain() -> Any:
    return np.zeros(SIZE, np.uint8)


def part_of_a_block() -> Any:
    """An array like those of a pinned pool."""
    return np.zeros(2 * SIZE, np.uint8)[: SIZE // 4 * 4].view(np.float32).reshape(4, -1)


def segment() -> Any:
    return MemorySegment.create(SIZE, new_number())


KINDS = [plain, part_of_a_block, *([segment] if available() else [])]


@each_case("kind", KINDS)
def test_each_array_over_it_lives_as_long_as_its_views(kind: Any) -> None:
    """For any memory: NumPy takes the bottom of a chain of views for the base, except for objects like this one."""
    memory = HostMemory.over(kind(), SIZE, None)
    ends: list[str] = []
    arrays: list[Any] = [np.ndarray((SIZE // 8,), np.float64, memory) for _ in range(2)]
    for name, each in zip(("first", "second"), arrays, strict=True):
        weakref.finalize(each, ends.append, name)
    weakref.finalize(memory, ends.append, "memory")
    assert np.shares_memory(*arrays)
    view = arrays[0][1:].reshape(-1, 1)[2:].view(np.int64)
    del memory, arrays, each
    assert ends == ["second"]
    del view
    assert ends == ["second", "first", "memory"]


@each_case("kind", KINDS)
def test_it_is_found_from_arrays_and_their_views(kind: Any) -> None:
    memory = HostMemory.over(kind(), SIZE, "readers")
    array: Any = np.ndarray((4, SIZE // 32), np.float64, memory)
    for each in (array, array[1:], array.T[3:], array.view(np.uint8)):
        found = host_memory_of(each)
        assert found is memory
        assert is_clients(each)
    assert memory.readers == "readers"
    assert (room_of(array.base), memory.nbytes) == (SIZE, SIZE)


def test_other_memory_is_not_the_clients() -> None:
    array = np.zeros((4, 4))
    for each in (array, array[1:], np.frombuffer(bytes(64))):
        assert host_memory_of(each) is None
        assert not is_clients(each)
        assert room_of(each.base) == 0


@pytest.mark.skipif(not available(), reason="no sealed memory files here")
def test_what_lies_in_a_segment_is_the_clients() -> None:
    found = MemorySegment.create(SIZE, new_number())
    array: Any = np.ndarray((SIZE // 8,), np.float64, found)
    assert is_clients(array[3:])
    assert room_of(array.base) == SIZE
    assert host_memory_of(array) is None
    del array, found
    gc.collect()
