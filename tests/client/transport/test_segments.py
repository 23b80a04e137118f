"""A client's upload segments and mapped results, with the daemon's part played by this process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from tensord.client.transport.host_readers import array_in_place
from tensord.client.transport.segments import MappedResults, UploadSegments, segment_size
from tensord.interpreter.concurrency.finalisers import LastReference
from tensord.interpreter.errors import ProtocolError
from tensord.interpreter.wire.frames import MAPPED_ARRAY, SEGMENT
from tensord.interpreter.wire.segments import (
    MemorySegment,
    array_at,
    available,
    descriptor_budget,
    new_number,
    offset_in_segment,
    open_descriptors,
)

from ...each_case import each_case

pytestmark = pytest.mark.skipif(not available(), reason="no sealed memory files here")

COUNT = MAPPED_ARRAY // 8


def number_of(array: Any) -> int:
    found = offset_in_segment(array)
    assert found is not None
    return found[0].number


def test_large_arrays_are_made_in_segments_that_are_announced_once() -> None:
    uploads = UploadSegments()
    assert uploads.empty((COUNT - 1,), "float64") is None
    array = uploads.empty((4, COUNT), "float64")
    assert array is not None
    array[...] = 3
    [[kind, number, fd, nbytes]] = uploads.announcements()
    assert (kind, number, nbytes) == (SEGMENT, number_of(array), 4 * COUNT * 8)
    assert uploads.announcements() == []
    theirs = MemorySegment.open_peer(os.getpid(), fd, nbytes, number, True)
    assert (array_at(theirs, 0, (4, COUNT), "float64") == 3).all()


def sent(uploads: UploadSegments) -> int:
    """The number of a segment in which an upload was sent."""
    array = uploads.empty((COUNT,), "float64")
    assert array is not None
    uploads.in_segment(array)
    return number_of(array)


def test_a_segment_of_an_upload_that_was_never_sent_is_lent_again() -> None:
    """An exception came while the segment was filled."""
    uploads = UploadSegments()
    first = number_of(uploads.empty((COUNT,), "float64"))
    assert sent(uploads) == first
    other = uploads.empty((COUNT,), "float64")
    assert number_of(other) != first
    uploads.freed([first])
    held = uploads.empty((COUNT,), "float64")
    assert number_of(held) == first
    del other, held
    assert len({sent(uploads), sent(uploads)}) == 2
    assert len(uploads.announcements()) == 2


def test_a_segment_is_lent_again_only_when_it_was_freed() -> None:
    uploads = UploadSegments()
    first, second = sent(uploads), sent(uploads)
    assert first != second
    uploads.freed([first, 12345678])
    assert number_of(uploads.empty((COUNT,), "float64")) == first
    uploads.freed([second])
    assert number_of(uploads.empty((2 * COUNT,), "float64")) not in {first, second}
    assert len(uploads.announcements()) == 3


def test_what_is_free_is_bounded_and_the_longest_unused_is_dropped() -> None:
    size, before = segment_size(COUNT * 8), open_descriptors()
    uploads = UploadSegments(keep=2 * size)
    numbers = [sent(uploads) for _ in range(4)]
    uploads.announcements()
    uploads.freed(numbers)
    assert uploads.announcements() == [[SEGMENT, numbers[0], -1, 0], [SEGMENT, numbers[1], -1, 0]]
    assert (uploads.free_bytes, open_descriptors()) == (2 * size, before + 2)
    uploads.close()
    assert open_descriptors() == before


def test_in_segment_copies_what_lies_elsewhere_and_nothing_else() -> None:
    uploads = UploadSegments()
    array = np.arange(float(COUNT))[::-1]
    found = uploads.in_segment(array)
    assert found is not None
    [[_, number, fd, nbytes]] = uploads.announcements()
    theirs = MemorySegment.open_peer(os.getpid(), fd, nbytes, number, True)
    assert found == (number, 0)
    assert (array_at(theirs, 0, (COUNT,), "float64") == array).all()
    ours = uploads.empty((COUNT,), "float64")
    assert ours is not None
    assert uploads.in_segment(ours) == (number_of(ours), 0)
    assert uploads.in_segment(np.zeros(3)) is None


def test_without_descriptors_left_there_are_no_new_segments() -> None:
    uploads = UploadSegments()
    array = uploads.empty((COUNT,), "float64")
    with descriptor_budget(open_descriptors()):
        assert uploads.empty((COUNT,), "float64") is None
        uploads.freed([number_of(array)])
        larger = uploads.empty((8 * COUNT,), "float64")  # in place of an unused one
    assert [header[1] for header in uploads.announcements()] == [number_of(larger)]  # and that was never announced


@each_case("nbytes", [1, 4096, 4097, 65536, 65537, 100_000, 10**6, 64 << 20, (64 << 20) + 1])
def test_a_segment_is_whole_pages_and_wastes_an_eighth(nbytes: int) -> None:
    size = segment_size(nbytes)
    assert size % 4096 == 0
    assert nbytes <= size <= max(4096, nbytes * 9 // 8 + 4096)


class Daemon:
    """Blocks of memory as a daemon has them, and the messages that it gets."""

    def __init__(self) -> None:
        self.gone: list[LastReference] = []
        self.results = MappedResults(os.getpid(), self.gone.append)

    @property
    def let_go(self) -> list[int]:
        """The exports that were released."""
        return [last.what.args[0] for last in self.gone]

    def block(self, count: int = COUNT) -> tuple[MemorySegment, Any]:
        segment = MemorySegment.create(count * 8, new_number())
        array = array_at(segment, 0, (count,), "float64")
        array[:] = np.arange(count)
        segment.seal_future_writes()
        return segment, array

    def map(
        self, segment: MemorySegment, hold: int, offset: int = 0, shape: Any = (COUNT,), strides: Any = None
    ) -> Any:
        found = [segment.number, segment.fd, segment.size, offset]
        return self.results.array(found, "float64", shape, strides, hold)


def test_a_result_is_read_where_it_lies_and_cannot_be_written() -> None:
    daemon = Daemon()
    segment, ours = daemon.block()
    theirs = daemon.map(segment, 5, offset=8, shape=(2, 3), strides=(24, 8))
    assert theirs.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    ours[1] = -1.0
    assert theirs[0, 0] == -1.0
    with pytest.raises(ValueError, match="read-only"):
        theirs[0, 0] = 1.0
    with pytest.raises(ValueError, match="WRITEABLE"):
        theirs.flags.writeable = True


def test_the_hold_goes_with_the_last_view_and_exactly_once() -> None:
    daemon = Daemon()
    segment, _ = daemon.block()
    array = daemon.map(segment, 5)
    views = [
        array[3:7][::-1],
        array.reshape(2, -1).T,
        np.asarray(array).view(np.int64)[1:],
        np.lib.stride_tricks.sliding_window_view(array, 4),
        memoryview(array),
        np.frombuffer(array, np.uint8),
        np.ndarray((3,), np.float64, array, 8),
        np.broadcast_to(array[:1], (5, 5)),
        array.view(type("Sub", (np.ndarray,), {})),
        np.from_dlpack(array) if np.lib.NumpyVersion(np.__version__) >= "2.1.0" else array[:1],
    ]
    del array
    while views:
        assert daemon.let_go == []
        views.pop()
    gc.collect()
    assert daemon.let_go == [5]


def test_the_mapping_of_a_block_serves_its_next_result() -> None:
    daemon = Daemon()
    segment, _ = daemon.block()
    address = daemon.map(segment, 5).__array_interface__["data"]
    fd, segment.fd = segment.fd, -1
    assert daemon.map(segment, 6).__array_interface__["data"] == address  # no descriptor was asked for
    segment.fd = fd
    assert daemon.let_go == [5, 6]


def test_mappings_are_bounded_and_cost_no_descriptor() -> None:
    daemon = Daemon()
    daemon.results = MappedResults(os.getpid(), daemon.gone.append, keep=2 * COUNT * 8)
    blocks = [daemon.block() for _ in range(4)]
    before = open_descriptors()
    arrays = [daemon.map(segment, n) for n, (segment, _) in enumerate(blocks)]
    assert (daemon.results.cached_bytes, open_descriptors()) == (2 * COUNT * 8, before)
    assert all(array[1] == 1.0 for array in arrays)


def test_what_cannot_be_mapped_is_an_error_and_the_hold_stays_with_the_caller() -> None:
    daemon = Daemon()
    segment, _ = daemon.block()
    with pytest.raises(ProtocolError, match="no float64"):
        daemon.map(segment, 5, offset=16)
    with pytest.raises(ProtocolError, match="cannot be opened"):
        daemon.results.array([new_number(), 10**6, 8, 0], "float64", (1,), None, 6)
    with pytest.raises(ProtocolError, match="and had"):
        daemon.results.array([segment.number, segment.fd, 8, 0], "float64", (1,), None, 6)
    assert daemon.let_go == []


def test_a_daemon_that_has_ended_is_not_alive_before_anybody_reaps_it() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        results = MappedResults(child.pid, Daemon().gone.append)
        assert results.is_alive()
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert not results.is_alive()
    finally:
        child.communicate()
    assert not results.is_alive()


def test_after_close_what_is_alive_still_lies_where_the_daemon_leaves_it() -> None:
    daemon = Daemon()
    segment, ours = daemon.block()
    theirs = daemon.map(segment, 5)[1:]
    daemon.results.close()
    ours[:] = -1.0
    assert theirs[:3].tolist() == [-1.0, -1.0, -1.0]
    del theirs
    assert daemon.let_go == [5]


# -- host arrays -------------------------------------------------------------------------------------------------------


def host_array(uploads: UploadSegments, count: int = COUNT) -> Any:
    """The user's array."""
    memory = uploads.host(count * 8)
    assert memory is not None
    return memory.readers.array(memory, (count,), "float64")


