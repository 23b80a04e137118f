"""Transfers: planned at admission as instructions of the DAG, shared, overlapped, through the host where necessary."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

import tensord as td
from tensord.streams.faults import Fault, FaultKind

from .looking_inside import (
    WAIT,
    allocated,
    assert_sound,
    copies_of,
    device_of,
    held,
    machine_of,
    moved,
    moved_since,
    moves,
    ones,
    records,
    transfers,
    until,
)

NO_PEERS = ["cpu:0", {"name": "sim:0", "peer": False}, {"name": "sim:1", "peer": False}]


def test_without_peer_access_two_transfers_through_the_host(make_session):
    """Behaviour 28: no peer access: device to device shows two transfers in the DAG."""
    s = make_session(devices=NO_PEERS)
    x = s.asarray(ones(100), device="sim:0")
    y = s.call("add", [x, 1.0], device="sim:1")[0]
    np.testing.assert_array_equal(y.numpy(), ones(100, value=2.0))
    first, second = moves(s)
    assert (first.op, second.op) == ("d2h sim:0->cpu:0", "h2d cpu:0->sim:1")
    assert (first.id, "RAW") in {(e.source, e.reason) for e in second.edges}
    assert (second.id, "RAW") in {(e.source, e.reason) for e in records(s, "add")[0].edges}
    assert (first.nbytes, second.nbytes) == (400, 400)
    assert {first.location, second.location} == {records(s, "add")[0].location}  # the session that caused it
    assert moved(s) == {"sim:0 h2d": (1, 400), "sim:0 d2h": (1, 400), "sim:1 h2d": (1, 400), "sim:1 d2h": (1, 400)}
    assert x.residency().keys() == {"sim:0", "cpu:0", "sim:1"}
    assert_sound(s)


def test_with_peer_access_one_transfer(sim_session):
    """Behaviour 28: with peer access one."""
    s = sim_session
    x = s.asarray(ones(100), device="sim:0")
    y = s.call("add", [x, 1.0], device="sim:1")[0]
    y.wait(WAIT)
    (only,) = moves(s)
    assert (only.op, only.device, only.nbytes) == ("p2p sim:0->sim:1", "sim:1", 400)
    assert allocated(s, "cpu:0") == 0
    np.testing.assert_array_equal(y.numpy(), ones(100, value=2.0))
    assert x.residency().keys() == {"sim:0", "sim:1"}
    assert_sound(s)


def test_a_view_goes_through_the_host_alone(make_session):
    """Behaviour 28: only the view's own bytes go through the host."""
    s = make_session(devices=NO_PEERS)
    x = s.asarray(np.arange(1000, dtype=np.float32), device="sim:0")
    y = s.call("add", [x[::100], 1.0], device="sim:1")[0]
    np.testing.assert_array_equal(y.numpy(), np.arange(0, 1000, 100, dtype=np.float32) + 1)
    assert [(r.op, r.nbytes) for r in moves(s)] == [
        ("d2h sim:0->cpu:0", 40),
        ("h2d cpu:0->sim:1", 40),
    ]
    assert_sound(s)


def test_a_transfer_for_the_next_op_runs_while_this_one_computes(sim_session):
    """Behaviour 29: a transfer for the next op runs while the present op computes."""
    s = sim_session
    x, y = s.asarray(ones(50), device="sim:0"), s.asarray(ones(50, value=2.0))
    x.wait(WAIT)
    with held(s, "sim:0", "compute"):
        present = x + 1.0
        following = s.call("multiply", [present, y])[0]
        s.flush()
        until(s, lambda: copies_of(s, y).get("sim:0") is not None and copies_of(s, y)["sim:0"].writer is None)
        assert not present.is_ready()
        assert moves(s)[0].status == "DONE"
        assert records(s, "add")[0].status == "DISPATCHED"
    np.testing.assert_array_equal(following.numpy(), ones(50, value=4.0))
    copy = moves(s)[0]
    assert copy.finished < records(s, "add")[0].started
    assert_sound(s)


def test_uploads_and_downloads_overlap_with_compute(sim_session):
    """Behaviour 29: each kind of copy has a stream of its own, and none waits behind a kernel that it does not need."""
    s = sim_session
    done = s.asarray(ones(8), device="sim:0").wait(WAIT)
    with held(s, "sim:0", "compute"):
        busy = done + 1.0
        np.testing.assert_array_equal(done.numpy(), ones(8))
        s.asarray(ones(8), device="sim:0").wait(WAIT)
        s.call("add", [done, 1.0], device="sim:1")[0].wait(WAIT)
        assert not busy.is_ready()
    busy.wait(WAIT)
    assert_sound(s)


