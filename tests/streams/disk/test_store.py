"""The store as a device: its readers, and its use of the disk."""

import os
from collections import Counter

import pytest

from tensord.streams.disk.spill import PAGE
from tensord.streams.disk.store import StoreDevice, StoreOptions
from tensord.streams.stream import StreamKind

from ..conftest import WAIT


@pytest.fixture
def store(reports):
    device = StoreDevice("store:0", reports)
    yield device
    assert device.close(WAIT)


def test_reads_that_are_planned_before_any_is_queued_are_shared_out(store):
    chosen = Counter(store.copy_stream(StreamKind.READ).name for _ in range(10))
    assert chosen == {"store:0/read0": 5, "store:0/read1": 5}


def test_a_reader_with_less_to_do_is_chosen(store):
    busy = store.copy_stream(StreamKind.READ)
    busy.queued = 1
    assert all(store.copy_stream(StreamKind.READ) is not busy for _ in range(3))
    busy.queued = 0


@pytest.mark.parametrize("step", [1, 61, 1000, 5 * PAGE + 1])
def test_the_quota_is_of_the_disk_whatever_sizes_come_and_go(reports, tmp_path, step):
    quota = 16 * PAGE
    store = StoreDevice("store:0", reports, StoreOptions(str(tmp_path), quota))
    assert store.file is not None
    fd = os.dup(store.file.fd)
    try:
        for nbytes in range(1, 40 * step, step):
            held = []
            while (buffer := store.allocate(store.footprint(nbytes))) is not None:
                held.append(buffer)
            assert store.allocated == len(held) * store.footprint(nbytes) > quota - store.footprint(nbytes)
            assert os.fstat(fd).st_blocks * 512 <= quota + 8 * PAGE  # with the file system's own blocks
            for buffer in held:
                store.free(buffer)
            del held, buffer
        assert store.allocated == 0
        assert store.pool.cached <= quota // 8
        assert store.close(WAIT)
        assert os.fstat(fd).st_blocks == 0
    finally:
        os.close(fd)