def upload_of(uploads: UploadSegments, array: Any) -> tuple[int, int] | None:
    """Send an upload from it; its place."""
    found = array_in_place(array, None, uploads.lender)
    assert found is not None
    return uploads.in_segment(found[1])


def test_a_host_array_is_placed_where_it_lies_and_free_when_all_of_its_uploads_are() -> None:
    uploads = UploadSegments()
    array = host_array(uploads, 3 * COUNT)
    [[_, number, _, _]] = uploads.announcements()
    assert upload_of(uploads, array) == (number, 0)
    assert upload_of(uploads, array[COUNT:]) == (number, 8 * COUNT)
    assert uploads.announcements() == []
    uploads.freed([number])
    assert not array.flags.writeable
    uploads.freed([number])
    assert array.flags.writeable
    uploads.freed([number, number])  # a daemon may send anything
    assert array.flags.writeable
    assert uploads.empty((3 * COUNT,), "float64").base is not array.base.base  # type: ignore[union-attr]  # it is still the user's


def test_the_segment_of_a_host_array_is_used_again_once_nobody_has_it() -> None:
    uploads = UploadSegments()
    array = host_array(uploads)
    number = number_of(array)
    upload_of(uploads, array)
    view = array[1:]
    del array
    other = sent(uploads)
    del view
    assert sent(uploads) not in {number, other}  # the daemon has it
    uploads.freed([number])
    assert sent(uploads) == number
    uploads.freed([number])
    again = host_array(uploads)
    assert number_of(again) == number
    assert again.flags.writeable


def test_host_arrays_that_died_unsent_are_free_at_once() -> None:
    uploads = UploadSegments()
    numbers = {number_of(host_array(uploads)) for _ in range(5)}
    assert len(numbers) == 1


def test_there_is_no_host_memory_where_segments_are_not_worth_it_or_cannot_be_had() -> None:
    assert UploadSegments().host(MAPPED_ARRAY - 1) is None
    assert UploadSegments(most=(1, 1 << 62)).host(MAPPED_ARRAY) is None
    with descriptor_budget(0):
        assert UploadSegments().host(MAPPED_ARRAY) is None


def test_the_end_of_the_connection_hands_nothing_back_that_was_sent() -> None:
    before = open_descriptors()
    uploads = UploadSegments()
    sent, idle = host_array(uploads), host_array(uploads)
    upload_of(uploads, sent)
    uploads.close()
    uploads.freed([number_of(sent)])
    assert not sent.flags.writeable
    assert idle.flags.writeable
    idle[...] = 1
    assert sent[0] == 0
    del sent, idle
    gc.collect()
    assert open_descriptors() == before
