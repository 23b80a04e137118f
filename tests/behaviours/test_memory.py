"""Device memory: reserved at dispatch, reused at once, never lost, sufficient for every program that fits serially."""

from __future__ import annotations

import numpy as np
import pytest

import tensord as td
from tensord.streams.faults import FOREVER, Fault, FaultKind

from .looking_inside import (
    WAIT,
    address,
    allocated,
    assert_sound,
    device_of,
    held,
    machine_of,
    moves,
    ones,
    records,
    transfers,
    until,
)

KIB = 256  # float32 elements


def small(memory: int, **options: object) -> list[object]:
    """A host and a device with that many KiB."""
    return ["cpu:0", {"name": "sim:0", "memory": memory * 1024, **options}]


# -- exactly full ------------------------------------------------------------------------------------------------------


def test_memory_exactly_full_then_one_more_fails_and_after_a_release_fits(make_session):
    """Behaviour 30: device memory exactly full: the next allocation fails, with its dependents alone; then it fits."""
    s = make_session(devices=small(4, eviction="never"))
    kept = [s.asarray(ones(KIB, value=k), device="sim:0") for k in range(4)]
    s.sync(WAIT)
    assert allocated(s, "sim:0") == 4096
    assert s.stats()["failed"] == 0
    extra = kept[0] + 1.0
    dependent = extra * 2.0
    s.call("add", [kept[1], 1.0], out=[kept[1]])  # in place needs nothing
    with pytest.raises(
        td.DeviceMemoryError, match=r"add: 1 KiB \(1024 bytes\) do not fit on sim:0, where 4 KiB"
    ) as caught:
        dependent.numpy()
    assert caught.value.op == "add"
    assert "test_memory_exactly_full" in (caught.value.location or "")
    assert isinstance(extra.error, td.DeviceMemoryError)
    np.testing.assert_array_equal(kept[1].numpy(), ones(KIB, value=2.0))
    np.testing.assert_array_equal(kept[3].numpy(), ones(KIB, value=3.0))
    assert s.stats()["failed"] == 1
    assert [r.status for r in records(s, "add") + records(s, "multiply")] == ["FAILED", "DONE", "SKIPPED"]
    assert allocated(s, "sim:0") == 4096
    kept.pop().release()
    again = kept[0] + 1.0
    np.testing.assert_array_equal(again.numpy(), ones(KIB))
    assert allocated(s, "sim:0") == 4096
    assert_sound(s)


def test_an_upload_that_does_not_fit_fails_alone(make_session):
    """Behaviour 30: the same for an upload; an upload that is larger than the device fails at once."""
    s = make_session(devices=small(4))
    big = s.asarray(ones(5 * KIB), device="sim:0")
    fits = s.asarray(ones(4 * KIB, value=3.0), device="sim:0")
    with pytest.raises(td.DeviceMemoryError, match=r"5 KiB \(5120 bytes\) do not fit"):
        big.wait(WAIT)
    np.testing.assert_array_equal(fits.numpy(), ones(4 * KIB, value=3.0))
    assert allocated(s, "sim:0") == 4096
    assert s.stats()["session"]["errors"] == 1
    assert_sound(s)


def test_a_result_that_data_decide_and_that_does_not_fit(make_session):
    """Behaviour 30: the same for a result whose size is known only when it is computed."""
    s = make_session(devices=small(6, eviction="never"))
    x = s.asarray(np.arange(KIB, dtype=np.float32), device="sim:0")
    blocker = s.asarray(ones(4 * KIB), device="sim:0")
    found = s.call("nonzero", [x])[0]  # 255 int64
    with pytest.raises(td.DeviceMemoryError, match=r"1.99 KiB \(2040 bytes\) does not fit"):
        found.numpy()
    assert allocated(s, "sim:0") == 5 * 1024
    blocker.release()
    again = s.call("nonzero", [x])[0]
    np.testing.assert_array_equal(again.numpy().ravel(), np.arange(1, KIB))
    assert allocated(s, "sim:0") == 1024 + 2040
    assert_sound(s)


