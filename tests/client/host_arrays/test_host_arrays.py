"""Host arrays and pools: uploads that copy nothing, and the time from which an array can be written again."""

from __future__ import annotations

import gc
import os
import threading
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.session.session import Session
from tensord.interpreter.wire.frames import MAPPED_ARRAY

from ...each_case import each_case
from ...puppet import eventually

SHAPE = (64, 512)  # twice the bytes of the smallest array that is handed over


def filled(session: Session, value: float = 3, dtype: Any = np.float32) -> Any:
    array = session.empty_host(SHAPE, dtype)
    array[...] = value
    return array


def is_back(session: Session, array: Any) -> bool:
    """Can the array be written, after all issued calls?"""

    def looked_at() -> bool:
        session.sync()
        return bool(array.flags.writeable)

    return bool(eventually(looked_at))


class TestAnArray:
    @each_case(
        ("shape", "dtype", "meta"),
        [
            (SHAPE, None, (SHAPE, "float64")),
            (70_000, "int8", ((70_000,), "int8")),
            ([300, 300], bool, ((300, 300), "bool")),
            ((), np.complex64, ((), "complex64")),
            ((0, 1 << 20), "float32", ((0, 1 << 20), "float32")),
        ],
    )
    def test_is_an_ordinary_one(self, session, shape, dtype, meta):
        array = session.empty_host(shape, dtype)
        assert type(array) is np.ndarray
        assert (array.shape, array.dtype.name) == meta
        assert array.flags.c_contiguous
        array[...] = 1
        assert (array == 1).all()
        np.testing.assert_array_equal(session.asarray(array).numpy(), array)

    @each_case(
        ("arguments", "message"),
        [
            (((-1, 5), None), "negative"),
            (("text", None), "expected"),
            (((1 << 40, 1 << 40), None), "too large"),
            ((3, "float128"), "float128"),
            ((3, [("a", "i4")]), "dtype"),
        ],
    )
    def test_of_a_kind_that_is_none_is_refused_here(self, session, arguments, message):
        for make in (session.empty_host, session.pool):
            with pytest.raises(td.MetadataError, match=message) as caught:
                make(*arguments)
            assert "test_host_arrays.py" in str(caught.value.location)

    def test_for_which_there_is_no_memory_is_refused_here(self, session):
        more = 1 << 45  # elements: more bytes than a process can address
        for make in (session.empty_host, lambda shape: session.pool(shape, None, 2)):
            with pytest.raises(td.DeviceMemoryError, match=r"float64\[35184372088832\] needs 256 TiB") as caught:
                make((more,))
            assert "test_host_arrays.py" in str(caught.value.location)
        pool = session.pool((more,))
        with pytest.raises(td.DeviceMemoryError, match="pool: ") as caught:
            pool.get()
        assert "test_host_arrays.py" in str(caught.value.location)
        assert pool.stats()["made"] == 0

    def test_which_is_larger_than_the_computers_memory_is_refused_here(self, session):
        more = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 128
        with pytest.raises(td.DeviceMemoryError, match="use smaller arrays") as caught:
            session.empty_host((more,), "uint8")
        assert "test_host_arrays.py" in str(caught.value.location)

    def test_is_of_no_use_once_the_session_has_ended(self, session):
        array = filled(session)
        session.close()
        with pytest.raises(td.ConnectionLost):
            session.empty_host(SHAPE)
        with pytest.raises(td.ConnectionLost):
            session.asarray(array)
        array[0] = 1

    @each_case(("device", "dtype"), [("cpu:0", "float32"), ("sim:0", "bool"), ("sim:0", "complex64")])
    def test_gives_its_values_and_comes_back(self, sim_session, device, dtype):
        s = sim_session
        array = s.empty_host((2, 1 << 16), dtype)
        for n in range(3):
            array[...] = n
            array[0, n] = 1
            x = s.asarray(array, device)
            expected = array.copy()
            np.testing.assert_array_equal(x.numpy(), expected)
            np.testing.assert_array_equal(s.call("logical_not", [x.astype("bool")])[0].numpy(), expected == 0)
            del x
            gc.collect()
            assert is_back(s, array)

    def test_of_another_session_is_copied(self, make_session):
        mine, yours = make_session(), make_session()
        array = filled(mine)
        x = yours.asarray(array)
        assert array.flags.writeable
        array[...] = 0
        assert x.numpy()[0, 0] == 3

    def test_is_copied_where_its_numbers_are_converted(self, session):
        array = filled(session)
        x = session.asarray(array, dtype="float64")
        y = session.asarray(array[:, ::2])
        z = session.asarray(array[:2])  # too small
        assert array.flags.writeable
        array[...] = 0
        assert [float(each.numpy()[0, 0]) for each in (x, y, z)] == [3, 3, 3]

    def test_is_copied_by_a_capture_and_other_contents_mean_another_one(self, session):
        array = filled(session)

        @session.routine
        def added(x):
            return x + session.asarray(array)

        x = session.asarray(np.ones(SHAPE, np.float32))
        assert added(x).numpy()[0, 0] == 4
        assert is_back(session, array)
        array[...] = 0
        assert [float(added(x).numpy()[0, 0]) for _ in range(2)] == [1, 1]
        assert added.captures == 2

    def test_that_died_has_been_read_all_the_same(self, session):
        tensors = [session.asarray(filled(session, n)) for n in range(20)]
        gc.collect()
        assert [float(each.numpy()[5, 5]) for each in tensors] == list(range(20))

    def test_comes_back_if_the_upload_is_refused(self, session):
        array = filled(session)
        session.cancel()
        x = session.asarray(array)
        with pytest.raises(td.CancelledError):
            x.wait()
        session.restart()
        assert is_back(session, array)
        with pytest.raises(td.MetadataError):
            session.asarray(array, "sim:7")
        assert array.flags.writeable

    def test_comes_back_if_the_upload_fails(self, make_session):
        s = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 1 << 16}])
        array = filled(s)
        x = s.asarray(array, "sim:0")
        with pytest.raises(td.DeviceMemoryError):
            x.wait()
        assert is_back(s, array)

    def test_that_is_uploaded_in_a_group_is_read_once_the_group_has_left(self, session):
        array = filled(session)
        with session.atomic():
            x = session.asarray(array)
            handed_over = not array.flags.writeable
        assert handed_over
        assert x.numpy()[0, 0] == 3

    def test_may_be_uploaded_by_many_threads(self, session):
        array = filled(session)
        wrong = []

        def work() -> None:
            for _ in range(20):
                x = session.asarray(array)
                if x.sum().item() != 3 * array.size:
                    wrong.append(x)

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        gc.collect()
        assert is_back(session, array)


