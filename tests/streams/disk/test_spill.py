"""The file of evicted values: freed room is given back, and used again."""

import gc
import os

import numpy as np
import pytest

from tensord.streams.disk.spill import PAGE, SpillFile, whole_pages

from ...each_case import each_case

QUOTA = 1 << 20
METADATA = 8 * PAGE  # that the file system may count beside the blocks


@pytest.fixture
def file(tmp_path):
    file = SpillFile(str(tmp_path), QUOTA)
    yield file
    file.close()


def disk(fd):
    """Bytes of the disk that a file takes."""
    return os.fstat(fd).st_blocks * 512


def test_the_room_of_a_dropped_block_goes_back_to_the_disk(file):
    block = file.block(1 << 20)
    block.write(np.ones(1 << 20, np.uint8))
    fd = os.dup(file.fd)
    try:
        assert disk(fd) > 0
        del block
        gc.collect()
        file.close()  # behind the hole
        assert disk(fd) == 0
    finally:
        os.close(fd)


def test_where_no_hole_could_be_made_yet_it_is_made_for_the_next_block(file, monkeypatch):
    monkeypatch.setattr(file, "_start", lambda: None)  # no thread makes any
    kept = [file.block(PAGE) for _ in range(QUOTA // PAGE // 2)]
    for _ in range(10):
        file.block(QUOTA // 2)  # dropped at once
        assert disk(file.fd) <= QUOTA + METADATA
    assert file.end == QUOTA
    kept.clear()
    file.block(QUOTA)
    assert disk(file.fd) <= QUOTA + METADATA


def test_a_place_serves_blocks_of_about_its_size(file, monkeypatch):
    monkeypatch.setattr(file, "_start", lambda: None)
    for pages in range(33, 37):  # one class of sizes
        block = file.block(pages * PAGE)
        block.write(np.full(pages * PAGE, pages, np.uint8))
        read = bytearray(pages * PAGE)
        block.read(memoryview(read), 0)
        assert set(read) == {pages}
        del block
        assert file._holes.make_next()
    assert file.end == 36 * PAGE


def test_a_block_is_written_and_read_in_parts(file):
    file.block(PAGE)
    block, content = file.block(2 * PAGE), np.arange(2 * PAGE) % 251
    for begin in range(0, 2 * PAGE, PAGE // 2):
        block.write(content[begin : begin + PAGE // 2].astype(np.uint8), begin)
    read = bytearray(PAGE)
    block.read(memoryview(read), PAGE - 7)
    assert list(read) == content[PAGE - 7 : 2 * PAGE - 7].tolist()


def test_where_the_disk_is_full_the_place_serves_again(file, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("tensord.streams.disk.spill._allocate", lambda *_: 28)  # ENOSPC
        with pytest.raises(MemoryError, match="No space left"):
            file.block(PAGE)
    end = file.end
    block = file.block(PAGE)
    block.write(np.arange(64, dtype=np.uint8))
    read = bytearray(64)
    block.read(memoryview(read), 0)
    assert (bytes(read), file.end) == (bytes(range(64)), end)


@each_case(("nbytes", "pages"), [(0, 0), (1, 1), (PAGE, 1), (PAGE + 1, 2)])
def test_values_take_whole_pages(nbytes, pages):
    assert whole_pages(nbytes) == pages * PAGE
