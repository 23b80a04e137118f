"""Host arrays whose memory a daemon reads: other readers, arrays that are not shared, and every end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tensord as td
from examples.own_daemon import own_daemon
from tensord.client.session.session import Session
from tensord.interpreter.wire.segments import available, descriptor_budget, open_descriptors

from ...daemon import Daemon
from ...puppet import Puppet, eventually

pytestmark = pytest.mark.skipif(not available(), reason="no sealed memory files here")

SHAPE = (256, 512)  # enough for results to be read in place, too


@pytest.fixture
def session(daemon: Daemon) -> Iterator[Session]:
    """A session on the daemon."""
    with daemon.connect() as session:
        yield session


def filled(session: Session, value: float = 3, dtype: Any = np.float32) -> Any:
    array = session.empty_host(SHAPE, dtype)
    array[...] = value
    return array


def comes_back(session: Session, array: Any) -> None:
    eventually(lambda: session.sync() == 0 and array.flags.writeable)


def segments_of(session: Session) -> int:
    """How many segments the connection has."""
    uploads = session._core.transport.memory.uploads
    return len(uploads._lent) + len(uploads._free)


def test_an_upload_costs_no_segment_but_the_arrays_own(session: Session) -> None:
    array = filled(session)
    before = segments_of(session)
    tensors = [session.asarray(array, device) for device in ("cpu:0", "cpu:0", "sim:0")]
    assert [x.sum().item() for x in tensors] == [3 * array.size] * 3
    assert segments_of(session) == before == 1
    assert not array.flags.writeable
    tensors.clear()
    comes_back(session, array)


def test_a_value_that_is_read_in_place_keeps_the_array(session: Session) -> None:
    """The result lies in the array's memory, too."""
    array = filled(session)
    x = session.asarray(array)
    found = x.numpy()
    del x
    session.sync()
    session.sync()
    assert not array.flags.writeable
    assert (found == 3).all()
    del found
    comes_back(session, array)


def test_another_session_sees_the_value_whatever_the_publisher_does(daemon: Daemon, session: Session) -> None:
    with daemon.connect() as other:
        array = filled(session)
        session.publish("in a host array", session.asarray(array))
        x = other.lookup("in a host array")
        other.unpublish("in a host array")
        session.sync()
        assert not array.flags.writeable
        session.close()
        assert not array.flags.writeable  # no message would say when it comes back
        assert (array == 3).all()
        assert (x + 1).numpy()[0, 0] == 4
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


def test_the_end_of_the_session_leaves_free_arrays_writable(session: Session) -> None:
    array, early = filled(session), filled(session)
    x = session.asarray(early)
    del x
    comes_back(session, early)
    session.close()
    array[...] = early[...] = 1
    assert array[0, 0] == early[0, 0] == 1


def test_memory_and_descriptors_are_gone_with_the_array(session: Session) -> None:
    before = open_descriptors()
    arrays = [filled(session, n) for n in range(8)]
    tensors = [session.asarray(array) for array in arrays]
    session.sync()
    arrays.clear()
    gc.collect()
    assert [float(x.numpy()[1, 1]) for x in tensors] == list(range(8))
    tensors.clear()
    gc.collect()
    session.sync()
    session.close()
    gc.collect()
    assert open_descriptors() <= before


def test_without_descriptors_arrays_are_plain_and_copied(session: Session) -> None:
    with descriptor_budget(0):
        array = filled(session)
        x = session.asarray(array)
        assert array.flags.writeable
        array[...] = 0
        assert x.numpy()[0, 0] == 3


def test_beyond_the_daemons_limit_of_segments_arrays_are_plain_and_copied(tmp_path: Path) -> None:
    config = tmp_path / "tensord.toml"
    config.write_text('devices = ["cpu:0"]\n[limits]\nsegments = 4\n')
    with Daemon.start(tmp_path, "--config", str(config)) as daemon, daemon.connect() as session:
        arrays = [filled(session, n) for n in range(5)]
        tensors = [session.asarray(array) for array in arrays]
        assert [array.flags.writeable for array in arrays] == [False] * 2 + [True] * 3
        for array in arrays[2:]:
            array[...] = 99
        assert [float(x.numpy()[0, 0]) for x in tensors] == [0, 1, 2, 3, 4]


def test_over_tcp_nothing_is_shared() -> None:
    with (
        own_daemon(config='devices = ["cpu:0"]', also=["tcp://127.0.0.1:0"]) as daemon,
        td.connect(daemon.addresses[1]) as session,
    ):
        array = filled(session)
        x = session.asarray(array)
        assert array.flags.writeable
        array[...] = 0
        assert x.numpy()[0, 0] == 3
        with session.pool(SHAPE, np.float32, 1, grow=False) as pool:
            again = pool.get()
            assert again is not None
            pool.put(again)
            assert pool.get() is again


def test_a_daemon_that_dies_leaves_the_values(tmp_path: Path) -> None:
    with Daemon.start(tmp_path, "--device", "cpu:0") as daemon, daemon.connect() as session:
        array, free = filled(session), filled(session)
        x = session.asarray(array).wait()
        daemon.kill()
        with pytest.raises(td.ConnectionLost):
            (x + 1).numpy()
        assert (array == 3).all()
        assert not array.flags.writeable
        free[...] = 1
        with pytest.raises(td.ConnectionLost):
            session.asarray(free)
        gc.collect()
        assert free.flags.writeable  # it was never sent


def test_a_client_that_is_killed_leaves_what_it_has_published(daemon: Daemon, session: Session) -> None:
    with Puppet.start(daemon.address) as client:
        client.do("a = s.empty_host((128, 256), 'float32')\na[...] = 3\ns.publish('left', s.asarray(a))\ns.sync()")
        x = session.lookup("left")
        client.kill()
    session.unpublish("left")
    assert (x * 2).numpy()[5, 5] == 6
