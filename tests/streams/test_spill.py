"""The file of evicted values: whose room is given back, and used again."""

import gc
import os

import numpy as np
import pytest

from tensord.streams.spill import HOLE, SpillFile


@pytest.fixture
def file(tmp_path):
    file = SpillFile(str(tmp_path))
    yield file
    file.close()


def test_the_room_of_a_dropped_block_goes_back_to_the_disk(file):
    block = file.block(1 << 20)
    block.write(np.ones(1 << 20, np.uint8))
    fd = os.dup(file.fd)
    try:
        assert os.fstat(fd).st_blocks > 0
        del block
        gc.collect()
        file.close()  # behind the hole
        assert os.fstat(fd).st_blocks == 0
    finally:
        os.close(fd)


@pytest.mark.parametrize("nbytes", [64, HOLE - 1])
def test_a_block_of_less_than_a_page_wakes_no_thread_and_serves_again(file, nbytes):
    block = file.block(nbytes)
    file.block(nbytes)  # dropped at once
    assert file.end == 2 * nbytes
    del block
    kept = [file.block(nbytes) for _ in range(2)]
    assert file.end == 2 * nbytes
    assert file._thread is None
    assert len(kept) == 2


def test_where_the_disk_is_full_the_place_serves_again(file, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("tensord.streams.spill._allocate", lambda *_: 28)  # ENOSPC
        with pytest.raises(MemoryError, match="No space left"):
            file.block(64)
    end = file.end
    block = file.block(64)
    block.write(np.arange(64, dtype=np.uint8))
    read = bytearray(64)
    block.read(memoryview(read), 0)
    assert (bytes(read), file.end) == (bytes(range(64)), end)
