"""Values that do not fit on a device are evicted to the host, and come back when an instruction needs them."""

from __future__ import annotations

import numpy as np
import pytest

import tensord as td
from tensord.streams.faults import Fault, FaultKind
from tensord.vm.placement.late_room import REPLANS

from .looking_inside import WAIT, allocated, assert_sound, device_of, held, machine_of, ones, records, until

KIB = 256  # float32 elements


def small(memory: int, **options: object) -> list[object]:
    """A host and a device with that many KiB."""
    return ["cpu:0", {"name": "sim:0", "memory": memory * 1024, **options}]


def moved(session: td.Session, *kinds: str) -> int:
    """How many transfers of these kinds have ended well."""
    return sum(record.status == "DONE" for kind in kinds for record in records(session, f"{kind} "))


@pytest.mark.parametrize("eviction", ["cost", "lru"])
def test_results_of_four_times_the_memory_are_computed_and_read(make_session, eviction):
    s = make_session(devices=small(8, eviction=eviction))
    xs = [s.asarray(ones(KIB, value=n), device="sim:0") for n in range(32)]
    doubled = [x * 2.0 for x in xs]
    for x, y in zip(xs, doubled, strict=True):
        s.call("add", [y, x], out=[y])
    for n, (x, y) in enumerate(zip(xs, doubled, strict=True)):
        np.testing.assert_array_equal(y.numpy(), ones(KIB, value=3.0 * n))
        np.testing.assert_array_equal(x.numpy(), ones(KIB, value=n))
    assert s.stats()["failed"] == 0
    assert moved(s, "evict") > 24
    assert s.trace().verify() == []
    assert_sound(s)


def test_a_transfer_is_in_the_graph_and_waits_for_the_readers_of_what_leaves(make_session):
    """Every move is an instruction, with edges."""
    s = make_session(devices=small(4))
    x = s.asarray(ones(KIB), device="sim:0").wait(WAIT)
    with held(s, "sim:0", "compute"):
        x += 2.0  # x is being written when it is chosen
        others = [s.asarray(ones(KIB, value=n), device="sim:0") for n in range(4)]
        s.flush()
    assert [other.numpy()[0] for other in others] == [0, 1, 2, 3]
    assert x.numpy()[0] == 3
    added = records(s, "add")[0].id
    assert any(edge.source == added for record in records(s, "evict ") for edge in record.edges)
    assert s.trace().verify() == []
    assert_sound(s)


def test_what_is_valid_elsewhere_leaves_without_moving(make_session):
    s = make_session(devices=small(4))
    weights = [s.asarray(ones(KIB, value=n)) for n in range(8)]
    totals = [s.call("sum", [weight], device="sim:0")[0] for _ in range(3) for weight in weights]
    assert [total.item() for total in totals] == [KIB * n for _ in range(3) for n in range(8)]
    assert moved(s, "evict") == 0
    assert_sound(s)


def test_of_a_loop_over_more_than_fits_a_part_stays(make_session):
    """LRU brings in every value in each round; by cost, the value used last is evicted, since its next use is the
    latest.
    """
    rounds, layers = 6, 12
    came = {}
    for eviction in ("cost", "lru"):
        s = make_session(devices=small(8, eviction=eviction))
        weights = [s.asarray(ones(KIB, value=n)) for n in range(layers)]
        for _ in range(rounds):
            for weight in weights:
                s.call("sum", [weight], device="sim:0")[0].wait(WAIT)
        came[eviction] = moved(s, "h2d", "return")
    assert came["lru"] == rounds * layers
    assert came["cost"] < came["lru"] * 3 / 4


def test_a_program_that_fits_moves_nothing(make_session):
    s = make_session(devices=small(8))
    x = s.asarray(ones(KIB), device="sim:0")
    for _ in range(100):
        x = x * 0.5 + 1.0
    assert x.numpy()[0] == pytest.approx(2.0)
    assert not records(s, "evict ")
    assert not records(s, "h2d ")


def test_nothing_leaves_where_that_is_asked_for(make_session):
    s = make_session(devices=small(2, eviction="never"))
    kept = [s.asarray(ones(KIB), device="sim:0").wait(WAIT) for _ in range(2)]
    with pytest.raises(td.DeviceMemoryError, match="do not fit on sim:0"):
        (kept[0] + 1.0).wait(WAIT)
    assert not records(s, "evict ")


def test_a_strict_session_sees_its_tensors_where_it_has_put_them(make_session):
    """The machine has moved the value, not the session: so the machine may bring it back."""
    s = make_session(devices=small(4), strict=True)
    x = s.asarray(ones(KIB, value=5.0), device="sim:0")
    others = [s.asarray(ones(KIB), device="sim:0") for _ in range(6)]
    s.sync(WAIT)
    assert x.residency() == {"cpu:0": "valid"}
    assert x.device == "sim:0"
    assert (x + 1.0).numpy()[0] == 6
    assert all(other.device == "sim:0" for other in others)