def test_a_transfer_waits_for_its_producer_by_event(sim_session):
    """Behaviour 29: between streams that order themselves by events a transfer is launched right behind its source."""
    s = sim_session
    x = s.asarray(ones(50), device="sim:0").wait(WAIT)
    with held(s, "sim:0", "compute"):
        y = x + 1.0
        z = s.call("multiply", [y, 3.0], device="sim:1")[0]
        s.flush()
        assert [r.status for r in moves(s)] == ["DISPATCHED"]
        assert records(s, "multiply")[0].status == "DISPATCHED"
    np.testing.assert_array_equal(z.numpy(), ones(50, value=6.0))
    copy = moves(s)[0]
    assert [(e.reason, e.elided) for e in copy.edges] == [("RAW", True)]
    assert_sound(s)


def test_a_second_consumer_shares_the_planned_transfer(sim_session):
    """Behaviour 23: a copy moves at most once per device and version: a second consumer finds it planned."""
    s = sim_session
    x = s.asarray(ones(128))
    with held(s, "sim:0", "h2d"):
        consumers = [s.call("multiply", [x, float(k)], device="sim:0")[0] for k in range(5)]
        moved_x = x.to_device("sim:0")
        assert x.residency() == {"cpu:0": "valid", "sim:0": "planned"}
        assert moved_x.device == "sim:0"
    for k, consumer in enumerate(consumers):
        np.testing.assert_array_equal(consumer.numpy(), ones(128, value=k))
    assert transfers(s) == ["h2d cpu:0->sim:0"]
    assert x.residency() == {"cpu:0": "valid", "sim:0": "valid"}
    x += 1.0  # a new version moves anew
    s.call("multiply", [x, 2.0], device="sim:0")[0].wait(WAIT)
    assert transfers(s) == ["h2d cpu:0->sim:0"] * 2
    np.testing.assert_array_equal(moved_x.numpy(), ones(128))
    assert_sound(s)


def test_of_a_view_only_its_bytes_move_and_only_once(sim_session):
    """Of a view only its own bytes move. A copy moves at most once per device, version and view while it is kept."""
    s = sim_session
    values = np.arange(10_000, dtype=np.float32).reshape(100, 100)
    x = s.asarray(values)
    row, column = x[7], x[:, 3]
    for _ in range(3):
        np.testing.assert_array_equal(s.call("add", [row, 1.0], device="sim:0")[0].numpy(), values[7] + 1)
        again = x[7]  # another handle, the same view
        np.testing.assert_array_equal(s.call("add", [again, 2.0], device="sim:0")[0].numpy(), values[7] + 2)
        np.testing.assert_array_equal(s.call("add", [column, 1.0], device="sim:0")[0].numpy(), values[:, 3] + 1)
    assert [r.nbytes for r in moves(s)] == [400, 400]
    assert moved(s)["sim:0 h2d"] == (2, 800)
    assert allocated(s, "sim:0") == 800
    assert row.residency() == {"cpu:0": "valid", "sim:0": "valid"}
    assert x.residency() == {"cpu:0": "valid"}  # its views are there, x is not
    x += 1.0  # the views keep the value that they had: they are tensors of their own
    np.testing.assert_array_equal(s.call("add", [row, 1.0], device="sim:0")[0].numpy(), values[7] + 1)
    assert moved(s)["sim:0 h2d"] == (2, 800)
    assert_sound(s)


def test_a_view_moves_with_a_copy_that_is_there(sim_session):
    """No bytes of a view move to a device that has the whole storage."""
    s = sim_session
    x = s.asarray(ones(64, 64))
    s.call("sum", [x], device="sim:0")[0].wait(WAIT)
    before = moved(s)
    s.call("sum", [x[3]], device="sim:0")[0].wait(WAIT)
    assert moved_since(s, before) == {}
    assert_sound(s)


def test_fetching_a_view_moves_its_bytes_alone(sim_session):
    """Only the view's own bytes come back to the client."""
    s = sim_session
    x = s.asarray(np.arange(1000, dtype=np.int32).reshape(10, 100), device="sim:0")
    np.testing.assert_array_equal(x[2, ::10].numpy(), np.arange(200, 300, 10))
    assert moved(s)["sim:0 d2h"] == (1, 40)
    assert_sound(s)