def test_injected_allocation_failures_poison_only_their_dependents(make_session):
    """Behaviour 30: an allocation that fails although there is room is tried again, and fails no other instruction."""
    s = make_session(devices=small(64))
    x = s.asarray(ones(KIB), device="sim:0").wait(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.ALLOCATION))
    first = x + 1.0
    second = x + 2.0
    errors = [tensor.error for tensor in (first.wait(WAIT) if first.error is None else first, second.wait(WAIT))]
    assert errors[1] is None
    np.testing.assert_array_equal(second.numpy(), ones(KIB, value=3.0))
    device_of(s, "sim:0").inject(Fault(FaultKind.ALLOCATION, count=FOREVER))
    third = x + 3.0
    with pytest.raises(td.DeviceMemoryError):
        third.wait(WAIT)
    np.testing.assert_array_equal(x.numpy(), ones(KIB))
    del first, second, third
    assert allocated(s, "sim:0") == 1024
    assert_sound(s)


# -- forwarding --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("inline", [True, False])
@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
def test_an_input_that_dies_with_the_instruction_gives_its_memory(make_session, device, inline):
    """Behaviour 31: an input released with this very instruction, of the same size, without sharers: same address."""
    s = make_session(devices=["cpu:0", {"name": "sim:0", "inline": inline}])
    x = s.asarray(ones(KIB), device=device)
    first = x + 1.0
    first.wait(WAIT)
    before = address(s, first, device)
    second = s.call("exp", [first])[0]
    del first
    second.wait(WAIT)
    assert address(s, second, device) == before
    assert allocated(s, device) == 2048
    np.testing.assert_allclose(second.numpy(), np.exp(ones(KIB, value=2.0)))
    assert_sound(s)


def test_a_dying_input_of_a_queued_chain_gives_its_memory(make_session):
    """Behaviour 31: the same when the chain is handed to a worker as one batch."""
    s = make_session(devices=small(3))
    x = s.asarray(ones(KIB), device="sim:0").wait(WAIT)
    with held(s, "sim:0", "compute"):
        y = x + 1.0
        for _ in range(5):
            y = y * 2.0
        s.flush()
        assert allocated(s, "sim:0") == 2048
        assert [r.status for r in records(s, "multiply")] == ["DISPATCHED"] * 5
    np.testing.assert_array_equal(y.numpy(), ones(KIB, value=64.0))
    assert_sound(s)


@pytest.mark.parametrize("who", ["handle", "view", "name"])
@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
def test_an_input_that_somebody_else_holds_keeps_its_memory(make_session, device, who):
    """Behaviour 31: with another handle alive the output does not take the input's memory."""
    s = make_session(devices=["cpu:0", "sim:0"])
    x = s.asarray(ones(KIB), device=device)
    first = x + 1.0
    first.wait(WAIT)
    before = address(s, first, device)
    if who == "name":
        s.publish("kept", first)
    other = first if who == "handle" else first[:10] if who == "view" else None
    second = s.call("exp", [first])[0]
    del first
    second.wait(WAIT)
    assert address(s, second, device) != before
    kept = s.lookup("kept") if who == "name" else other
    assert kept is not None
    np.testing.assert_array_equal(kept.numpy(), ones(10 if who == "view" else KIB, value=2.0))
    np.testing.assert_allclose(second.numpy(), np.exp(ones(KIB, value=2.0)))
    if who == "name":
        s.unpublish("kept")
    assert_sound(s)


@pytest.mark.parametrize("op", [("matmul", (16, 16)), ("sum", (16, 16)), ("astype", (16, 16))])
def test_only_an_elementwise_op_of_the_same_size_takes_memory_over(sim_session, op):
    """Behaviour 31: an op that reads its inputs again after it began to write gets memory of its own."""
    s = sim_session
    name, shape = op
    first = s.asarray(ones(*shape), device="sim:0") + 1.0
    first.wait(WAIT)
    before = address(s, first, "sim:0")
    inputs, attributes = ([first, first], None) if name == "matmul" else ([first], {"dtype": "float64"})
    second = s.call(name, inputs, attributes if name == "astype" else None)[0]
    del first, inputs
    second.wait(WAIT)
    assert address(s, second, "sim:0") != before
    expected = {"matmul": ones(16, 16, value=64.0), "sum": 512.0, "astype": np.full(shape, 2.0)}[name]
    np.testing.assert_array_equal(second.numpy(), expected)
    assert_sound(s)