@pytest.mark.parametrize("eviction", ["cost", "lru"])
def test_a_part_of_what_has_left_comes_back_alone(make_session, eviction):
    s = make_session(devices=small(4, eviction=eviction))
    x = s.asarray(np.arange(2 * KIB, dtype=np.float32).reshape(2, KIB), device="sim:0")
    others = [s.asarray(ones(KIB), device="sim:0") for _ in range(4)]
    s.sync(WAIT)
    assert "sim:0" not in x.residency()
    assert x[1].sum().item() == np.arange(KIB, 2 * KIB).sum()
    (came,) = records(s, "return ")
    assert came.nbytes == 1024
    del others


def test_writing_a_part_of_what_has_left_brings_it_back(make_session):
    s = make_session(devices=small(4))
    x = s.asarray(np.zeros(2 * KIB, np.float32), device="sim:0")
    others = [s.asarray(ones(KIB), device="sim:0") for _ in range(4)]
    s.sync(WAIT)
    x[1] = 7.0
    assert x.numpy()[:3].tolist() == [0, 7, 0]
    assert [other.numpy()[0] for other in others] == [1.0] * 4
    assert_sound(s)


def test_overwriting_all_of_what_has_left_moves_nothing(make_session):
    s = make_session(devices=small(4))
    x = s.asarray(ones(KIB), device="sim:0")
    others = [s.asarray(ones(KIB), device="sim:0") for _ in range(4)]
    s.sync(WAIT)
    assert "sim:0" not in x.residency()
    s.call("multiply", [others[0], 3.0], out=[x])
    assert x.numpy()[0] == 3
    assert x.residency()["sim:0"] == "valid"
    assert not records(s, "return ")


def test_where_an_eviction_fails_the_value_stays(make_session):
    """The instruction that needs the room evicts another value, or fails; the value is not lost."""
    s = make_session(devices=small(4))
    kept = [s.asarray(ones(KIB, value=n), device="sim:0").wait(WAIT) for n in range(4)]
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, stream="d2h"))
    more = s.asarray(ones(KIB, value=9.0), device="sim:0").wait(WAIT)
    assert moved(s, "replan") == 1
    assert [tensor.numpy()[0] for tensor in (*kept, more)] == [0, 1, 2, 3, 9]
    assert_sound(s)


def test_where_no_eviction_succeeds_the_instruction_fails_alone(make_session):
    s = make_session(devices=small(4))
    kept = [s.asarray(ones(KIB, value=n), device="sim:0").wait(WAIT) for n in range(4)]
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, stream="d2h", count=1 + REPLANS))
    with pytest.raises(td.DeviceMemoryError, match="do not fit on sim:0"):
        s.asarray(ones(KIB), device="sim:0").wait(WAIT)
    assert [tensor.numpy()[0] for tensor in kept] == [0, 1, 2, 3]
    assert_sound(s)


def test_an_eviction_that_fails_is_no_failure_of_the_session_that_needs_the_room(make_session):
    """The failure is the machine's: it is in the list of errors and in the trace, and no session's sync counts it."""
    mine, other = (make_session("local:whose failure", devices=small(4)) for _ in range(2))
    kept = [other.asarray(ones(KIB, value=n), device="sim:0").wait(WAIT) for n in range(4)]
    device_of(mine, "sim:0").inject(Fault(FaultKind.FAIL, stream="d2h"))
    more = mine.asarray(ones(KIB, value=9.0), device="sim:0").wait(WAIT)
    assert [s.sync(WAIT) for s in (mine, other)] == [0, 0]
    (failed,) = [record for record in records(mine, "evict ") if record.status == "FAILED"]
    (text,) = mine.stats()["recent_errors"]
    assert failed.op in text
    assert list(machine_of(mine).failures.entries) == [0]
    assert [tensor.numpy()[0] for tensor in (*kept, more)] == [0, 1, 2, 3, 9]
    assert_sound(mine)


def test_where_all_evictions_fail_the_session_has_the_failure_of_its_own_op_alone(make_session):
    mine, other = (make_session("local:no room", devices=small(4)) for _ in range(2))
    kept = [other.asarray(ones(KIB, value=n), device="sim:0").wait(WAIT) for n in range(4)]
    device_of(mine, "sim:0").inject(Fault(FaultKind.FAIL, stream="d2h", count=1 + REPLANS))
    more = mine.asarray(ones(KIB), device="sim:0")
    assert [s.sync(WAIT) for s in (mine, other)] == [1, 0]
    with pytest.raises(td.DeviceMemoryError):
        more.numpy()
    assert [tensor.numpy()[0] for tensor in kept] == [0, 1, 2, 3]
    assert mine.sync(WAIT) == other.sync(WAIT) == 0