def test_strict_placement_raises_instead_of_moving(make_session):
    """Strict placement: an op whose operand is elsewhere fails; explicit moves of the user go through."""
    s = make_session(devices=["cpu:0", "sim:0"], strict=True)
    x, w = s.asarray(ones(4)), s.asarray(ones(4), device="sim:0")
    mixed = s.call("add", [w, x])[0]
    with pytest.raises(td.MetadataError, match=r"placement is strict.*cpu:0.*sim:0.*to_device") as caught:
        mixed.numpy()
    assert "test_strict_placement" in (caught.value.location or "")
    assert caught.value.op == "add"
    assert transfers(s) == []
    good = w + x.to_device("sim:0")
    np.testing.assert_array_equal(good.numpy(), ones(4, value=2.0))
    assert transfers(s) == ["h2d cpu:0->sim:0"]
    del mixed
    matrix = s.asarray(ones(4, 4))
    np.testing.assert_array_equal((w + matrix[2].to_device("sim:0")).numpy(), ones(4, value=2.0))  # nor a view's bytes
    np.testing.assert_array_equal((w + w).numpy(), ones(4, value=2.0))  # a value that is there needs no move
    with pytest.raises(td.MetadataError, match="strict"):
        s.call("add", [w, 1.0], device="cpu:0")[0].wait(WAIT)
    assert_sound(s)


def test_strict_placement_rejects_without_touching_the_target(make_session):
    """A rejected in-place call poisons its outputs, and none of its other operands."""
    s = make_session(devices=["cpu:0", "sim:0"], strict=True)
    x, w = s.asarray(ones(4)), s.asarray(ones(4), device="sim:0")
    s.call("add", [w, x], out=[w])
    with pytest.raises(td.MetadataError, match="strict"):
        w.numpy()
    np.testing.assert_array_equal(x.numpy(), ones(4))
    s.call("zeros", [], {"shape": (4,), "dtype": "float32"}, out=[w])  # a full overwrite heals
    np.testing.assert_array_equal(w.numpy(), ones(4, value=0.0))
    assert_sound(s)


def test_the_payload_of_an_upload_is_dropped_once_it_is_there(sim_session, monkeypatch):
    """Uploads go straight to the home: once they are there, no object on the host refers to the bytes any more."""
    s = sim_session
    payloads: list[weakref.ref[np.ndarray]] = []
    send = s._core.transport.send

    def watch(messages):
        for message in messages:
            payloads.extend(weakref.ref(field) for field in message if isinstance(field, np.ndarray))
        send(messages)

    monkeypatch.setattr(s._core.transport, "send", watch)
    x = s.asarray(ones(100_000), device="sim:0")
    x.wait(WAIT)
    s.sync(WAIT)
    assert len(payloads) == 1
    assert payloads[0]() is None
    assert_sound(s)


def test_a_failed_transfer_leaves_the_version_healthy(sim_session):
    """Behaviour 41: a transfer fails: the version stays healthy, its consumer fails, the next one tries anew."""
    s = sim_session
    x = s.asarray(ones(16))
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="h2d cpu:0->sim:0"))
    with held(s, "sim:0", "h2d"):
        first = s.call("add", [x, 1.0], device="sim:0")[0]
        second = first * 2.0
    with pytest.raises(td.KernelError, match="injected") as caught:
        second.numpy()
    assert "test_a_failed_transfer" in (caught.value.location or "")
    assert caught.value.op == "h2d cpu:0->sim:0"
    assert x.error is None
    assert x.residency() == {"cpu:0": "valid"}
    third = s.call("add", [x, 1.0], device="sim:0")[0]
    np.testing.assert_array_equal(third.numpy(), ones(16, value=2.0))
    np.testing.assert_array_equal(x.numpy(), ones(16))
    until(s, lambda: not machine_of(s).engine.live)
    assert transfers(s) == ["h2d cpu:0->sim:0"] * 2
    assert [r.status for r in moves(s)] == ["FAILED", "DONE"]
    assert [r.status for r in records(s, "add") + records(s, "multiply")] == ["SKIPPED", "DONE", "SKIPPED"]
    assert s.stats()["failed"] == 1
    del first, second
    assert_sound(s)


