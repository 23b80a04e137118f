"""Where values live: which values move, how often, and which stay."""

from __future__ import annotations

import numpy as np
import pytest

from ..equality import is_on_gpu
from .looking_inside import (
    WAIT,
    address,
    allocated,
    assert_sound,
    copies_of,
    held,
    moved,
    moved_since,
    moves,
    ones,
    records,
    transfers,
    until,
)


def test_weights_move_once_each_way_however_many_steps_run(sim_session):
    """Behaviour 23: weights go to the device once and come back once; per step only inputs and fetched values move."""
    s = sim_session
    steps, reads = 12, 0
    w = s.asarray(ones(16, 16, value=0.5), device="sim:0")
    model = ones(16, 16, value=0.5)
    for step in range(steps):
        batch = ones(16, 8, value=step)
        x = s.asarray(batch)  # at home on the host
        y = s.call("matmul", [w, x])[0]
        gradient = s.call("matmul", [y, x.T], device="sim:0")[0]
        w -= gradient * 1e-4
        model -= (model @ batch @ batch.T) * np.float32(1e-4)
        if step % 4 == 0:
            assert y.sum().item() == pytest.approx(float((y.numpy()).sum()), rel=1e-5)
            reads += 1
    np.testing.assert_allclose(w.numpy(), model, rtol=1e-4)
    found = moved(s)
    assert found.pop("sim:0 h2d") == (1 + steps, 16 * 16 * 4 + steps * 16 * 8 * 4)
    assert found.pop("sim:0 d2h") == (1 + 2 * reads, 16 * 16 * 4 + reads * (4 + 16 * 8 * 4))
    assert found == {}
    assert w.residency() == {"sim:0": "valid", "cpu:0": "valid"}
    assert transfers(s) == ["h2d cpu:0->sim:0"] * steps
    assert_sound(s)


def test_an_upload_goes_straight_home_and_the_host_keeps_nothing(sim_session):
    """Behaviour 23: a client's upload goes straight to the home; the host keeps no copy of it."""
    s = sim_session
    x = s.asarray(ones(1000), device="sim:0")
    x.wait(WAIT)
    assert moved(s) == {"sim:0 h2d": (1, 4000)}
    assert x.residency() == {"sim:0": "valid"}
    assert (allocated(s, "cpu:0"), allocated(s, "sim:0")) == (0, 4000)
    np.testing.assert_array_equal(x.numpy(), ones(1000))
    assert transfers(s) == []
    assert_sound(s)


def test_exactly_what_crosses_devices_moves(sim_session):
    """Behaviour 24: partitions a on one device, b and c on another: values from a to b move, from b to c do not."""
    s = sim_session
    x = s.asarray(ones(64), device="sim:0")
    w = s.asarray(ones(64, value=2.0), device="sim:1")
    for tensor in (x, w):
        tensor.wait(WAIT)  # uploads are counted when they are done
    before = moved(s)
    crossing = x * 3.0  # partition a
    kept = x + 1.0
    inner = w + crossing  # partition b
    result = inner * inner + crossing  # partition c
    for tensor in (kept, result):
        tensor.wait(WAIT)
    assert moved_since(s, before) == {"sim:1 p2p": (1, 256)}
    assert transfers(s) == ["p2p sim:0->sim:1"]
    assert crossing.residency() == {"sim:0": "valid", "sim:1": "valid"}
    assert inner.residency() == result.residency() == {"sim:1": "valid"}
    assert kept.residency() == {"sim:0": "valid"}
    np.testing.assert_array_equal(result.numpy(), ones(64, value=28.0))
    assert_sound(s)


def test_a_stale_copy_leaves_at_once_and_its_buffer_after_the_last_reader(sim_session):
    """Behaviour 25: read on two devices, valid on both; written on one, stale on the other, freed after its reader."""
    s = sim_session
    x = s.asarray(ones(256))
    there = s.call("add", [x, 1.0], device="sim:0")[0]
    there.wait(WAIT)
    assert x.residency() == {"cpu:0": "valid", "sim:0": "valid"}
    assert allocated(s, "sim:0") == 2048
    stale = copies_of(s, x)["sim:0"]
    with held(s, "sim:0", "compute"):
        late = s.call("multiply", [x, 10.0], device="sim:0")[0]
        x += 5.0  # on the host
        x.wait(WAIT)  # an old reader on a device does not block a writer on the host
        assert x.residency() == {"cpu:0": "valid"}
        assert not stale.current
        assert stale.buffer is not None or allocated(s, "sim:0") == 3072
        assert allocated(s, "sim:0") == 3072  # there, the stale copy, late
        assert not late.is_ready()
    np.testing.assert_array_equal(late.numpy(), ones(256, value=10.0))
    assert allocated(s, "sim:0") == 2048
    assert stale.buffer is None
    np.testing.assert_array_equal(x.numpy(), ones(256, value=6.0))
    assert_sound(s)


