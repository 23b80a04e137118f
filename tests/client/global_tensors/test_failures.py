"""Errors in parts: raised where the value is needed, with the device; ops that need no such part go on."""

from __future__ import annotations

import numpy as np
import pytest

import tensord as td

ROWS = np.arange(12.0).reshape(4, 3)


@pytest.fixture
def pair():
    return td.placement(["sim:0", "sim:1"])


def poisoned(session, pair, layout):
    """A global tensor whose part on sim:1 has failed: it takes a row that is not there."""
    parts = []
    for name, row in zip(pair.names, (0, 99), strict=True):
        rows = session.asarray(ROWS, name)
        parts.append(session.xp.take(rows, session.asarray([row], name), axis=0))
    return session.global_tensor(parts=parts, placement=pair, layout=layout)


@pytest.fixture
def session(make_session):
    return make_session(devices=["cpu:0", "sim:0", "sim:1"])


def test_a_failed_part_is_raised_with_its_device(session, pair):
    x = poisoned(session, pair, td.split(0))
    for wait in (x.numpy, x.wait, (x + 1).numpy, lambda: x.to_global(layout=td.broadcast).wait()):
        with pytest.raises(td.KernelError, match=r"the part on sim:[01]\).*test_failures.py"):
            wait()
    assert isinstance(x.error, IndexError)
    assert "sim:1 failed" in repr(x)
    assert session.sync() > 0


def test_the_other_parts_go_on(session, pair):
    x = poisoned(session, pair, td.split(0))
    first, second = (x * 2).parts()
    np.testing.assert_array_equal(first.numpy(), 2 * ROWS[:1])
    with pytest.raises(td.KernelError):
        second.wait()
    session.sync()


def test_a_whole_write_heals_each_part(session, pair):
    x = poisoned(session, pair, td.split(0))
    with pytest.raises(td.KernelError):
        x.wait()
    x[...] = 7.0
    assert x.tolist() == [[7.0] * 3] * 2


def test_a_lost_replica_is_no_error_of_the_value(make_session):
    lost = {"name": "sim:1", "faults": [{"kind": "lost", "label": "exp"}]}
    session = make_session(devices=["cpu:0", "sim:0", lost])
    x = session.global_tensor(ROWS, td.placement(["sim:1", "sim:0"]))
    x.wait()
    with pytest.raises(td.KernelError, match="sim:1 is lost"):
        session.xp.exp(session.asarray(ROWS, "sim:1")).wait()
    np.testing.assert_array_equal(x.numpy(), ROWS)
    np.testing.assert_array_equal(x.to_global(td.placement(["sim:0"])).numpy(), ROWS)


def test_a_value_leaves_a_lost_device(make_session):
    lost = {"name": "sim:1", "faults": [{"kind": "lost", "label": "exp"}]}
    session = make_session(devices=["cpu:0", "sim:0", lost, "sim:2"])
    x = session.global_tensor(ROWS, td.placement(["sim:0", "sim:1"]))
    x.wait()
    with pytest.raises(td.KernelError, match="sim:1 is lost"):
        session.xp.exp(session.asarray(ROWS, "sim:1")).wait()
    for layout in (td.split(0), td.split(1), td.broadcast):
        np.testing.assert_array_equal(x.to_global(td.placement(["sim:0", "sim:2"]), layout).wait().numpy(), ROWS)


def lose(session, name):
    """Lose the device whose `exp` has that fault."""
    with pytest.raises(td.KernelError, match=f"{name} is lost"):
        session.xp.exp(session.asarray(ROWS, name)).wait()


@pytest.mark.parametrize("lost", ["sim:0", "sim:1", "sim:2", "sim:3"])
@pytest.mark.parametrize("layout", [(td.broadcast, td.broadcast), (td.split(0), td.broadcast)], ids=str)
def test_a_value_moves_from_its_living_replicas(make_session, lost, layout):
    fault = [{"kind": "lost", "label": "exp"}]
    sims = [{"name": f"sim:{n}", "faults": fault if f"sim:{n}" == lost else []} for n in range(4)]
    session = make_session(devices=["cpu:0", *sims, "sim:4", "sim:5"])
    x = session.global_tensor(ROWS, td.placement([["sim:0", "sim:1"], ["sim:2", "sim:3"]]), layout).wait()
    lose(session, lost)
    y = x + 1
    elsewhere = td.placement(["sim:5", "sim:4"])
    for given, expected in ((x, ROWS), (y, ROWS + 1)):
        np.testing.assert_array_equal(given.numpy(), expected)
        np.testing.assert_array_equal(given.to_device("sim:4").numpy(), expected)
        for wanted in (td.split(0), td.split(1), td.broadcast, td.partial("sum")):
            np.testing.assert_array_equal(given.to_global(elsewhere, wanted).wait().numpy(), expected)


def test_a_failed_replica_is_made_anew_on_its_device(session, pair):
    rows = [
        (session.asarray(ROWS, name), session.asarray([n], name)) for n, name in zip((1, 99), pair.names, strict=True)
    ]
    x = session.global_tensor(parts=[session.xp.take(*each, axis=0) for each in rows], placement=pair)
    with pytest.raises(td.KernelError, match=r"the part on sim:1\)"):
        x.wait()
    assert [part.tolist() for part in x.to_global(pair).wait().parts()] == [[[3.0, 4.0, 5.0]]] * 2


def test_where_all_replicas_have_failed_the_error_is_theirs(session, pair):
    parts = [session.xp.take(session.asarray(ROWS, name), session.asarray([99], name), axis=0) for name in pair.names]
    x = session.global_tensor(parts=parts, placement=pair)
    with pytest.raises(IndexError):
        x.to_device("cpu:0").numpy()
    session.sync()


def test_in_a_group_nobody_asks_for_failures(session, pair):
    x = session.global_tensor(ROWS, pair)
    with session.atomic():
        moved = x.to_device("cpu:0")
    np.testing.assert_array_equal(moved.numpy(), ROWS)


def test_a_cancelled_session_says_so_of_global_tensors(session, pair):
    x = session.global_tensor(ROWS, pair, td.split(0))
    x.wait()
    session.cancel()
    y = x + x
    with pytest.raises(td.CancelledError):
        y.numpy()
    session.restart()
    np.testing.assert_array_equal((x + x).numpy(), 2 * ROWS)


def test_a_full_device_is_named(make_session):
    session = make_session(
        devices=[
            "cpu:0",
            {"name": "sim:0", "memory": "64MiB"},
            {"name": "sim:1", "memory": "1MiB", "eviction": "never"},
        ]
    )
    x = session.global_tensor(np.zeros(200_000), td.placement(["sim:0", "sim:1"]))
    with pytest.raises(td.DeviceMemoryError, match="sim:1"):
        (x + 1).wait()


def test_a_closed_session_is_told_of(make_session, pair):
    session = make_session(devices=["cpu:0", "sim:0", "sim:1"])
    x = session.global_tensor(ROWS, pair)
    session.close()
    for use in (x.numpy, lambda: x + 1, x.wait):
        with pytest.raises(td.ConnectionLost):
            use()
    assert "global tensor" in repr(x)