def test_a_transfer_that_does_not_fit_leaves_the_version_healthy(make_session):
    """Behaviour 41: a transfer fails for lack of memory; after a release the next consumer's transfer goes through."""
    s = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 4096, "eviction": "never"}])
    x = s.asarray(ones(512))
    blocker = s.asarray(ones(768), device="sim:0").wait(WAIT)
    starved = s.call("sum", [x], device="sim:0")[0]
    with pytest.raises(td.DeviceMemoryError, match=r"2 KiB \(2048 bytes\) do not fit on sim:0"):
        starved.numpy()
    assert x.error is None
    assert x.residency() == {"cpu:0": "valid"}
    assert allocated(s, "sim:0") == 3072
    blocker.release()
    assert s.call("sum", [x], device="sim:0")[0].item() == 512.0
    np.testing.assert_array_equal(x.numpy(), ones(512))
    assert [r.status for r in moves(s)] == ["FAILED", "DONE"]
    del starved
    assert_sound(s)


def test_a_failed_transfer_of_a_view_leaves_its_storage_healthy(sim_session):
    """Behaviour 41: the same for a view's bytes."""
    s = sim_session
    x = s.asarray(np.arange(100, dtype=np.float32))
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, stream="h2d"))
    with pytest.raises(td.KernelError, match="injected"):
        s.call("add", [x[:10], 1.0], device="sim:0")[0].numpy()
    np.testing.assert_array_equal(s.call("add", [x[:10], 1.0], device="sim:0")[0].numpy(), np.arange(10) + 1)
    np.testing.assert_array_equal(x.numpy(), np.arange(100))
    assert [(r.status, r.nbytes) for r in moves(s)] == [("FAILED", 40), ("DONE", 40)]
    assert_sound(s)


def test_the_second_hop_failing_leaves_the_first_one_s_copy(make_session):
    """Behaviour 41: of two transfers through the host the second fails; the next attempt starts from the host."""
    s = make_session(devices=NO_PEERS)
    x = s.asarray(ones(16), device="sim:0")
    device_of(s, "sim:1").inject(Fault(FaultKind.FAIL, stream="h2d"))
    with pytest.raises(td.KernelError, match="injected"):
        s.call("add", [x, 1.0], device="sim:1")[0].numpy()
    assert x.residency() == {"sim:0": "valid", "cpu:0": "valid"}
    np.testing.assert_array_equal(s.call("add", [x, 1.0], device="sim:1")[0].numpy(), ones(16, value=2.0))
    assert transfers(s) == ["d2h sim:0->cpu:0", "h2d cpu:0->sim:1", "h2d cpu:0->sim:1"]
    assert_sound(s)


def test_planned_transfers_belong_to_no_session(sim_session):
    """Behaviour 41: cancelling the session that caused a transfer does not stop it: others may need it."""
    s = sim_session
    x = s.asarray(ones(16)).wait(WAIT)
    with held(s, "cpu:0", "compute"), held(s, "sim:0", "h2d"):
        slow = x + 1.0
        victim = s.call("add", [x, slow], device="sim:0")[0]
        s.flush()
        s.cancel()
        with pytest.raises(td.CancelledError):
            victim.wait(WAIT)
        s.restart()
        follower = s.call("multiply", [x, 4.0], device="sim:0")[0]
        s.flush()
    np.testing.assert_array_equal(follower.numpy(), ones(16, value=4.0))
    assert [(r.session, r.status) for r in moves(s)[:1]] == [(0, "DONE")]
    del victim
    assert_sound(s)


def test_moving_where_nothing_leads_is_an_error_of_the_handle(make_session):
    """`to_device` to a device that cannot be reached poisons the new handle, and nothing else."""
    s = make_session(devices=[{"name": "sim:0", "peer": False}, "sim:1"])
    x = s.asarray(ones(4), device="sim:0")
    y = x.to_device("sim:1")
    with pytest.raises(td.MetadataError, match="sim:1 cannot reach sim:0"):
        y.numpy()
    np.testing.assert_array_equal((x + 1.0).numpy(), ones(4, value=2.0))
    del y
    assert_sound(s)


def test_a_pending_meta_moves_between_devices(sim_session):
    """A tensor whose shape data decide is moved like any other; the move is planned before the size is known."""
    s = sim_session
    x = s.asarray(np.array([3, 1, 3, 2], np.int32))
    with held(s, "cpu:0", "compute"):
        y = s.call("unique_values", [x])[0]
        z = s.call("add", [y, 1], device="sim:0")[0]
        s.flush()
        assert not z.is_ready()
    assert sorted(z.numpy().tolist()) == [2, 3, 4]
    assert moved(s)["sim:0 h2d"] == (1, 12)
    assert_sound(s)