def test_a_reader_on_another_stream_keeps_the_memory(make_session):
    """Behaviour 31: no memory is taken over while an unfinished access on another stream still reads it."""
    s = make_session(devices=["cpu:0", {"name": "sim:0"}, {"name": "sim:1"}])
    x = s.asarray(ones(KIB), device="sim:0") + 1.0
    x.wait(WAIT)
    before = address(s, x, "sim:0")
    with held(s, "sim:1", "p2p"):
        copied = s.call("add", [x, 10.0], device="sim:1")[0]  # its transfer reads x on sim:0
        s.flush()
        y = x * 3.0
        del x
        y.wait(WAIT)
        assert address(s, y, "sim:0") != before
    np.testing.assert_array_equal(copied.numpy(), ones(KIB, value=12.0))
    np.testing.assert_array_equal(y.numpy(), ones(KIB, value=6.0))
    assert_sound(s)


# -- release -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_the_order_of_release_does_not_matter(make_session, order):
    """Behaviour 32: releasing a tensor with readers in flight waits for them, in any order of the handles."""
    s = make_session(devices=small(64))
    x = s.asarray(ones(KIB), device="sim:0").wait(WAIT)
    with held(s, "sim:0", "compute"):
        y = x + 1.0
        z = x * y
        handles = [x, y, z]
        kept = z + 0.0
        s.flush()
        for which in order:
            handles[which].release()
            s.flush()
        del x, y, z
        assert allocated(s, "sim:0") >= 2048
        assert {r.status for r in records(s, opcode="ReleaseTensor")} == {"WAITING"}
    np.testing.assert_array_equal(kept.numpy(), ones(KIB, value=2.0))
    s.sync(WAIT)
    until(s, lambda: not machine_of(s).engine.live)
    assert allocated(s, "sim:0") == 1024
    for release in records(s, opcode="ReleaseTensor"):
        assert release.status == "DONE"
        assert {e.reason for e in release.edges} <= {"WAR", "WAW"}
    assert_sound(s)


def test_a_release_rides_on_an_instruction_that_is_skipped(make_session):
    """Behaviour 32: a handle dropped before its last use left takes effect even if the instruction is skipped."""
    s = make_session(devices=small(64))
    bad = s.asarray(ones(KIB), device="sim:0")
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="exp"))
    poisoned = s.call("exp", [bad])[0]
    bad.release()
    x = s.asarray(ones(KIB), device="sim:0")
    skipped = poisoned + x
    del x
    with pytest.raises(td.KernelError):
        skipped.wait(WAIT)
    del skipped, poisoned
    s.sync(WAIT)
    until(s, lambda: not machine_of(s).engine.live)
    assert allocated(s, "sim:0") == 0
    assert records(s, "add")[0].status == "SKIPPED"
    assert_sound(s)


# -- reuse, eviction, the memory queue ---------------------------------------------------------------------------------


def test_a_buffer_released_on_a_stream_serves_that_stream_at_once(make_session):
    """A buffer released on a stream is reusable at once by later instructions of that stream."""
    s = make_session(devices=small(3))
    x = s.asarray(ones(16, 16), device="sim:0").wait(WAIT)
    with held(s, "sim:0", "compute"):
        y = x
        for _ in range(6):  # matmul takes no input's memory over, so each step needs a buffer beside x and y
            y = s.call("matmul", [x, y])[0]
            y *= 1 / 16
            s.flush()
        assert [r.status for r in records(s, "matmul")] == ["DISPATCHED"] * 6
        assert allocated(s, "sim:0") == 3072
    np.testing.assert_allclose(y.numpy(), ones(16, 16), rtol=1e-6)
    y.wait(WAIT)
    s.sync(WAIT)
    assert allocated(s, "sim:0") == 2048
    assert_sound(s)


