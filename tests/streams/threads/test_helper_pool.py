"""Threads that help with large kernels."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from time import monotonic
from typing import Any

import numpy as np
import pytest

from tensord.streams.threads.helper_pool import HelperPool

SECONDS = 10.0  # after which a thread that should have come counts as missing


class Busy:
    """A stream that runs a task, or does not."""

    def __init__(self) -> None:
        self.task: Any = None

    def running(self) -> Any:
        return self.task


@pytest.fixture
def streams() -> list[Any]:
    return [Busy(), Busy()]


@pytest.fixture
def helpers(streams: list[Any]) -> Iterator[HelperPool]:
    helpers = HelperPool("cpu:0", 1, streams)
    yield helpers
    helpers.begin_close()
    assert helpers.end_close(monotonic() + SECONDS)


def test_parts_run_side_by_side_each_once(helpers: HelperPool) -> None:
    both = threading.Barrier(2, timeout=SECONDS)
    names = []

    def part(out: Any, value: int) -> None:
        both.wait()
        names.append((threading.current_thread().name, value))
        out += value

    out = np.zeros(3)
    for _ in range(3):
        helpers.run([part, part], (out, 1))
    assert out.tolist() == [6.0, 6.0, 6.0]
    assert len(names) == 6
    assert {name for name, _ in names} == {threading.current_thread().name, "tensord cpu:0/helpers0"}


def test_nobody_waits_for_a_helper_that_is_busy_elsewhere(helpers: HelperPool) -> None:
    begun, done = threading.Event(), threading.Event()

    def part() -> None:
        if threading.current_thread() is other:
            assert begun.wait(SECONDS)
        else:
            begun.set()
            assert done.wait(SECONDS)

    other = threading.Thread(target=lambda: helpers.run([part, part], ()))
    other.start()
    assert begun.wait(SECONDS)
    ran = []
    helpers.run([lambda: ran.append(1), lambda: ran.append(2)], ())
    assert sorted(ran) == [1, 2]
    done.set()
    other.join()


def test_an_error_is_raised_when_every_part_has_been_run(helpers: HelperPool) -> None:
    ran = []

    def fails() -> None:
        ran.append("fails")
        raise MemoryError("no scratch")

    with pytest.raises(MemoryError, match="no scratch"):
        helpers.run([fails, lambda: ran.append("goes on")], ())
    assert sorted(ran) == ["fails", "goes on"]


@pytest.mark.parametrize(("busy", "room"), [(0, 1), (1, 1), (2, 0)])
def test_helpers_are_asked_only_where_streams_leave_room(
    helpers: HelperPool, streams: list[Any], busy: int, room: int
) -> None:
    for stream in streams[:busy]:
        stream.task = ("a task", 0)
    assert helpers.idle() == room


def test_nothing_is_kept_after_a_call(helpers: HelperPool) -> None:
    both = threading.Barrier(2, timeout=SECONDS)
    array = np.zeros(3)
    kept = weakref.ref(array)
    helpers.run([lambda _: both.wait(), lambda _: both.wait()], (array,))
    del array
    helpers.run([both.wait] * 2, ())  # the helper has left the first call
    gc.collect()
    assert kept() is None


def test_closed_helpers_leave_their_callers_to_themselves(streams: list[Any]) -> None:
    helpers = HelperPool("cpu:0", 1, streams)
    helpers.begin_close()
    assert helpers.end_close(monotonic() + SECONDS)
    names = []
    helpers.run([lambda: names.append(threading.current_thread())] * 2, ())
    assert names == [threading.current_thread()] * 2