def test_a_pending_meta_changes_its_home(make_session):
    """`to_device` of a tensor whose shape data decide: the new handle learns the shape with the old one."""
    s = make_session(devices=NO_PEERS)
    x = s.asarray(np.array([3, 1, 3, 2], np.int32))
    with held(s, "cpu:0", "compute"):
        y = s.call("unique_values", [x])[0].to_device("sim:0")
        z = y.to_device("sim:1") * 2
        s.flush()
        assert not z.is_ready()
    assert y.shape == (3,)
    assert (sorted(z.numpy().tolist()), z.device) == ([2, 4, 6], "sim:1")
    assert sorted(y.numpy().tolist()) == [1, 2, 3]
    assert_sound(s)


def test_a_pending_meta_overwritten_while_it_moves(sim_session):
    """The old value, of unknown size, reaches its reader although the tensor is written again behind it."""
    s = sim_session
    x = s.asarray(np.array([3, 1, 3, 2], np.int32))
    with held(s, "cpu:0", "compute"):
        y = s.call("unique_values", [x])[0]
        moved_y = s.call("add", [y, 1], device="sim:0")[0]
        s.call("multiply", [y, 10], out=[y])
        s.flush()
    assert sorted(moved_y.numpy().tolist()) == [2, 3, 4]
    assert sorted(y.numpy().tolist()) == [10, 20, 30]
    assert_sound(s)


def test_machine_has_no_host_to_stop_over_at(make_session):
    """Without peer access and without a cpu device the call says what is missing, and poisons only its result."""
    s = make_session(devices=[{"name": "sim:0", "peer": False}, "sim:1"])
    x = s.asarray(ones(4), device="sim:0")
    y = s.call("add", [x, 1.0], device="sim:1")[0]
    with pytest.raises(td.MetadataError, match="sim:1 cannot reach sim:0"):
        y.numpy()
    np.testing.assert_array_equal((x + 1.0).numpy(), ones(4, value=2.0))
    assert machine_of(s).engine.residency.host is None
    del y
    assert_sound(s)


# -- moves and reads ---------------------------------------------------------------------------------------------------


def test_to_wait_for_a_moved_tensor_is_to_wait_for_its_bytes_there(sim_session):
    s = sim_session
    x = s.asarray(ones(64)).wait(WAIT)
    with held(s, "sim:0", "h2d"):
        y = x.to_device("sim:0")
        assert not y.is_ready()
        with pytest.raises(TimeoutError):
            y.wait(0.01)
        assert x.is_ready()
    y.wait(WAIT)
    assert copies_of(s, y)["sim:0"].writer is None
    assert y.residency() == {"cpu:0": "valid", "sim:0": "valid"}
    assert y.is_ready()
    assert moved(s) == {"sim:0 h2d": (1, 256)}
    assert_sound(s)


def test_a_move_that_does_not_fit_is_an_error_of_its_wait_and_not_of_the_value(make_session):
    s = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 1024}])
    y = s.asarray(ones(512)).to_device("sim:0")
    with pytest.raises(td.DeviceMemoryError, match=r"2 KiB \(2048 bytes\) do not fit on sim:0"):
        y.wait(WAIT)
    np.testing.assert_array_equal(y.numpy(), ones(512))
    assert_sound(s)


def test_a_copy_that_was_dropped_there_is_brought_again_by_a_wait(make_session):
    s = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 1024}])
    y = s.asarray(ones(200)).to_device("sim:0").wait(WAIT)
    other = s.asarray(ones(250), device="sim:0").wait(WAIT)
    assert y.residency() == {"cpu:0": "valid"}
    other.release()
    y.wait(WAIT)
    assert y.residency() == {"cpu:0": "valid", "sim:0": "valid"}
    assert_sound(s)


def test_of_a_move_that_nobody_needs_the_view_moves_alone(sim_session):
    s = sim_session
    big = s.asarray(ones(256, 256))
    corner = big.to_device("sim:0")[:8, :16]
    np.testing.assert_array_equal((corner + 1.0).numpy(), ones(8, 16, value=2.0))
    assert moved(s)["sim:0 h2d"] == (1, 512)
    assert big.to_device("sim:0")[0, :4].wait(WAIT).device == "sim:0"
    assert moved(s)["sim:0 h2d"] == (2, 528)
    assert big.residency() == {"cpu:0": "valid"}
    assert_sound(s)