def test_a_buffer_released_on_one_stream_is_not_given_to_another_too_early(make_session):
    """Memory that one stream still reads serves no other stream before the read is done."""
    s = make_session(devices=small(64, compute_streams=2))
    x = s.asarray(ones(KIB), device="sim:0").wait(WAIT)
    with held(s, "sim:0", "compute0"):
        slow = x + 1.0
        s.flush()
        assert records(s, "add")[0].status == "DISPATCHED"
        x.release()
        s.flush()
        others = [s.asarray(ones(KIB, value=100.0 + k), device="sim:0") for k in range(8)]
        others += [other * 2.0 for other in others]
        for other in others[:8]:
            other.wait(WAIT)
    np.testing.assert_array_equal(slow.numpy(), ones(KIB, value=2.0))
    for k, other in enumerate(others[:8]):
        np.testing.assert_array_equal(other.numpy(), ones(KIB, value=100.0 + k))
    assert_sound(s)


def test_replicas_are_dropped_before_memory_runs_out(make_session):
    """An allocation that does not fit first drops idle copies that are valid elsewhere. When memory is short for the
    first time, the oldest copy is dropped, and from then on the one whose next use is the latest.
    """
    s = make_session(devices=small(4))
    inputs = [s.asarray(ones(KIB, value=k)) for k in range(6)]
    for k, x in enumerate(inputs):
        assert s.call("sum", [x], device="sim:0")[0].item() == KIB * k
        s.call("sum", [inputs[0]], device="sim:0")[0].wait(WAIT)  # always in use
    assert s.stats()["failed"] == 0
    assert inputs[0].residency() == {"cpu:0": "valid", "sim:0": "valid"}
    assert inputs[1].residency() == {"cpu:0": "valid"}
    assert inputs[5].residency() == {"cpu:0": "valid", "sim:0": "valid"}
    assert transfers(s) == ["h2d cpu:0->sim:0"] * 4 + ["return cpu:0->sim:0"] + ["h2d cpu:0->sim:0"] * 2
    assert s.call("sum", [inputs[1]], device="sim:0")[0].item() == KIB  # comes back
    assert len(transfers(s)) == 8
    assert_sound(s)


def test_the_only_valid_copy_is_never_dropped(make_session):
    """Eviction takes copies that are valid elsewhere, and nothing else."""
    s = make_session(devices=small(4))
    homes = [s.asarray(ones(KIB, value=k), device="sim:0") for k in range(3)]
    x = s.asarray(ones(KIB))
    s.call("sum", [homes[0]], device="cpu:0")[0].wait(WAIT)  # now homes[0] is on the host too
    assert s.call("sum", [s.call("add", [x, 1.0])[0]], device="sim:0")[0].item() == 2 * KIB
    assert homes[0].residency().keys() == {"cpu:0"}
    assert homes[1].residency() == homes[2].residency() == {"sim:0": "valid"}
    for k, home in enumerate(homes):
        np.testing.assert_array_equal(home.numpy(), ones(KIB, value=k))
    assert_sound(s)


def test_room_for_one_operand_is_not_made_by_dropping_another(make_session):
    """Operands of one instruction do not push each other out; if they do not fit together, that is the error."""
    s = make_session(devices=small(3, eviction="never"))
    home = s.asarray(ones(KIB + 64), device="sim:0").wait(WAIT)
    x, y = s.asarray(ones(KIB)), s.asarray(ones(KIB, value=2.0))
    s.call("sum", [x], device="sim:0")[0].wait(WAIT)
    both = s.call("matmul", [x, y], device="sim:0")[0]  # four bytes, but x and y do not fit together
    with pytest.raises(td.DeviceMemoryError, match=r"h2d cpu:0->sim:0: 1 KiB \(1024 bytes\) do not fit on sim:0"):
        both.wait(WAIT)
    np.testing.assert_array_equal(s.call("sum", [y], device="sim:0")[0].numpy(), 2.0 * KIB)
    np.testing.assert_array_equal(home.numpy(), ones(KIB + 64))
    assert_sound(s)