@pytest.mark.parametrize("reader", ["mine", "other", "both"])
def test_an_eviction_that_fails_is_a_failure_of_the_session_whose_op_read_what_left(make_session, reader):
    mine, other = (make_session(f"local:read by {reader}", devices=small(4)) for _ in range(2))
    kept = [other.asarray(ones(KIB, value=n), device="sim:0").wait(WAIT) for n in range(4)]
    other.publish("kept", kept[0])
    found = {"mine": mine.lookup("kept"), "other": kept[0]}
    device_of(mine, "sim:0").inject(Fault(FaultKind.FAIL, stream="d2h"))
    readers = [name for name in found if reader in (name, "both")]
    with held(mine, "sim:0", "d2h"):
        more = mine.asarray(ones(KIB, value=9.0), device="sim:0")
        mine.flush()
        read = [found[name]._core.as_session().call("add", [found[name], 1.0], device="cpu:0")[0] for name in readers]
        for s in (mine, other):
            s.flush()
    assert more.wait(WAIT).numpy()[0] == 9
    for one in read:
        with pytest.raises(td.KernelError, match="evict "):
            one.numpy()
    told = "mine" if "mine" in readers else "other"
    assert [s.sync(WAIT) for s in (mine, other)] == [told == "mine", told == "other"]
    assert found["mine"].numpy()[0] == 0


def test_a_transfer_back_that_fails_is_a_failure_of_the_session_that_needs_the_value(make_session):
    s = make_session(devices=small(4))
    x = s.asarray(ones(KIB), device="sim:0").evict()
    s.sync(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, stream="h2d"))
    y = x + 1.0
    assert s.sync(WAIT) == 1
    with pytest.raises(td.KernelError, match="return "):
        y.numpy()
    assert s.sync(WAIT) == 0


def test_a_result_whose_size_data_decide_finds_room(make_session):
    """The upper bound of its size is planned, also where the next instruction is admitted before the size is known."""
    s = make_session(devices=small(6, inline=False))
    x = s.asarray(np.arange(KIB, dtype=np.float32), device="sim:0")
    blocker = s.asarray(ones(4 * KIB), device="sim:0")
    found = s.call("nonzero", [x])[0]  # 255 int64
    again = blocker[:KIB] * 2.0
    np.testing.assert_array_equal(found.numpy().ravel(), np.arange(1, KIB))
    np.testing.assert_array_equal(again.numpy(), ones(KIB, value=2.0))
    np.testing.assert_array_equal(blocker.numpy(), ones(4 * KIB))
    assert moved(s, "evict") == 1
    assert s.trace().verify() == []
    assert_sound(s)


def test_a_session_evicts_its_own_values_first(make_session):
    mine, yours = (make_session("local:own first", devices=small(8)) for _ in range(2))
    kept = [mine.asarray(ones(KIB, value=n), device="sim:0").wait(WAIT) for n in range(4)]
    many = [yours.asarray(ones(KIB, value=n), device="sim:0").wait(WAIT) for n in range(12)]
    assert [tensor.residency() for tensor in kept] == [{"sim:0": "valid"}] * 4
    assert [tensor.numpy()[0] for tensor in many] == list(range(12))


def test_a_session_that_has_nothing_takes_from_others_down_to_their_floor(make_session):
    devices = small(8, floor=2 * 1024)
    mine, yours = (make_session("local:floor", devices=devices) for _ in range(2))
    kept = [mine.asarray(ones(KIB, value=n), device="sim:0").wait(WAIT) for n in range(8)]
    large = yours.asarray(ones(6 * KIB), device="sim:0").wait(WAIT)
    assert sum("sim:0" in tensor.residency() for tensor in kept) == 2
    with pytest.raises(td.DeviceMemoryError, match="do not fit on sim:0"):
        yours.asarray(ones(7 * KIB), device="sim:0").wait(WAIT)
    assert [tensor.numpy()[0] for tensor in kept] == list(range(8))
    assert large.numpy()[0] == 1


def test_a_full_host_takes_nothing_more(make_session):
    """A value that the tier below cannot hold stays, and the instruction that needs the room fails."""
    s = make_session(devices=[{"name": "cpu:0", "memory": 3 * 1024}, {"name": "sim:0", "memory": 4 * 1024}])
    kept = [s.asarray(ones(KIB, value=n), device="sim:0") for n in range(7)]
    s.sync(WAIT)
    assert s.stats()["failed"] == 0
    with pytest.raises(td.DeviceMemoryError, match="do not fit on sim:0"):
        s.asarray(ones(KIB), device="sim:0").wait(WAIT)
    assert [tensor.numpy()[0] for tensor in kept] == list(range(7))
    assert_sound(s)