def test_a_stale_copy_is_never_written_again(sim_session):
    """Behaviour 25: a later transfer makes a new copy instead of refilling the stale one."""
    s = sim_session
    x = s.asarray(ones(64))
    s.call("add", [x, 1.0], device="sim:0")[0].wait(WAIT)
    with held(s, "sim:0", "compute"):
        old = s.call("multiply", [x, 10.0], device="sim:0")[0]
        x += 1.0
        new = s.call("multiply", [x, 10.0], device="sim:0")[0]
        s.flush()
        until(s, lambda: copies_of(s, x)["sim:0"].writer is None)  # the second transfer did not wait for the reader
        assert not old.is_ready()
    np.testing.assert_array_equal(old.numpy(), ones(64, value=10.0))
    np.testing.assert_array_equal(new.numpy(), ones(64, value=20.0))
    targets = [next(o.copy for o in r.operands if o.kind == "mut") for r in moves(s)]
    assert len(targets) == len(set(targets)) == 2
    assert_sound(s)


def test_a_slow_reader_sees_the_old_value_when_another_stream_overwrites(make_session):
    """Behaviour 26: a slow reader on one stream, then an overwrite from another: the reader sees the old value."""
    s = make_session(devices=["cpu:0", {"name": "sim:0", "compute_streams": 2}])
    x = s.asarray(ones(32), device="sim:0")
    x.wait(WAIT)
    with held(s, "sim:0", "compute0"):
        slow = x * 2.0
        s.flush()
        assert records(s, "multiply")[0].status == "DISPATCHED"
        one = s.asarray(ones(32, value=7.0), device="sim:0")
        s.call("add", [one, 0.0], out=[x])
        after = x + 0.0
        s.flush()
        assert not after.is_ready()  # the overwrite waits for the reader, whichever stream it is on
    np.testing.assert_array_equal(slow.numpy(), ones(32, value=2.0))
    np.testing.assert_array_equal(after.numpy(), ones(32, value=7.0))
    reader, write = records(s, "multiply")[0], records(s, "add")[0]
    assert (reader.id, "WAR") in {(e.source, e.reason) for e in write.edges}
    assert_sound(s)


def test_a_slow_reader_on_a_device_does_not_hold_up_the_host(sim_session):
    """Behaviour 26: a reader of the device's copy and a writer on the host do not wait for each other."""
    s = sim_session
    x = s.asarray(ones(32))
    with held(s, "sim:0", "compute"):
        slow = s.call("multiply", [x, 2.0], device="sim:0")[0]
        s.flush()
        until(s, lambda: copies_of(s, x)["sim:0"].writer is None)
        x += 41.0
        np.testing.assert_array_equal(x.numpy(), ones(32, value=42.0))
        assert not slow.is_ready()
    np.testing.assert_array_equal(slow.numpy(), ones(32, value=2.0))
    assert_sound(s)


def test_a_value_written_on_a_device_survives_work_that_the_host_never_reads(sim_session):
    """Behaviour 27: device writes, host never reads, same work again: the device's value survives."""
    s = sim_session
    x = s.asarray(ones(16))
    for _ in range(3):
        s.call("add", [x, 1.0], out=[x], device="sim:0")
        s.sync(WAIT)
    assert x.residency() == {"sim:0": "valid"}
    assert transfers(s) == ["h2d cpu:0->sim:0"]  # the host's value is stale, and is not sent again
    np.testing.assert_array_equal(x.numpy(), ones(16, value=4.0))
    assert_sound(s)


@pytest.mark.parametrize("observed", [False, True])
def test_observing_a_tensor_changes_no_later_result_and_no_placement(sim_session, observed):
    """Behaviour 27: reading a tensor never changes later results or the placement of later writes."""
    s = sim_session

    def look(tensor):
        if observed:
            tensor.numpy()
            tensor.wait(WAIT)
            assert tensor.is_ready()
            tensor.residency()

    x = s.asarray(ones(16), device="sim:0")
    look(x)
    s.call("add", [x, 2.0], out=[x], device="sim:1")
    look(x)
    x *= 3.0
    look(x)
    y = s.call("add", [x, x], device="sim:1")[0]
    look(y)
    host = {"cpu:0"} if observed else set()  # keeps the copy that was read there
    assert x.residency().keys() == {"sim:0", "sim:1"} | host
    assert y.residency().keys() == {"sim:1"} | host
    targets = [op.partition("->")[2] for op in transfers(s)]
    assert [target for target in targets if target != "cpu:0"] == ["sim:1", "sim:0", "sim:1"]
    np.testing.assert_array_equal(y.numpy(), ones(16, value=18.0))
    assert_sound(s)