def test_a_result_of_unknown_size_drops_replicas_when_it_is_there(make_session):
    """A result whose size admission could not plan for, since data decide it, drops idle replicas when it arrives."""
    s = make_session(devices=small(6))
    replica = s.asarray(ones(4 * KIB))
    s.call("sum", [replica], device="sim:0")[0].wait(WAIT)
    x = s.asarray(np.arange(KIB, dtype=np.float32), device="sim:0")
    found = s.call("nonzero", [x])[0]  # 2040 bytes, known when they are there
    np.testing.assert_array_equal(found.numpy().ravel(), np.arange(1, KIB))
    assert replica.residency() == {"cpu:0": "valid"}
    assert allocated(s, "sim:0") == 1024 + 2040
    assert s.stats()["failed"] == 0
    assert_sound(s)


def test_copies_of_views_are_dropped_like_other_replicas(make_session):
    """A view's bytes on a device are a replica, too: many views of one storage pass a small device."""
    s = make_session(devices=small(4))
    x = s.asarray(np.arange(32 * KIB, dtype=np.float32).reshape(32, KIB))
    for k in range(32):
        expected = float(np.arange(k * KIB, (k + 1) * KIB, dtype=np.float64).sum())
        assert s.call("sum", [x[k]], device="sim:0")[0].item() == pytest.approx(expected)
    assert s.stats()["failed"] == 0
    assert allocated(s, "sim:0") <= 4096
    assert_sound(s)


def test_what_fits_serially_fits_when_all_is_submitted_at_once(make_session):
    """Behaviour 43: a program that fits when run serially never fails for memory, also when admitted in one batch."""
    s = make_session(devices=small(3))
    x, y = s.asarray(ones(KIB)), s.asarray(ones(KIB, value=2.0))
    sums = []
    for tensor in (x, y, x, y):  # each needs its transfer and a result; x and y do not fit together with both results
        result = s.call("add", [tensor, 1.0], device="sim:0")[0]
        sums.append(s.call("sum", [result * result])[0])
    assert [total.item() for total in sums] == [4.0 * KIB, 9.0 * KIB, 4.0 * KIB, 9.0 * KIB]
    assert s.stats()["failed"] == 0
    assert_sound(s)


@pytest.mark.parametrize("slow", ["h2d", "d2h", "compute", "none"])
def test_a_tight_working_set_passes_whatever_is_slow(make_session, slow):
    """Behaviour 43: the same for a longer program whose streams progress unevenly."""
    s = make_session(devices=small(5, inline=False))
    rng = np.random.default_rng(3)
    host = [rng.integers(0, 9, KIB).astype(np.float32) for _ in range(4)]
    tensors = [s.asarray(values) for values in host]
    expected, results = [], []
    if slow != "none":
        device_of(s, "sim:0").hold(slow)
    for step in range(40):
        a, b = step % 4, (step * 3 + 1) % 4
        product = s.call("multiply", [tensors[a], tensors[b]], device="sim:0")[0]
        results.append(s.call("sum", [product + 1.0])[0].to_device("cpu:0"))
        expected.append(float((host[a] * host[b] + 1).sum()))
        del product
        if step % 7 == 6:
            s.call("add", [tensors[a], 1.0], out=[tensors[a]])
            host[a] = host[a] + 1
    s.flush()
    if slow != "none":
        device_of(s, "sim:0").resume(slow)
    assert [result.item() for result in results] == expected
    assert s.stats()["failed"] == 0
    assert_sound(s)