def test_of_a_move_that_is_held_the_whole_moves_once_and_its_views_lie_on_it(sim_session):
    s = sim_session
    there = s.asarray(ones(256, 256)).to_device("sim:0")
    for row in range(5):
        (there[row] + 1.0).wait(WAIT)
    assert moved(s) == {"sim:0 h2d": (1, 256 * 256 * 4)}
    assert_sound(s)


@pytest.mark.parametrize("how", ["item", "wait", "is_ready", "sync", "transfer"])
def test_a_move_begins_when_its_session_asks_or_needs_a_transfer(sim_session, how):
    s = sim_session
    x, other = s.asarray(ones(8)), s.asarray(ones(1)).wait(WAIT)
    following = x.to_device("sim:0")
    s.flush()
    assert moves(s) == []
    assert following.residency() == {"cpu:0": "valid", "sim:0": "planned"}
    ask = {
        "item": other.item,
        "wait": other.wait,
        "is_ready": other.is_ready,
        "sync": s.sync,
        "transfer": lambda: s.call("add", [other, 1.0], device="sim:1")[0].wait(WAIT),
    }
    ask[how]()
    until(s, lambda: copies_of(s, x).keys() == {"cpu:0", "sim:0"})
    assert_sound(s)
    assert x.residency() == {"cpu:0": "valid", "sim:0": "valid"}


def test_sync_covers_moves_that_began_before(sim_session):
    s = sim_session
    other = s.asarray(ones(1)).wait(WAIT)
    following = s.asarray(ones(8)).to_device("sim:0")
    with held(s, "sim:0", "h2d"):
        other.wait(WAIT)
        with pytest.raises(TimeoutError):
            s.sync(0.01)
    s.sync(WAIT)
    assert following.residency() == {"cpu:0": "valid", "sim:0": "valid"}
    assert_sound(s)


@pytest.mark.parametrize("count", [1, 100, 200_000])
def test_a_value_that_was_read_stays_on_the_host_and_moves_once(sim_session, count):
    s = sim_session
    x = s.asarray(ones(count), device="sim:0")
    for _ in range(3):
        np.testing.assert_array_equal(x.numpy(), ones(count))
    assert moved(s) == {"sim:0 h2d": (1, 4 * count), "sim:0 d2h": (1, 4 * count)}
    assert x.residency() == {"sim:0": "valid", "cpu:0": "valid"}
    x += 1.0
    np.testing.assert_array_equal(x.numpy(), ones(count, value=2.0))
    assert moved(s)["sim:0 d2h"] == (2, 8 * count)
    assert_sound(s)


def test_what_was_read_is_the_first_to_go_where_memory_is_short(make_session):
    s = make_session(devices=[{"name": "cpu:0", "memory": 1024}, "sim:0"])
    x = s.asarray(ones(200), device="sim:0")
    x.numpy()
    assert x.residency() == {"sim:0": "valid", "cpu:0": "valid"}
    full = s.asarray(ones(250))
    np.testing.assert_array_equal(full.numpy(), ones(250))
    assert x.residency() == {"sim:0": "valid"}
    np.testing.assert_array_equal(x.numpy(), ones(200))  # straight to the program: there is no room for a copy
    assert x.residency() == {"sim:0": "valid"}
    assert moved(s)["sim:0 d2h"] == (2, 1600)
    assert_sound(s)


def test_a_transfer_is_counted_where_it_is_carried_out_whoever_asked(sim_session):
    s = sim_session
    x, y = s.asarray(ones(10), device="sim:0"), s.asarray(ones(10), device="sim:0")
    x.numpy()
    y.to_device("cpu:0").wait(WAIT)
    s.call("add", [y, 1.0], device="cpu:0")[0].wait(WAIT)
    assert moved(s) == {"sim:0 h2d": (2, 80), "sim:0 d2h": (2, 80)}
    assert_sound(s)


@pytest.mark.parametrize("device", ["sim:0", "cpu:0"])
def test_of_a_partial_tensor_only_the_bytes_that_are_there_move(sim_session, device):
    x = sim_session.asarray(ones(100), device, padded_to=(1000,), fill=2)
    sim_session.sync(WAIT)
    assert moved(sim_session) == ({"sim:0 h2d": (1, 400)} if device == "sim:0" else {})
    assert x.sum().item() == 100 + 2 * 900
    assert {r.device for r in records(sim_session, "full") + records(sim_session, "setitem")} == {device}