class TestAPool:
    def test_gives_what_was_put_and_makes_more(self, session):
        pool = session.pool(SHAPE, np.float32, 2)
        first, second, third = (pool.get() for _ in range(3))
        assert len({id(each) for each in (first, second, third)}) == 3
        assert all(each.shape == SHAPE and each.dtype == np.float32 for each in (first, second, third))
        pool.put(second)
        assert pool.get() is second
        stats = pool.stats()
        assert stats == {
            "made": 3,
            "free": 0,
            "out": 3,
            "handed_over": 0,
            "bytes": 3 * first.nbytes,
            "gets": 4,
            "missed": 1,
        }
        pool.reserve(2)
        assert pool.stats()["free"] == 2
        assert repr(pool) == "<tensord.HostPool of float32[64, 512]: 2 free, 3 out, 0 handed over, 640 KiB>"

    def test_that_may_not_grow_gives_none(self, session):
        pool = session.pool(SHAPE, count=1, grow=False)
        array = pool.get()
        assert pool.get() is None
        assert pool.get() is None
        assert pool.stats()["missed"] == 2
        pool.put(array)
        assert pool.get() is array

    def test_gives_what_is_handed_over_only_when_it_is_back(self, sim_session):
        """A loop that never waits for an array by itself. Each result has the values that its array was filled with."""
        s = sim_session
        with s.pool(SHAPE, np.float32, 1) as pool:
            found = []
            for n in range(30):
                array = pool.get()
                array[...] = n
                found.append(s.asarray(array, "sim:0").sum())
                pool.put(array)
            assert [each.item() for each in found] == [n * array.size for n in range(30)]
            del array
            assert pool.stats()["made"] <= 30
            eventually(lambda: s.sync() == 0 and pool.stats()["free"] == pool.stats()["made"])
            assert pool.stats()["handed_over"] == 0

    def test_refuses_foreign_arrays_and_says_what_to_do(self, session):
        pool, other = session.pool(SHAPE), session.pool(SHAPE)
        array = pool.get()
        for foreign in (np.empty(SHAPE), other.get(), array[1:], array.base, None, [1]):
            with pytest.raises(td.MetadataError, match=r"not an array of this pool.* put back each array"):
                pool.put(foreign)
        pool.put(array)
        with pytest.raises(td.MetadataError, match="is already in the pool") as caught:
            pool.put(array)
        assert "test_host_arrays.py" in str(caught.value.location)

    def test_forgets_arrays_that_were_dropped(self, session):
        pool = session.pool(SHAPE, count=3)
        pool.get()
        gc.collect()
        assert (pool.stats()["out"], pool.stats()["bytes"]) == (0, 2 * 8 * 64 * 512)

    @each_case("count", [-1, 1.5, "many", None])
    def test_takes_a_count(self, session, count):
        with pytest.raises(td.MetadataError, match="pool: count"):
            session.pool(SHAPE, count=count)
        with pytest.raises(td.MetadataError, match="pool: count"):
            session.pool(SHAPE).reserve(count)

    def test_that_is_closed_lets_its_arrays_go_but_not_those_that_are_out(self, session):
        with session.pool(SHAPE, count=2) as pool:
            array = pool.get()
        assert repr(pool) == "<tensord.HostPool of float64[64, 512] closed>"
        for use in (pool.get, lambda: pool.reserve(1)):
            with pytest.raises(td.ProtocolError, match="the pool is closed: make another one"):
                use()
        array[...] = 1
        pool.put(array)
        pool.close()
        assert pool.stats()["bytes"] == 0

    def test_ends_with_its_session(self, session):
        pool = session.pool(SHAPE, count=2)
        session.close()
        with pytest.raises(td.ConnectionLost, match="the session has ended, and the pool with it"):
            pool.get()

    def test_may_be_used_by_many_threads(self, session):
        pool = session.pool((MAPPED_ARRAY // 8,), count=2)
        wrong = []

        def work(value: float) -> None:
            for _ in range(40):
                array = pool.get()
                array[...] = value
                if (array != value).any():
                    wrong.append(value)
                pool.put(array)

        threads = [threading.Thread(target=work, args=(float(n),)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong
        stats = pool.stats()
        assert (stats["out"], stats["gets"]) == (0, 160)
        assert stats["made"] == stats["free"] <= 4

    def test_of_small_arrays_has_them_back_at_once(self, session):
        pool = session.pool(3, count=1)
        array = pool.get()
        array[...] = 2
        x = session.asarray(array)
        pool.put(array)
        assert pool.get() is array
        array[...] = 0
        assert x.tolist() == [2, 2, 2]
