"""The store as a device: who reads from it."""

from collections import Counter

import pytest

from tensord.streams.store import StoreDevice
from tensord.streams.stream import StreamKind

from .conftest import WAIT


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
