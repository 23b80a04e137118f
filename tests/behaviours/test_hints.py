"""Placement hints of users: pinned values stay, evicted ones leave, prefetched ones come."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.streams.faults import Fault, FaultKind

from .looking_inside import WAIT, allocated, assert_sound, device_of, held, machine_of, ones, records, until

KIB = 256  # float32 elements


def small(memory: int, **options: object) -> list[object]:
    """A host and a device with that many KiB."""
    return ["cpu:0", {"name": "sim:0", "memory": memory * 1024, **options}]


def fill(session: td.Session, count: int) -> list[td.Tensor]:
    """So many values of a KiB each, one after the other."""
    return [session.asarray(ones(KIB, value=n), device="sim:0").wait(WAIT) for n in range(count)]


def eviction(session: td.Session) -> dict[str, Any]:
    """The numbers of values that were evicted from the device, and came back."""
    found: dict[str, Any] = session.stats()["devices"]["sim:0"]["eviction"]
    return found


@pytest.mark.parametrize("policy", ["cost", "lru"])
def test_a_pinned_value_stays_however_much_comes(make_session, policy):
    s = make_session(devices=small(4, eviction=policy))
    x = s.asarray(ones(KIB, value=7.0), device="sim:0")
    assert x.pin() is x
    others = fill(s, 12)
    assert x.residency() == {"sim:0": "valid"}
    x.unpin()
    more = fill(s, 12)
    assert x.residency() == {"cpu:0": "valid"}
    assert x.numpy()[0] == 7
    assert [tensor.numpy()[0] for tensor in (*others, *more)] == 2 * list(range(12))
    assert_sound(s)


def test_a_pinned_copy_that_is_valid_elsewhere_is_not_dropped_either(make_session):
    s = make_session(devices=small(4))
    x = s.asarray(ones(KIB)).to_device("sim:0").wait(WAIT).pin()
    fill(s, 12)
    assert x.residency() == {"cpu:0": "valid", "sim:0": "valid"}
    assert_sound(s)


def test_pins_are_counted(make_session):
    s = make_session(devices=small(4))
    x = s.asarray(ones(KIB), device="sim:0").pin().pin().unpin()
    fill(s, 8)
    assert "sim:0" in x.residency()
    x.unpin().unpin().unpin().pin()  # one unpin too many takes back no later pin
    fill(s, 8)
    assert "sim:0" in x.residency()
    assert_sound(s)


@pytest.mark.parametrize("end", ["the handle", "a use that takes the handle along", "the session"])
def test_a_pin_ends_with(make_session, end):
    keeper, s = (make_session("local:pins end", devices=small(4)) for _ in range(2))
    x = s.asarray(ones(KIB, value=5.0), device="sim:0").pin()
    s.publish("x", x)
    kept = keeper.lookup("x")
    if end == "the session":
        s.close()
    elif end == "the handle":
        x.release()
        s.sync()
    else:
        y = x + 1.0
        del x
        gc.collect()
        y.wait(WAIT)
    assert keeper.asarray(ones(4 * KIB), device="sim:0").numpy()[0] == 1  # all of the memory
    assert kept.residency() == {"cpu:0": "valid"}
    assert kept.numpy()[0] == 5
    assert_sound(keeper)


def test_a_pin_of_another_session_holds(make_session):
    mine, yours = (make_session("local:pins of others", devices=small(4)) for _ in range(2))
    mine.publish("x", x := mine.asarray(ones(KIB), device="sim:0"))
    yours.lookup("x").pin()  # the handle is gone at once, and so is its pin
    pinned = yours.lookup("x").pin()
    yours.sync()
    x.pin().unpin()
    fill(mine, 8)
    assert "sim:0" in pinned.residency()
    assert_sound(mine)


def test_a_pin_moves_along_when_a_write_gives_the_tensor_another_storage(make_session):
    s = make_session(devices=small(6))
    x = s.asarray(ones(KIB), device="sim:0").pin()
    shares = x.copy()
    x += 1.0
    fill(s, 12)
    assert x.residency() == {"sim:0": "valid"}
    assert shares.residency() == {"cpu:0": "valid"}
    assert (x.numpy()[0], shares.numpy()[0]) == (2, 1)
    assert_sound(s)


def test_what_does_not_fit_beside_pins_fails_and_says_how_much_is_pinned(make_session):
    s = make_session(devices=small(4))
    pinned = [s.asarray(ones(KIB, value=n), device="sim:0").pin() for n in range(3)]
    assert s.asarray(ones(KIB), device="sim:0").numpy()[0] == 1
    with pytest.raises(
        td.DeviceMemoryError, match=r"do not fit on sim:0.* in use, 3 KiB \(3072 bytes\) of that pinned"
    ):
        s.asarray(ones(2 * KIB), device="sim:0").wait(WAIT)
    assert eviction(s)["pinned"] == 3 * 1024
    assert [tensor.numpy()[0] for tensor in pinned] == [0, 1, 2]
    pinned[0].unpin()
    assert s.asarray(ones(2 * KIB), device="sim:0").numpy()[0] == 1
    assert_sound(s)


def test_what_floors_keep_is_said_too(make_session):
    mine, yours = (make_session("local:floors told", devices=small(8, floor=2 * 1024)) for _ in range(2))
    kept = fill(mine, 8)
    with pytest.raises(td.DeviceMemoryError, match=r"2 KiB \(2048 bytes\) of that kept for other sessions \(floor\)"):
        yours.asarray(ones(7 * KIB), device="sim:0").wait(WAIT)
    del kept


def test_an_evicted_value_leaves_now_and_comes_back_when_it_is_used(make_session):
    s = make_session(devices=small(8))
    x = s.asarray(ones(KIB, value=3.0), device="sim:0").wait(WAIT)
    assert x.evict() is x
    s.sync(WAIT)
    until(s, lambda: x.residency() == {"cpu:0": "valid"})
    assert x.device == "sim:0"
    until(s, lambda: allocated(s, "sim:0") == 0)
    assert (x + 1.0).numpy()[0] == 4
    assert "sim:0" in x.residency()
    found = eviction(s)
    assert found["evicted"] == found["returned"] == {"count": 1, "bytes": 1024}
    (gone,), (back,) = records(s, "evict sim:0->cpu:0"), records(s, "return cpu:0->sim:0")
    assert gone.id < back.id
    assert "test_hints.py" in gone.location
    assert_sound(s)


def test_an_eviction_has_its_place_in_program_order(make_session):
    s = make_session(devices=small(8))
    x = s.asarray(ones(KIB), device="sim:0").wait(WAIT)
    with held(s, "sim:0", "compute"):
        x += 1.0
        x.evict()
        x += 1.0
        s.flush()
    assert x.numpy()[0] == 3
    assert len(records(s, "evict ")) == len(records(s, "return ")) == 1
    assert s.trace().verify() == []


@pytest.mark.parametrize(
    "why", ["it is pinned", "its home is the host", "nothing leaves the device", "it is not there"]
)
def test_nothing_is_evicted_if(make_session, why):
    never = why == "nothing leaves the device"
    s = make_session(devices=small(8, eviction="never" if never else "cost"))
    x = s.asarray(ones(KIB), device="cpu:0" if why == "its home is the host" else "sim:0")
    if why == "it is pinned":
        x.pin()
    if why == "it is not there":
        x.evict()
    before = x.wait(WAIT).residency()
    x.evict()
    s.sync(WAIT)
    assert x.residency() == before
    assert s.stats()["failed"] == 0


def test_a_prefetched_value_is_there_before_it_is_used(make_session):
    s = make_session(devices=small(8))
    x = s.asarray(ones(KIB))
    assert x.prefetch("sim:0") is x
    s.sync(WAIT)
    assert x.residency() == {"cpu:0": "valid", "sim:0": "valid"}
    assert x.device == "cpu:0"
    y = s.asarray(ones(KIB, value=2.0), device="sim:0").evict().prefetch()
    s.sync(WAIT)
    assert "sim:0" in y.residency()
    moves = len(records(s, "h2d ")) + len(records(s, "return "))
    assert s.call("add", [x, y], device="sim:0")[0].numpy()[0] == 3
    assert len(records(s, "h2d ")) + len(records(s, "return ")) == moves
    assert_sound(s)


def test_a_prefetch_makes_room_but_never_fails_for_want_of_it(make_session):
    s = make_session(devices=small(4))
    kept = fill(s, 4)
    x = s.asarray(ones(KIB, value=9.0)).prefetch("sim:0")
    s.sync(WAIT)
    assert "sim:0" in x.residency()
    large = s.asarray(ones(8 * KIB)).prefetch("sim:0")
    pinned = [tensor.pin().prefetch() for tensor in kept]
    s.sync(WAIT)
    last = s.asarray(ones(KIB)).prefetch("sim:0")
    assert s.sync(WAIT) == 0
    assert s.stats()["failed"] == 0
    assert "sim:0" not in {**large.residency(), **last.residency()}
    assert [tensor.numpy()[0] for tensor in (*pinned, x)] == [0, 1, 2, 3, 9]
    assert_sound(s)


@pytest.mark.parametrize("beside_a_pin", [False, True])
def test_nothing_leaves_for_a_prefetch_that_does_not_fit_in_any_case(make_session, beside_a_pin):
    s = make_session(devices=[*small(8), {"name": "sim:1"}])
    xs = fill(s, 8)
    if beside_a_pin:
        xs[0].pin()
    v = s.asarray(ones(8 * KIB if beside_a_pin else 9 * KIB), device="sim:1").wait(WAIT)
    v.prefetch("sim:0")
    s.sync()
    assert eviction(s)["evicted"]["count"] == 0
    assert v.residency() == {"sim:1": "valid"}


def test_a_prefetch_that_stops_over_leaves_room_for_what_makes_way_for_it(make_session):
    devices = [("cpu:0", 8), ("sim:0", 64), ("sim:1", 8)]
    s = make_session(devices=[{"name": name, "memory": 1024 * kib} | no_peer(name) for name, kib in devices])
    _pinned = s.asarray(ones(KIB)).wait(WAIT).pin()
    v = s.asarray(ones(4 * KIB, value=7.0), device="sim:0").wait(WAIT)
    there = [s.asarray(ones(4 * KIB, value=n), device="sim:1").wait(WAIT) for n in range(2)]
    v.prefetch("sim:1")
    s.sync()
    assert s.stats()["failed"] == 0
    assert [x.numpy()[0] for x in (v, *there)] == [7, 0, 1]
    assert_sound(s)


def no_peer(name: str) -> dict[str, object]:
    """Data go through the host from one of these devices to another."""
    return {"peer": False} if name.startswith("sim") else {}


def test_a_strict_session_may_use_what_it_has_prefetched(make_session):
    s = make_session(devices=small(8), strict=True)
    x = s.asarray(ones(KIB)).prefetch("sim:0")
    assert s.call("add", [x, x], device="sim:0")[0].numpy()[0] == 2


def test_of_a_view_its_own_bytes_are_prefetched(make_session):
    s = make_session(devices=small(8))
    row = s.asarray(np.arange(64 * KIB, dtype=np.float32).reshape(64, KIB))[3].prefetch("sim:0")
    s.sync(WAIT)
    (came,) = records(s, "h2d ")
    assert came.nbytes == 1024
    assert row.numpy()[0] == 3 * KIB


def test_hints_inside_of_a_captured_routine_are_refused_at_their_line(make_session):
    s = make_session(devices=small(8))
    x = s.asarray(ones(KIB))
    for hint in ("pin", "unpin", "evict", "prefetch"):
        for tensor in (lambda y: y, lambda _: x):
            with pytest.raises(td.CaptureError, match=hint) as caught:
                s.routine(lambda y, hint=hint, tensor=tensor: getattr(tensor(y), hint)())(x)
            assert "test_hints.py" in (caught.value.location or "")


def test_hints_between_the_runs_of_a_period_change_nothing(make_session):
    s = make_session(devices=small(4), routines="auto")
    w = [s.asarray(ones(KIB, value=n), device="sim:0") for n in range(3)]
    x = s.asarray(ones(KIB), device="sim:0")
    for n in range(60):
        x = x * 0.5
        x = x + w[0]
        x = x - w[1]
        x = x + 1.0
        if n % 7 == 0:
            w[n % 3].evict()
            w[(n + 1) % 3].prefetch()
    want = 1.0
    for _ in range(60):
        want = want * 0.5 - 1.0 + 1.0
    assert x.numpy()[0] == pytest.approx(want)
    assert_sound(s)


def test_a_cancelled_session_moves_nothing_and_its_unpins_count(make_session):
    s = make_session(devices=small(4))
    x = s.asarray(ones(KIB), device="sim:0").wait(WAIT).pin()
    s.sync()
    s.cancel()
    x.unpin().evict().prefetch("cpu:0")
    s.restart()
    assert x.residency() == {"sim:0": "valid"}
    fill(s, 8)
    assert x.residency() == {"cpu:0": "valid"}


def test_nothing_leaves_a_device_that_is_lost(make_session):
    s = make_session(devices=small(8))
    x = s.asarray(ones(KIB)).prefetch("sim:0")
    s.sync(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.LOST))
    with pytest.raises(td.KernelError):
        s.call("negative", [x], device="sim:0")[0].wait(WAIT)
    x.evict().prefetch("sim:0").pin()
    assert x.numpy()[0] == 1


def test_tensors_that_go_round_are_named(make_session):
    s = make_session(devices=small(4))
    weights = [s.asarray(ones(KIB, value=n), device="sim:0") for n in range(8)]
    s.publish({f"w{n}": weight for n, weight in enumerate(weights)})
    for _ in range(6):
        for n, weight in enumerate(weights):
            assert weight.sum().item() == KIB * n
    found = eviction(s)
    assert found["returned"]["count"] > 10
    assert found["evicted"]["count"] + found["dropped"]["count"] > 10
    rows = s._core.answers.query("returns", 3)
    assert len(rows) == 3
    assert [row["returns"] for row in rows] == sorted((row["returns"] for row in rows), reverse=True)
    assert {row["device"] for row in rows} == {"sim:0"}
    assert all(row["returns"] >= 3 and "test_hints.py" in row["location"] for row in rows)
    assert all(len(row["names"]) == 1 and row["names"][0].startswith("w") for row in rows)


def test_a_program_that_fits_has_nothing_that_goes_round(make_session):
    s = make_session(devices=small(16))
    weights = fill(s, 8)
    for _ in range(6):
        for weight in weights:
            weight.sum().wait(WAIT)
    assert s._core.answers.query("returns") == []
    assert eviction(s)["returned"]["count"] == eviction(s)["dropped"]["count"] == 0


def test_a_sync_waits_for_what_was_prefetched(make_session):
    s = make_session(devices=["cpu:0", "sim:0"])
    tensors = [s.asarray(ones(KIB, value=n)) for n in range(300)]
    for tensor in tensors:
        tensor.prefetch("sim:0")
    s.sync()
    assert all(tensor.residency()["sim:0"] == "valid" for tensor in tensors)
    assert len(machine_of(s).engine.directory.sessions[s._core.transport._session.id].moving) <= 300
