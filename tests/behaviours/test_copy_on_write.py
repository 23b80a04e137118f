"""Views share a storage, values stay independent: sharers are counted at admission, and copies are instructions."""

from __future__ import annotations

import numpy as np
import pytest

from ..each_case import each_case
from .looking_inside import (
    WAIT,
    address,
    allocated,
    assert_sound,
    copies_of,
    held,
    machine_of,
    moved,
    ones,
    records,
    until,
)

VALUES = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
def test_a_partial_write_to_a_shared_storage_makes_a_visible_copy(sim_session, device):
    """A write to a shared storage gets a new one, filled by an explicit Copy instruction if the write is partial."""
    s = sim_session
    x = s.asarray(VALUES, device=device)
    view = x[1]
    x[0] = 100.0
    expected = VALUES.copy()
    expected[0] = 100.0
    np.testing.assert_array_equal(x.numpy(), expected)
    np.testing.assert_array_equal(view.numpy(), VALUES[1])
    (copy,) = records(s, opcode="Copy")
    (write,) = records(s, "setitem")
    assert (copy.id, "RAW") in {(e.source, e.reason) for e in write.edges}
    assert copy.device == device
    assert address(s, x, device) != address(s, view, device)
    x[1] = 200.0  # the new storage has no other sharer: no second copy
    x.wait(WAIT)
    assert len(records(s, opcode="Copy")) == 1
    assert_sound(s)


@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
def test_a_full_overwrite_of_a_shared_storage_copies_nothing(sim_session, device):
    """A full write to a shared storage gets a new one, and needs no Copy."""
    s = sim_session
    x = s.asarray(VALUES, device=device)
    view = x[1]
    x += 1.0
    np.testing.assert_array_equal(view.numpy(), VALUES[1])
    np.testing.assert_array_equal(x.numpy(), VALUES + 1)
    assert records(s, opcode="Copy") == []
    assert address(s, x, device) != address(s, view, device)
    assert_sound(s)


@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
@pytest.mark.parametrize("index", [..., slice(None), slice(0, 4), slice(None, None, -1), (None, ...)])
def test_a_write_by_an_index_that_selects_all_neither_copies_nor_moves_nor_waits_for_the_old_value(
    sim_session, device, index
):
    s = sim_session
    x = s.asarray(VALUES, device="sim:1").to_device(device)  # the bytes are on sim:1
    view = x[1]
    s.sync(WAIT)
    before = moved(s)
    x[index] = 3.0
    s.sync(WAIT)
    (write,) = records(s, "overwrite")
    assert "RAW" not in {edge.reason for edge in write.edges}
    assert records(s, opcode="Copy") == []
    assert moved(s) == before
    np.testing.assert_array_equal(x.numpy(), np.full_like(VALUES, 3.0))
    np.testing.assert_array_equal(view.numpy(), VALUES[1])
    assert_sound(s)


@each_case("device", ["cpu:0", "sim:0"])
@each_case("name", ["x.T", "x[::-1]", "x", "x * 2"])
def test_all_of_a_tensor_may_be_written_from_itself(sim_session, device, name):
    s = sim_session
    square = np.arange(9.0).reshape(3, 3)
    x = s.asarray(square, device=device)
    x[:] = eval(name, {"x": x})  # noqa: S307 - as it stands above
    np.testing.assert_array_equal(x.numpy(), eval(name, {"x": square}))  # noqa: S307
    assert_sound(s)


def test_a_write_through_a_view_leaves_its_base_alone(sim_session):
    """Values stay independent in the other direction, too."""
    s = sim_session
    x = s.asarray(VALUES, device="sim:0")
    row = x[2]
    row *= 10.0
    row[0] = -1.0
    np.testing.assert_array_equal(x.numpy(), VALUES)
    expected = VALUES[2] * 10
    expected[0] = -1.0
    np.testing.assert_array_equal(row.numpy(), expected)
    del x
    s.sync(WAIT)
    assert allocated(s, "sim:0") == row.numpy().nbytes  # the base's storage went with its last tensor
    assert_sound(s)