def test_what_is_released_while_it_leaves_is_gone_everywhere(make_session):
    s = make_session(devices=small(4))
    kept = [s.asarray(ones(KIB), device="sim:0").wait(WAIT) for _ in range(4)]
    with held(s, "sim:0", "d2h"):
        more = [s.asarray(ones(KIB), device="sim:0") for _ in range(2)]
        s.flush()
        for tensor in kept:
            tensor.release()
        s.flush()
    assert [tensor.numpy()[0] for tensor in more] == [1, 1]
    until(s, lambda: allocated(s, "sim:0") <= 2 * 1024)
    del more
    until(s, lambda: allocated(s, "sim:0") + allocated(s, "cpu:0") == 0)
    assert_sound(s)


def test_an_instruction_hears_of_a_replica_that_is_dropped_for_it(make_session):
    """Where no end of a transfer would signal it: the copy of a view that was on standby is dropped as useless."""
    host = {"name": "cpu:0", "memory": 27 * 1024}
    s = make_session(devices=[host, {"name": "sim:0", "memory": 8 * 1024, "inline": False}, "sim:1"])
    w = s.asarray(ones(2, 4 * KIB), device="cpu:0").wait(WAIT)
    s.call("sum", [w[0]], device="sim:0")[0].wait(WAIT)  # a copy of the view alone
    x = s.asarray(np.arange(KIB, dtype=np.float32), device="sim:0").wait(WAIT)
    large = s.asarray(ones(16 * KIB), device="cpu:0").wait(WAIT)
    more = [s.asarray(ones(2 * KIB), device="cpu:0").wait(WAIT)]
    with held(s, "sim:1", "h2d"):
        total = s.call("sum", [w], device="sim:1")[0]
        more.append(s.asarray(ones(2 * KIB), device="cpu:0"))
        s.flush()
        large.release()
        with held(s, "sim:0", "compute"):
            found = s.call("nonzero", [x])[0]
            needy = s.asarray(ones(2 * KIB), device="sim:0")
            s.flush()
        assert needy.wait(WAIT).shape == (2 * KIB,)
    assert total.item() == 8 * KIB
    assert found.shape == (1, KIB - 1)


def test_what_has_left_and_come_back_and_left_again_is_still_the_sessions(make_session):
    s = make_session(devices=small(4), strict=True)
    x = s.asarray(ones(KIB, value=5.0), device="sim:0")
    for _ in range(3):
        others = [s.asarray(ones(KIB), device="sim:0") for _ in range(6)]
        s.sync(WAIT)
        assert "sim:0" not in x.residency()
        del others
        assert (x + 1.0).numpy()[0] == 6


def test_many_small_values_make_room_for_a_large_one(make_session):
    """The transfers queue behind each other, and one of them is slow."""
    s = make_session(devices=small(16, latency=1e-4))
    many = [s.asarray(ones(KIB // 4, value=n), device="sim:0").wait(WAIT) for n in range(64)]
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, stream="d2h"))  # so that the plan does not hold
    large = s.asarray(ones(6 * KIB, value=7.0), device="sim:0")
    assert large.wait(WAIT).numpy()[0] == 7
    assert [tensor.numpy()[0] for tensor in many] == list(range(64))
    assert_sound(s)


@pytest.mark.parametrize("eviction", ["cost", "lru"])
def test_what_was_brought_leaves_its_place_to_what_makes_room_for_it(make_session, eviction):
    """Two full tiers: the host's copy may go as soon as the device has its own."""
    s = make_session(devices=[{"name": "cpu:0", "memory": 4 * 1024}, *small(4, eviction=eviction)[1:]])
    a, *_rest = [s.asarray(ones(KIB, value=n), device="cpu:0").wait(WAIT) for n in (1, 2, 3)]
    kept = [s.asarray(ones(KIB, value=n), device="sim:0").wait(WAIT) for n in range(4)]
    assert s.call("add", [a, 1.0], device="sim:0")[0].wait(WAIT).numpy()[0] == 2
    assert s.stats()["failed"] == 0
    assert len(kept) == 4


def test_overwriting_a_value_is_a_use_of_it(make_session):
    s = make_session(devices=small(4, eviction="lru"))
    early = [s.asarray(ones(KIB), device="sim:0") for _ in range(6)]
    s.sync(WAIT)
    del early
    x, unused, y = (s.asarray(ones(KIB), device="sim:0").wait(WAIT) for _ in range(3))
    for _ in range(5):
        s.call("negative", [y], out=[x])
    s.asarray(ones(2 * KIB), device="sim:0").wait(WAIT)
    assert "sim:0" in x.residency()
    assert "sim:0" not in unused.residency()