def test_an_op_lives_where_it_ran(sim_session):
    """Behaviour 24: an op runs on its device, else on the home of `out`, else on that of its first tensor operand."""
    s = sim_session
    host, device = s.asarray(ones(4)), s.asarray(ones(4), device="sim:0")
    first = 1.0 + s.call("add", [2.0, device])[0]
    second = s.call("add", [device, host])[0]
    third = s.call("add", [host, device])[0]
    fourth = s.call("add", [host, device], device="sim:1")[0]
    s.call("add", [device, host], out=[host])
    assert [t.device for t in (first, second, third, fourth, host)] == ["sim:0", "sim:0", "cpu:0", "sim:1", "cpu:0"]
    for tensor in (first, second, third, fourth, host):
        tensor.wait(WAIT)
        assert tensor.residency() == {tensor.device: "valid"}
    assert_sound(s)


def test_a_result_of_the_device_takes_the_device_s_memory(sim_session):
    """Behaviour 23: a value on a device lies in the device's memory, which the host cannot reach."""
    s = sim_session
    x = s.asarray(ones(64), device="sim:0")
    y = x + 1.0
    y.wait(WAIT)
    assert address(s, x, "sim:0") != address(s, y, "sim:0")
    buffer = copies_of(s, y)["sim:0"].buffer
    assert buffer
    raw = buffer.raw
    if is_on_gpu("sim:0"):
        assert type(raw).__name__ == "MemoryPointer"
    else:
        assert (type(raw).__name__, raw.owner) == ("SimMemory", "sim:0")
    assert_sound(s)


def test_more_views_than_a_storage_keeps_copies_of_are_read_at_once(sim_session):
    """None of an op's operands is dropped to make room for another."""
    s = sim_session
    array = np.arange(800.0).reshape(100, 8)
    x = s.asarray(array)
    rows = [x[number] for number in range(100)]
    for row in rows[:64]:
        s.call("add", [row, 0.0], device="sim:0")
    s.sync()
    np.testing.assert_array_equal(s.call("stack", rows, {"axis": 0}, device="sim:0")[0].numpy(), array)
    assert_sound(s)


@pytest.mark.parametrize("strict", [False, True])
def test_each_of_many_moved_views_moves_once(make_session, strict):
    """However many tensors there are, moved ones are there, also where placement is strict."""
    s = make_session(devices=["cpu:0", "sim:0", "sim:1"], strict=strict)
    array = np.arange(800.0).reshape(100, 8)
    x = s.asarray(array)
    for device in ("sim:0", "sim:1"):
        rows = [x[number].to_device(device) for number in range(100)]
        s.sync()
        for row in rows:
            (row + 1.0).wait(WAIT)
        assert moved(s)[f"{device} h2d"] == (100, 6400)
        np.testing.assert_array_equal(rows[-1].numpy(), array[-1])
    assert_sound(s)


def test_what_was_moved_and_dropped_for_room_moves_again_though_placement_is_strict(make_session):
    s = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 1 << 20}], strict=True)
    x = s.asarray(np.ones(100_000)).to_device("sim:0")
    s.sync()
    y = s.call("full", [1.0], {"shape": (60_000,), "dtype": "float64"}, device="sim:0")[0]
    s.sync()
    assert x.residency() == {"cpu:0": "valid"}
    y.release()
    assert s.call("sum", [x])[0].item() == 100_000.0
    assert moved(s)["sim:0 h2d"] == (2, 1_600_000)
    assert_sound(s)


@pytest.mark.parametrize("known", [False, True])
def test_a_value_that_does_not_fit_on_the_host_is_read_all_the_same(make_session, known):
    """`known`: the shape is known before the read."""
    s = make_session(devices=[{"name": "cpu:0", "memory": 1 << 20}, "sim:0"])
    x = s.xp.cumulative_sum(s.call("full", [1.0], {"shape": (200_000,), "dtype": "float64"}, device="sim:0")[0])
    y = s.xp.unique_values(x)
    if known:
        y.wait(WAIT)
    assert y.numpy().shape == (200_000,)
    assert y.residency() == {"sim:0": "valid"}
    assert_sound(s)