def test_an_unshared_storage_is_written_in_place(sim_session):
    """Without sharers a write, whole or partial, keeps storage and address."""
    s = sim_session
    x = s.asarray(VALUES, device="sim:0").wait(WAIT)
    before = address(s, x, "sim:0")
    view = x[0]
    view.wait(WAIT)
    del view  # released before the write, in program order
    x[1] = 3.0
    x *= 2.0
    x.wait(WAIT)
    assert address(s, x, "sim:0") == before
    assert records(s, opcode="Copy") == []
    assert copies_of(s, x)["sim:0"].version == 3
    assert_sound(s)


def test_a_queued_reader_of_a_released_view_sees_the_old_value(sim_session):
    """Admitted readers, also through views released since, are ordinary WAR edges."""
    s = sim_session
    x = s.asarray(VALUES, device="sim:0").wait(WAIT)
    with held(s, "sim:0", "compute"):
        slow = x[1] * 2.0  # the view dies with this statement
        s.flush()
        x[1] = 50.0
        s.flush()
    np.testing.assert_array_equal(slow.numpy(), VALUES[1] * 2)
    assert x[1].numpy().tolist() == [50.0] * 6
    reader, write = records(s, "multiply")[0], records(s, "setitem")[0]
    assert (reader.id, "WAR") in {(e.source, e.reason) for e in write.edges}
    assert records(s, opcode="Copy") == []
    assert_sound(s)


def test_a_tensor_with_another_home_shares_until_somebody_writes(sim_session):
    """`to_device` makes a sharer: a write to either tensor keeps the other's value, on every device."""
    s = sim_session
    x = s.asarray(VALUES)
    y = x.to_device("sim:0")
    y.wait(WAIT)
    assert y.residency().keys() == x.residency().keys() == {"cpu:0", "sim:0"}
    y[0] = 9.0
    expected = VALUES.copy()
    expected[0] = 9.0
    y.wait(WAIT)
    assert y.residency() == {"sim:0": "valid"}
    np.testing.assert_array_equal(y.numpy(), expected)
    np.testing.assert_array_equal(x.numpy(), VALUES)
    assert [r.device for r in records(s, opcode="Copy")] == ["sim:0"]
    assert moved(s)["sim:0 h2d"] == (1, VALUES.nbytes)
    x += 1.0
    np.testing.assert_array_equal(y.numpy(), expected)
    assert_sound(s)


def test_a_partial_write_on_another_device_brings_the_rest_along(sim_session):
    """A partial write on a device without a copy: the old value moves there first, then the write makes the only
    current copy.
    """
    s = sim_session
    x = s.asarray(VALUES)
    s.call("setitem", [x, 7.0], {"index": (0,)}, out=[x], device="sim:0")
    expected = VALUES.copy()
    expected[0] = 7.0
    x.wait(WAIT)
    assert x.residency() == {"sim:0": "valid"}
    np.testing.assert_array_equal(x.numpy(), expected)
    assert moved(s)["sim:0 h2d"] == (1, VALUES.nbytes)
    assert_sound(s)


def test_copies_made_for_a_write_belong_to_no_session(sim_session):
    """The Copy of a shared storage survives a cancellation of the write; the other sharers keep their value."""
    s = sim_session
    x = s.asarray(VALUES, device="sim:0").wait(WAIT)
    with held(s, "sim:0", "compute"):
        view = x[1]
        x[0] = 100.0
        s.flush()
        s.cancel()
        s.restart()
    until(s, lambda: not machine_of(s).engine.live)
    np.testing.assert_array_equal(view.numpy(), VALUES[1])
    assert [(r.session, r.status) for r in records(s, opcode="Copy")] == [(0, "DONE")]
    assert s.trace().verify() == []


def test_stale_views_on_a_device_leave_with_the_write(sim_session):
    """A write makes its own copy the only current one: copies of single views are stale with it."""
    s = sim_session
    x = s.asarray(ones(100, 100))
    s.call("sum", [x[3]], device="sim:0")[0].wait(WAIT)
    assert allocated(s, "sim:0") == 400
    x += 1.0
    x.wait(WAIT)
    assert allocated(s, "sim:0") == 0
    assert s.call("sum", [x[3]], device="sim:0")[0].item() == 200.0
    assert_sound(s)