@pytest.mark.parametrize("fails", [False, True])
def test_room_is_made_by_a_copy_whose_twin_is_still_under_way(make_session, fails):
    """Behaviour 43: a planned transfer elsewhere makes room here; if the transfer fails, the value is not lost."""
    s = make_session(devices=small(3, eviction="never"))
    x = s.asarray(ones(KIB), device="sim:0").wait(WAIT)
    if fails:
        device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, stream="d2h"))
    with held(s, "sim:0", "compute"):
        z = x + 1.0
        s.flush()
        x.release()
        there = z.to_device("cpu:0")
        assert not there.is_ready()  # the transfer begins
        b = s.asarray(ones(2 * KIB, value=3.0), device="sim:0")
        total = b.sum()  # four bytes too many, unless z leaves
        s.flush()
        b.release()
        again = s.call("add", [z, 1.0], device="sim:0")[0]
        s.flush()
    if fails:
        with pytest.raises(td.DeviceMemoryError):
            total.item()
        with pytest.raises(td.KernelError, match="injected"):
            again.wait(WAIT)
        assert moves(s)[0].status == "FAILED"
    else:
        assert total.item() == 6 * KIB
        np.testing.assert_array_equal(again.numpy(), ones(KIB, value=3.0))
        assert s.stats()["failed"] == 0
        assert transfers(s) == ["d2h sim:0->cpu:0", "return cpu:0->sim:0"]
    np.testing.assert_array_equal(there.numpy(), ones(KIB, value=2.0))
    np.testing.assert_array_equal(z.numpy(), ones(KIB, value=2.0))
    assert_sound(s)


def test_waiting_for_memory_blocks_no_stream(make_session):
    """An instruction without memory waits in its device's memory queue; instructions that need none go on."""
    s = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 4096}, "sim:1"])
    a, b = (s.asarray(ones(KIB, value=v), device="sim:0").wait(WAIT) for v in (1.0, 2.0))
    c = s.asarray(ones(KIB, value=3.0), device="sim:0").wait(WAIT)
    with held(s, "sim:1", "p2p"):
        far = s.call("add", [a, 5.0], device="sim:1")[0]  # a is read until this is done
        s.flush()
        a.release()
        fourth = b + c
        fifth = b * c  # no room before a is gone
        s.flush()
        assert s.stats()["devices"]["sim:0"]["waiting_for_memory"] == 1
        s.call("add", [b, 1.0], out=[b])
        fourth.wait(WAIT)
        b_sum = s.asarray(ones(KIB), device="sim:1").wait(WAIT)
        assert not fifth.is_ready()
        assert [r.status for r in records(s, "multiply")] == ["READY"]
    np.testing.assert_array_equal(fifth.numpy(), ones(KIB, value=6.0))
    np.testing.assert_array_equal(b.numpy(), ones(KIB, value=3.0))
    np.testing.assert_array_equal(far.numpy(), ones(KIB, value=6.0))
    del b_sum
    assert s.stats()["failed"] == 0
    assert_sound(s)


def test_the_memory_queue_is_served_in_program_order(make_session):
    """Waiting instructions get memory in program order; small ones do not starve a large one in front of them."""
    s = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 5120}, "sim:1"])
    blocker = s.asarray(ones(3 * KIB), device="sim:0").wait(WAIT)
    x = s.asarray(ones(KIB), device="sim:0").wait(WAIT)
    with held(s, "sim:1", "p2p"):
        far = s.call("sum", [blocker], device="sim:1")[0]
        s.flush()
        blocker.release()
        large = s.call("concat", [x, x])[0]
        little = [x[:64] * float(k) for k in range(2)]  # would fit now
        s.flush()
        assert s.stats()["devices"]["sim:0"]["waiting_for_memory"] == 3
        assert large.residency() == {"sim:0": "planned"}
    assert large.sum().item() == 2 * KIB
    for k, one in enumerate(little):
        np.testing.assert_array_equal(one.numpy(), ones(64, value=k))
    assert far.item() == 3 * KIB
    order = sorted(records(s, "concat") + records(s, "multiply"), key=lambda r: r.dispatched)
    assert [r.op for r in order] == ["concat", "multiply", "multiply"]
    assert s.stats()["failed"] == 0
    assert_sound(s)


