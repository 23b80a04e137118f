"""Strict placement is decided by the homes that sessions gave a value, not by copies that the machine moved."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

import tensord as td
from tensord.streams.faults import Fault, FaultKind

from .looking_inside import WAIT, assert_sound, device_of, ones, until

KIB = 256  # float32 elements
SMALL = ["cpu:0", *({"name": name, "memory": 4 * 1024} for name in ("sim:0", "sim:1"))]
FAILURE = Fault(FaultKind.FAIL, stream="h2d")


@pytest.fixture
def s(make_session):
    return make_session(devices=SMALL, strict=True)


def fill(session: td.Session, *devices: str) -> None:
    """All other values on the devices are evicted."""
    for device in devices:
        kept = [session.asarray(ones(KIB), device=device) for _ in range(4)]
        session.sync(WAIT)
        del kept


def doubled(x: td.Tensor, device: str | None = None) -> float:
    """The first element of twice the value, computed on the device."""
    return float(x._core.calls.call(x._core, "add", [x, x], device=device)[0].numpy()[0])


def refused(x: td.Tensor, devices: Iterable[str]) -> None:
    """Ops on those devices are refused, as the value is not there."""
    for device in devices:
        with pytest.raises(td.MetadataError, match=f"placement is strict.*not on {device}"):
            doubled(x, device)


@pytest.fixture
def model(tmp_path):
    np.savez(tmp_path / "model.npz", w=ones(KIB, value=3.0))
    return tmp_path / "model.npz"


def test_a_transfer_back_that_fails_fails_its_reader_alone(s):
    x = s.asarray(ones(KIB, value=3.0), device="sim:0").evict()
    s.sync(WAIT)
    device_of(s, "sim:0").inject(FAILURE)
    with pytest.raises(td.KernelError):
        doubled(x)
    assert [doubled(x), doubled(x)] == [6, 6]
    assert_sound(s)


def test_a_prefetch_that_fails_takes_nothing_away(s):
    x = s.asarray(ones(KIB, value=3.0), device="sim:0").evict()
    s.sync(WAIT)
    device_of(s, "sim:0").inject(FAILURE)
    x.prefetch()
    s.sync(WAIT)
    assert doubled(x) == 6


def test_what_is_prefetched_may_be_used_there_whether_or_not_it_came_or_stayed(s):
    failed, dropped = (s.asarray(ones(KIB, value=3.0)) for _ in range(2))
    device_of(s, "sim:0").inject(FAILURE)
    failed.prefetch("sim:0")
    s.sync(WAIT)
    assert doubled(failed, "sim:0") == 6
    dropped.prefetch("sim:0")
    fill(s, "sim:0")
    dropped.prefetch("sim:1")
    fill(s, "sim:1")
    assert dropped.residency() == {"cpu:0": "valid"}
    assert [doubled(dropped, device) for device in ("sim:0", "sim:1")] == [6, 6]


def test_of_two_devices_that_a_value_had_to_leave_each_may_have_it_back(s):
    x = s.asarray(ones(KIB, value=3.0), device="sim:0")
    y = x.to_device("sim:1")
    s.sync(WAIT)
    fill(s, "sim:0", "sim:1")
    assert x.residency() == {"cpu:0": "valid"}
    assert [doubled(y), doubled(x)] == [6, 6]
    assert_sound(s)


def test_what_was_loaded_may_be_fetched_before_its_first_use(s, model):
    w = s.load(model, device="sim:0")["w"]
    w.numpy()
    assert doubled(w) == 6
    refused(w, ["sim:1"])


def test_what_others_do_with_a_value_changes_nothing(make_session, model):
    mine, other = (make_session("local:strict", devices=SMALL, strict=strict) for strict in (True, False))
    w = mine.load(model, device="sim:0")["w"]
    moved = mine.asarray(ones(KIB, value=4.0), device="sim:0").to_device("sim:1")
    mine.publish({"w": w, "moved": moved})
    for name in ("w", "moved"):
        other.lookup(name).numpy()
        fill(other, "sim:0", "sim:1")
    assert [doubled(w), doubled(moved)] == [6, 8]
    fill(other, "sim:0", "sim:1")
    third = make_session("local:strict", devices=SMALL, strict=True)
    assert [doubled(third.lookup("w")), doubled(third.lookup("moved"))] == [6, 8]


def test_what_was_restored_may_be_used_at_its_home(make_session, tmp_path):
    s = make_session("local:before", devices=SMALL)
    s.publish("x", s.asarray(ones(KIB, value=3.0), device="sim:1"))
    s.checkpoint(tmp_path / "there").wait(WAIT)
    s = make_session("local:after", devices=SMALL, strict=True)
    s.restore(tmp_path / "there")
    x = s.lookup("x")
    x.numpy()
    assert doubled(x) == 6
    refused(x, ["sim:0"])


def test_what_was_written_elsewhere_is_there_now_and_nowhere_else(s):
    x = s.asarray(ones(KIB, value=3.0), device="sim:0")
    moved = x.to_device("cpu:0")
    s.sync(WAIT)
    for y in (x, moved):
        s.call("full", [7.0], {"shape": (KIB,), "dtype": "float32"}, out=[y], device="sim:1")
        until(s, lambda y=y: y.residency() == {"sim:1": "valid"})
        refused(y, ["sim:0", "cpu:0"])
        fill(s, "sim:1")
        until(s, lambda y=y: y.residency() == {"cpu:0": "valid"})  # a device may still be evicting it
        refused(y, ["sim:0"])
        assert doubled(y, "sim:1") == 14


def test_a_move_that_begins_after_a_write_elsewhere_may_be_used(s):
    x = s.asarray(ones(KIB, value=3.0)).to_device("sim:0")
    s.call("full", [7.0], {"shape": (KIB,), "dtype": "float32"}, out=[x], device="cpu:0")
    s.sync(WAIT)
    fill(s, "sim:0")
    assert doubled(x, "sim:0") == 14


def test_what_others_have_moved_may_be_used_there_before_the_move_begins_and_if_it_never_does(make_session):
    mover, user = (make_session("local:moved", devices=SMALL, strict=True) for _ in range(2))
    names = ("pending", "abandoned")
    mover.publish({name: mover.asarray(ones(KIB, value=3.0)).to_device("sim:0") for name in names})
    assert doubled(user.lookup("pending")) == 6
    mover.close()
    assert doubled(user.lookup("abandoned")) == 6


def test_a_view_is_where_its_base_was_put_whatever_its_home(s):
    x = s.asarray(np.full((2, KIB), 3.0, np.float32), device="sim:0")
    there = s.call("reshape", [x], {"shape": (2 * KIB,)}, device="sim:1")[0]
    assert there.device == "sim:1"
    refused(there, ["sim:1"])
    row = x[1]
    fill(s, "sim:0")
    assert "sim:0" not in x.residency()
    assert doubled(row) == 6
    refused(there, ["sim:1"])


def test_the_host_that_a_value_had_to_leave_for_is_no_place_for_ops(s):
    """Only as long as the value happens to be there."""
    x = s.asarray(ones(KIB, value=3.0), device="sim:0").evict()
    s.sync(WAIT)
    assert doubled(x, "cpu:0") == 6
    s.call("multiply", [x, 2.0], out=[x])
    until(s, lambda: x.residency() == {"sim:0": "valid"})
    refused(x, ["cpu:0"])


def add_in_place(x: td.Tensor) -> td.Tensor:
    x += 1.0
    return x


def add_in_its_place(x: td.Tensor) -> td.Tensor:
    """The result may have the memory of an operand that is released right after the call."""
    y = x + 1.0
    x.release()
    return y


def make_after_it(x: td.Tensor) -> td.Tensor:
    """The result may have the records of a tensor that was released before."""
    core = x._core
    x.release()
    return core.calls.call(core, "full", [3.0], {"shape": (KIB,), "dtype": "float32"}, device="sim:0")[0]


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("make", [add_in_place, add_in_its_place, make_after_it])
def test_a_new_value_is_where_it_was_made_wherever_the_one_before_was_wanted(make_session, make, inline):
    s = make_session(devices=[{"name": "cpu:0", "memory": 512}, {"name": "sim:0", "inline": inline}], strict=True)
    x = s.call("full", [3.0], {"shape": (KIB,), "dtype": "float32"}, device="sim:0")[0]
    x.prefetch("cpu:0")  # where it finds no room
    s.sync(WAIT)
    assert x.residency() == {"sim:0": "valid"}
    y = make(x)
    s.sync(WAIT)
    refused(y, ["cpu:0"])
