"""Host arrays that are handed over: while they refuse writing, and when each of the last uses ends that."""

from __future__ import annotations

import gc
import os
import threading
from typing import Any

import numpy as np
import pytest

from tensord.client.transport.host_readers import HostReaders, array_in_place
from tensord.interpreter.concurrency.interrupts import SHIELD
from tensord.interpreter.wire.frames import MAPPED_ARRAY
from tensord.interpreter.wire.host_memory import HostMemory

from ...each_case import each_case

OWNER = object()
COUNT = MAPPED_ARRAY // 8


def host_array(count: int = 2 * COUNT) -> Any:
    """An array, float64, with its lender."""
    readers = HostReaders(OWNER)
    return readers.array(HostMemory.over(np.zeros(8 * count, np.uint8), 8 * count, readers), (count,), "float64")


def lend(array: Any) -> Any:
    found = array_in_place(array, None, OWNER)
    assert found is not None
    meta, upload = found
    assert (meta.shape, meta.dtype) == (array.shape, array.dtype)
    return upload


def readers_of(array: Any) -> HostReaders:
    readers: HostReaders = array.base.readers
    return readers


def test_an_upload_is_the_memory_itself_and_cannot_be_written() -> None:
    array = host_array()
    array[...] = np.arange(array.size)
    upload = lend(array)
    assert np.shares_memory(upload, array)
    np.testing.assert_array_equal(upload, array)
    assert not upload.flags.writeable


def test_the_array_refuses_writing_until_the_last_use_has_ended() -> None:
    array = host_array()
    uploads = [lend(array), lend(array)]
    while uploads:
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        later = array[1:]
        assert not later.flags.writeable
        uploads.pop()
    assert array.flags.writeable
    array[0] = 1
    assert not later.flags.writeable  # it was taken meanwhile


def test_a_view_of_the_upload_keeps_it() -> None:
    array = host_array()
    upload = lend(array)
    part = upload.reshape(-1).view(np.uint8)[5:]
    del upload
    assert not array.flags.writeable
    del part
    assert array.flags.writeable


def test_a_view_that_was_uploaded_refuses_writing_as_the_array_does() -> None:
    array = host_array(4 * COUNT)
    view, other = array[COUNT : 3 * COUNT].reshape(2, -1), array[:5]
    upload = lend(view)
    assert (upload.shape, upload.__array_interface__["data"]) == (
        view.shape,
        (view.__array_interface__["data"][0], True),
    )
    assert not array.flags.writeable
    assert not view.flags.writeable
    assert other.flags.writeable  # taken earlier: the user's promise
    del array
    gc.collect()
    del upload
    assert view.flags.writeable
    view[...] = 1
    assert view.base.flags.writeable


def test_a_view_that_died_meanwhile_is_no_concern() -> None:
    array = host_array(4 * COUNT)
    view = array[:COUNT]
    upload = lend(view)
    del view
    del upload
    assert array.flags.writeable


@each_case(
    "values",
    [
        lambda array: array[::2],
        lambda array: array.reshape(2, -1).T,
        lambda array: array[: COUNT // 2],
        lambda array: array.astype(array.dtype.newbyteorder()),
        lambda array: array.view(array.dtype.newbyteorder()),
        lambda array: array.view("V8"),
        lambda array: array.view(np.uint8)[1:-7].view("float64"),
        lambda array: array.copy(),
        lambda array: array.base,
        lambda array: array.tolist(),
        lambda array: np.asarray(memoryview(array)),
        lambda array: array[0],
    ],
)
def test_other_values_are_not_lent(values: Any) -> None:
    array = host_array()
    assert array_in_place(values(array), None, OWNER) is None
    assert array.flags.writeable


def test_nor_is_anything_over_another_connection_or_as_another_dtype() -> None:
    array = host_array()
    assert array_in_place(array, None, object()) is None
    assert array_in_place(array, "float32", OWNER) is None
    assert array_in_place(array, "no dtype", OWNER) is None
    assert array_in_place(array, np.float64, OWNER) is not None
    assert array.flags.writeable  # that upload is gone


def test_what_was_sent_is_in_use_until_it_is_returned() -> None:
    array = host_array()
    readers = readers_of(array)
    readers.returned()  # of nothing
    upload = lend(array)
    readers.sent()
    del upload
    assert not array.flags.writeable
    readers.sent()
    readers.returned()
    assert readers.handed_over
    assert not array.flags.writeable
    readers.returned()
    assert not readers.handed_over
    assert array.flags.writeable


def test_a_use_may_outlive_the_array() -> None:
    array = host_array()
    upload = lend(array)
    readers = readers_of(array)
    del array
    assert readers.handed_over
    assert upload[0] == 0
    del upload
    assert not readers.handed_over


def test_uses_that_begin_and_end_on_many_threads_leave_the_flag_right() -> None:
    array = host_array()
    readers = readers_of(array)
    start, wrong = threading.Barrier(4), []

    def use(rounds: int) -> None:
        start.wait()
        for n in range(rounds):
            upload = lend(array)
            if n % 2:
                readers.sent()
                readers.returned()
            if not readers.handed_over:
                wrong.append(n)
            del upload

    threads = [threading.Thread(target=use, args=(2000,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert not readers.handed_over
    assert array.flags.writeable
    kept = lend(array)
    assert not array.flags.writeable
    del kept


def test_a_use_that_ends_inside_of_a_settling_is_not_lost() -> None:
    """The use ends in the middle, as if the collector ran there."""
    array = host_array()
    readers = readers_of(array)
    held = [lend(array)]
    real = readers._array

    def array_of() -> Any:
        held.clear()  # the use ends between the look at the uses and the setting of the flags
        return real()

    readers._array = array_of
    readers._settle()
    readers._array = real
    assert array.flags.writeable


def test_a_use_that_begins_inside_of_a_settling_is_not_lost() -> None:
    array = host_array()
    readers = readers_of(array)
    real, begun = readers._array, []

    def array_of() -> Any:
        readers._array = real
        begun.append(lend(array))
        return real()

    readers._array = array_of
    readers._settle()
    assert len(begun) == 1
    assert not array.flags.writeable


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks here")
def test_a_forked_child_cannot_write_and_gets_nothing_back() -> None:
    array, other = host_array(), host_array()
    upload = lend(array)
    child = os.fork()
    if not child:
        before = array.flags.writeable or other.flags.writeable
        del upload
        os._exit(1 if before or array.flags.writeable else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert other.flags.writeable
    del upload
    assert array.flags.writeable


def test_an_interrupt_at_the_end_of_a_use_hands_the_array_back_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    array = host_array()
    upload = lend(array)
    settle, calls = HostReaders._settle, []

    def interrupted(readers: HostReaders) -> None:
        calls.append(True)
        if len(calls) == 1:
            raise KeyboardInterrupt
        settle(readers)

    monkeypatch.setattr(HostReaders, "_settle", interrupted)
    SHIELD.install()
    try:
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - it is thrown again, soon
            del upload
            for _ in range(1000):  # a thread is not thrown at while it sleeps
                threading.Event().wait(0.01)
    finally:
        SHIELD.remove()
    assert array.flags.writeable