def test_memory_that_never_comes_fails_the_oldest_and_serves_the_rest(make_session):
    """The oldest fails only when all earlier instructions that touch the device have retired; then the rest goes on."""
    s = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 4096}, "sim:1"])
    kept = s.asarray(ones(2 * KIB), device="sim:0").wait(WAIT).pin()
    with held(s, "sim:1", "p2p"):
        far = s.call("sum", [kept], device="sim:1")[0]
        too_large = s.call("full", [0.0], {"shape": (4 * KIB,), "dtype": "float32"}, device="sim:0")[0]
        fits = kept * 2.0
        s.flush()
        assert not too_large.is_ready()  # not hopeless yet: an earlier instruction still touches the device
    with pytest.raises(td.DeviceMemoryError, match="full: 4 KiB"):
        too_large.wait(WAIT)
    np.testing.assert_array_equal(fits.numpy(), ones(2 * KIB, value=2.0))
    assert far.item() == 2 * KIB
    assert_sound(s)


def test_counters_are_exact_after_a_mixed_program(make_session):
    """Behaviour 30: counters stay exact: with all tensors dropped, nothing is allocated, planned, queued or alive."""
    s = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 16384}, {"name": "sim:1", "peer": False}])
    rng = np.random.default_rng(0)
    tensors = [s.asarray(ones(KIB, value=k), device=d) for k, d in enumerate(["cpu:0", "sim:0", "sim:1"] * 2)]
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, nth=20, count=3))
    device_of(s, "sim:1").inject(Fault(FaultKind.ALLOCATION, nth=10, count=2))
    for step in range(150):
        a, b, c = rng.integers(0, len(tensors), 3)
        device = ["cpu:0", "sim:0", "sim:1"][step % 3]
        kind = step % 5
        if kind == 0:
            tensors[c] = s.call("add", [tensors[a], tensors[b]], device=device)[0]
        elif kind == 1:
            s.call("multiply", [tensors[a], 0.5], out=[tensors[a]], device=device)
        elif kind == 2:
            tensors[c] = tensors[a].to_device(device)
        elif kind == 3:
            tensors[b][: KIB // 2] = 3.0
        else:
            tensors[c] = s.call("concat", [tensors[a][: KIB // 2], tensors[b][KIB // 2 :]], device=device)[0]
    s.sync(WAIT)
    assert s.trace().verify() == []
    del tensors
    s.flush()
    s.sync(WAIT)
    engine = machine_of(s).engine
    until(s, lambda: not engine.live)
    for state in engine.devices.values():
        assert (state.backend.allocated, state.planned, state.unreserved_bytes, state.unknown) == (0, 0, 0, 0), state
        assert not state.waiting
        assert not state.live
        assert not any(state.reusable.values())
        assert all(stream.queued == 0 for stream in state.backend.streams)
    assert s.trace().verify() == []


def test_a_result_that_data_decide_waits_for_what_runs_before_it(make_session):
    """Behaviour 43: a dynamic op whose input dies with it fits, though its result is as large and the device full."""
    session = make_session(devices=["cpu:0", {"name": "sim:0", "memory": 65, "inline": False}])
    x = session.asarray(np.arange(8), device="sim:0")
    mask = session.asarray(True, device="cpu:0")
    one = session.asarray(1, device="cpu:0")
    y = session.call("add", [one, x])[0]
    z = session.call("masked_select", [x, mask], device="sim:0")[0]
    del x
    assert z.numpy().ravel().tolist() == list(range(8))
    assert y.numpy().tolist() == list(range(1, 9))
    assert_sound(session)


def test_a_size_that_data_decide_and_no_device_has_is_an_error_of_that_op(make_session):
    s = make_session(devices=[{"name": "cpu:0", "memory": 64 * 1024}])
    x = s.asarray(ones(1024))
    few = x[x > 0.0]
    square = few[:, None] * few
    with pytest.raises(
        td.DeviceMemoryError, match=r"multiply: 4 MiB .* do not fit on cpu:0 .* the device has 64 KiB .* in all"
    ):
        square.wait(WAIT)
    assert few.numpy().sum() == 1024
    assert s.stats()["failed"] == 1
    assert_sound(s)
