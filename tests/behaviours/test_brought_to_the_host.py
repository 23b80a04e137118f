"""Results that are moved near the host ahead of a fetch: which results move, when, and that the fetch moves nothing."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import tensord as td
from tensord.streams.faults import Fault, FaultKind

from .looking_inside import (
    WAIT,
    assert_sound,
    copies_of,
    device_of,
    machine_of,
    moved,
    moved_since,
    ones,
    records,
    until,
)

BOTH = {"cpu:0": "valid", "sim:0": "valid"}
ALONE = {"sim:0": "valid"}


@pytest.fixture
def s(make_session):
    return make_session(devices=["cpu:0", "sim:0"])


@pytest.fixture
def x(s):
    return s.asarray(ones(100), device="sim:0").wait(WAIT)


def where(s, *tensors):
    """The current copies once all issued instructions are done. Transfers belong to no session, so no session's wait
    covers them.
    """
    s.sync(WAIT)
    until(s, lambda: not machine_of(s).engine.live)
    return [tensor.residency() for tensor in tensors]


def test_a_result_comes_while_a_later_one_is_computed(s, x):
    device_of(s, "sim:0").inject(Fault(FaultKind.HANG, label="multiply"))
    with s.host_results():
        y = x + 1.0
        z = y * 2.0
        s.flush()
        s.flush()
        until(s, lambda: "cpu:0" in copies_of(s, y) and copies_of(s, y)["cpu:0"].writer is None)
        assert not z.is_ready()
        before = moved(s)
        assert y.numpy()[0] == 2
        assert moved_since(s, before) == {}
        device_of(s, "sim:0").release_hangs()
    assert z.numpy()[0] == 4
    copy, multiply = records(s, "d2h")[0], records(s, "multiply")[0]
    assert copy.started < copy.finished < multiply.finished
    assert_sound(s)


def test_a_fetch_moves_nothing_then_and_the_results_stay_on_their_device(s, x):
    with s.host_results():
        y = x + 1.0
        z = y * 2.0
    assert where(s, y, z) == [BOTH, BOTH]
    before = moved(s)
    assert [found[0] for found in s.fetch([y, z])] == [2, 4]
    assert (y + z).numpy()[0] == 6
    assert moved_since(s, before) == {"sim:0 d2h": (1, 400)}  # the sum
    assert_sound(s)


def test_temporaries_do_not_move(s, x):
    with s.host_results():
        y = (x + 1.0) * 2.0 - (x * 3.0)
        z = y
        for _ in range(700):  # several batches
            z = z + 1.0
    assert where(s, y, z) == [BOTH, BOTH]
    assert moved(s)["sim:0 d2h"][0] <= 2 + 2  # the newest ones of a batch may have had a handle
    assert z.numpy()[0] == y.numpy()[0] + 700
    assert_sound(s)


def test_what_is_left_stays_and_so_does_what_is_outside(s, x):
    before = x + 1.0
    with s.host_results() as results:
        h = results.leave(x * 2.0)
        y = h + 1.0
        assert results.leave(before) is before
        late = y * 2.0
        s.flush()  # with the others, in the batch before that of their hints
        results.leave(late)
    after = x + 3.0
    with s.host_results():
        again = x + 4.0
    assert where(s, before, h, y, late, after, again) == [ALONE, ALONE, BOTH, ALONE, ALONE, BOTH]
    assert_sound(s)


def test_only_new_results_of_ops_come(s, x):
    s.publish("x", x)
    with s.host_results():
        x += 1.0
        upload = s.asarray(ones(100), device="sim:0")
        partial = s.asarray(ones(90), device="sim:0", padded_to=(100,))
        found = s.lookup("x")
        moved_there = s.asarray(ones(100)).to_device("sim:0")
        q, r = s.call("qr", [upload.reshape((10, 10))])
    assert where(s, x, upload, partial, found) == [ALONE] * 4
    assert where(s, moved_there, q, r) == [BOTH, BOTH, BOTH]
    assert_sound(s)


def test_blocks_may_be_nested_and_open_in_several_threads(s, x):
    made = []
    with s.host_results():
        with s.host_results():
            made.append(x + 1.0)
        made.append(x + 2.0)
        thread = threading.Thread(target=lambda: made.append(x + 3.0))
        thread.start()
        thread.join()
    assert where(s, *made) == [BOTH] * 3
    block = s.host_results()
    with block, pytest.raises(td.ProtocolError, match="open already: make another one"):
        block.__enter__()
    with block:
        made = [x + 1.0]
    assert where(s, *made) == [BOTH]


def test_a_block_that_raises_has_brought_what_was_issued(s, x):
    class BrokenError(Exception):
        pass

    made = []

    def program():
        with s.host_results():
            made.append(x + 1.0)
            raise BrokenError

    with pytest.raises(BrokenError):
        program()
    later = x + 1.0
    assert where(s, *made, later) == [BOTH, ALONE]


def test_groups_inside_of_a_block_and_around_one(s, x):
    with s.host_results():
        with s.atomic():
            y = x + 1.0
            temporary = x * 2.0
            del temporary
        z = y * 2.0
    assert where(s, y, z) == [BOTH, BOTH]
    assert moved(s)["sim:0 d2h"][0] == 2
    with s.atomic():
        with s.host_results():
            y = x + 1.0
        z = x + 2.0
    s.flush()
    s.flush()
    assert where(s, y, z) == [BOTH, ALONE]
    assert_sound(s)


def test_the_results_of_a_routines_run_come_and_not_what_is_inside(s, x):
    @s.routine
    def step(x):
        h = x * 2.0
        return h + 1.0, h.sum()

    for _ in range(3):
        before = moved(s)
        with s.host_results():
            y, total = step(x)
        assert where(s, y, total) == [BOTH, BOTH]
        assert moved_since(s, before) == {"sim:0 d2h": (2, 404)}
    assert total.item() == 200
    assert_sound(s)


def test_the_runs_of_a_period_bring_what_has_a_handle(make_session):
    s = make_session(devices=["cpu:0", "sim:0"], routines="auto")
    x = s.asarray(ones(100), device="sim:0").wait(WAIT)
    kept = []
    with s.host_results():
        for n in range(200):
            h = x * 2.0
            for _ in range(8):
                h = h + 1.0
            kept.append(h - float(n))
            del h
            if n % 10 == 9:
                s.flush()
    assert where(s, *kept) == [BOTH] * 200
    assert s.stats()["periods"]["runs"] > 5
    assert moved(s)["sim:0 d2h"][0] < 220
    assert [each.numpy()[0] for each in kept] == [10.0 - n for n in range(200)]
    assert s.stats()["recent_errors"] == []
    assert_sound(s)


def test_failed_results_and_those_of_unknown_size_are_no_trouble(s, x):
    numbers, beyond = (s.asarray(np.array(values), device="sim:0") for values in ([2, 3], [1, 2]))
    with s.host_results():
        failed = s.xp.take(numbers, beyond)
        behind = failed + 1
        pending = s.xp.unique_values(x)
        fine = x + 1.0
    assert where(s, fine) == [BOTH]
    assert pending.numpy().tolist() == [1]
    with pytest.raises(td.KernelError):
        behind.numpy()
    assert s.stats()["failed"] == 1


def test_a_strict_session_may_bring_results(make_session):
    s = make_session(devices=["cpu:0", "sim:0"], strict=True)
    x = s.asarray(ones(100), device="sim:0")
    with s.host_results():
        y = x + 1.0
    assert where(s, y) == [BOTH]


def test_the_end_of_the_session_inside_of_a_block_is_no_trouble(s, x):
    with s.host_results() as results:
        y = x + 1.0
        s.close()
    assert results.leave(y) is y
    with s.host_results(), pytest.raises(td.ConnectionLost):
        x + 1.0


def test_a_single_result_is_prefetched_to_the_host(s, x):
    y = x + 1.0
    assert y.prefetch("host") is y
    assert where(s, y, x) == [BOTH, ALONE]
    before = moved(s)
    assert y.numpy()[0] == 2
    assert moved_since(s, before) == {}


def test_where_there_is_no_cpu_device_there_is_no_host(make_session):
    s = make_session(devices=["sim:0", "sim:1"])
    x = s.asarray([1.0])
    for use in (lambda: x.prefetch("host"), s.host_results):
        with pytest.raises(td.MetadataError, match="no cpu device to bring values to; devices: sim:0, sim:1") as caught:
            use()
        assert "test_brought_to_the_host.py" in str(caught.value.location)


def test_what_is_on_another_cpu_device_is_near_the_host_already(make_session):
    s = make_session(devices=["cpu:0", "cpu:1", "sim:0"])
    with s.host_results():
        x = s.call("full", [1.0], {"shape": (100,)}, device="cpu:1")[0]
        y = s.call("add", [x, 1.0], device="sim:0")[0]
    x.prefetch("host")
    assert where(s, x) == [{"cpu:1": "valid", "sim:0": "valid"}]
    assert where(s, y) == [BOTH]
    assert y.numpy()[0] == 2


def test_where_all_memory_is_the_hosts_nothing_is_said(make_session):
    s = make_session(devices=["cpu:0", "cpu:1"])
    x = s.asarray(ones(100), "cpu:1")
    with s.host_results() as results:
        y = results.leave(x + 1.0)
        s.flush()
        assert s._core.outbox.host_results is None
    assert where(s, y) == [{"cpu:1": "valid"}]


def test_while_a_routine_is_captured_there_is_no_block(s, x):
    @s.routine
    def inside(x):
        with s.host_results():
            return x + 1.0

    with pytest.raises(td.CaptureError, match="host_results cannot be opened while a routine is captured") as caught:
        inside(x)
    assert "test_brought_to_the_host.py" in str(caught.value.location)
