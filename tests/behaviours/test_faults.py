"""Devices that fail: late errors, hangs, slow streams, allocations, and a device that is lost."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.embedded.in_process import EmbeddedTransport
from tensord.client.session.session import Session
from tensord.streams.faults import FOREVER, Fault, FaultKind
from tensord.vm.machine import VirtualMachine

from .looking_inside import (
    WAIT,
    allocated,
    assert_sound,
    copies_of,
    device_of,
    held,
    machine_of,
    moves,
    ones,
    records,
    transfers,
    until,
)

LATE = ["cpu:0", {"name": "sim:0", "late_errors": True}, "sim:1"]


# -- late errors -------------------------------------------------------------------------------------------------------


def test_a_late_error_poisons_what_could_have_seen_it_and_nothing_else(make_session):
    """Behaviour 44: a device reports an error after later work was launched behind it."""
    s = make_session(devices=LATE)
    x = s.asarray(ones(8), device="sim:0").wait(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.LATE, label="exp", after=100))
    with held(s, "sim:0", "compute"):
        before = x * 2.0
        late = s.call("exp", [x])[0]
        seen = late + 1.0
        seen_again = seen * x
        other = x - 1.0
        s.flush()
    with pytest.raises(td.KernelError, match="surfaced late") as caught:
        seen_again.numpy()
    assert caught.value.op == "exp"
    assert "test_a_late_error" in (caught.value.location or "")
    assert [t.error is None for t in (before, late, seen, seen_again, other)] == [True, False, False, False, True]
    np.testing.assert_array_equal(before.numpy(), ones(8, value=2.0))
    np.testing.assert_array_equal(other.numpy(), ones(8, value=0.0))
    np.testing.assert_array_equal((x + 1.0).numpy(), ones(8, value=2.0))
    statuses = {r.op: r.status for r in records(s, opcode="LocalCallOpKernel") if r.edges or r.op == "exp"}
    assert statuses["exp"] == "FAILED"
    assert records(s, "add")[0].status == "SKIPPED"
    assert s.stats()["failed"] == 1
    assert records(s, "add")[0].started >= records(s, "exp")[0].started > 0  # the add was launched behind exp
    assert_sound(s)


def test_a_late_error_poisons_each_result(make_session):
    """Behaviour 44: an op with several results leaves none of them healthy."""
    s = make_session(devices=LATE)
    x = s.asarray(np.eye(8), device="sim:0").wait(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.LATE, label="qr"))
    for result in s.call("qr", [x]):
        with pytest.raises(td.KernelError, match="surfaced late"):
            result.numpy()


def test_a_late_error_of_a_write_does_not_reach_an_earlier_reader(make_session):
    """Behaviour 44: readers before the failing write saw the old value, though the error came first."""
    s = make_session(devices=LATE)
    x = s.asarray(ones(8), device="sim:0").wait(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.LATE, label="exp", after=100))
    with held(s, "sim:0", "compute"):
        reader = x * 2.0
        s.call("exp", [x], out=[x])
        follower = x + 1.0
        s.flush()
    with pytest.raises(td.KernelError, match="surfaced late"):
        follower.numpy()
    with pytest.raises(td.KernelError, match="surfaced late"):
        x.numpy()
    np.testing.assert_array_equal(reader.numpy(), ones(8, value=2.0))
    assert_sound(s)


def test_a_failing_write_on_a_device_with_late_errors_leaves_an_earlier_reader_alone(make_session):
    """Behaviour 44: the same where the error is not late, but the device reports in batches."""
    s = make_session(devices=LATE)
    x = s.asarray(ones(8), device="sim:0").wait(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.FAIL, label="exp"))
    with held(s, "sim:0", "compute"):
        reader = x * 2.0
        s.call("exp", [x], out=[x])
        s.flush()
    np.testing.assert_array_equal(reader.numpy(), ones(8, value=2.0))
    assert isinstance(x.error, td.KernelError)
    assert_sound(s)


def test_what_overwrites_a_late_failure_is_healthy(make_session):
    """Behaviour 44: a full overwrite launched behind the failing write heals, and its readers are healthy."""
    s = make_session(devices=LATE)
    x, y = (s.asarray(ones(8, value=v), device="sim:0").wait(WAIT) for v in (1.0, 5.0))
    device_of(s, "sim:0").inject(Fault(FaultKind.LATE, label="exp", after=100))
    with held(s, "sim:0", "compute"):
        s.call("exp", [x], out=[x])
        lost = x + 1.0
        s.call("multiply", [y, 2.0], out=[x])
        reader = x - 1.0
        s.flush()
    np.testing.assert_array_equal(reader.numpy(), ones(8, value=9.0))
    np.testing.assert_array_equal(x.numpy(), ones(8, value=10.0))
    with pytest.raises(td.KernelError, match="surfaced late"):
        lost.numpy()
    np.testing.assert_array_equal((x + 0.0).numpy(), ones(8, value=10.0))
    assert_sound(s)


def test_a_late_error_follows_its_value_to_another_device(make_session):
    """Behaviour 44: a value that another device read by event before the error surfaced is poisoned there, too."""
    s = make_session(devices=LATE)
    x = s.asarray(ones(8), device="sim:0").wait(WAIT)
    s.call("add", [x, 1.0], device="sim:1")[0].wait(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.LATE, label="exp", after=3))
    with held(s, "sim:0", "compute"):
        late = s.call("exp", [x])[0]
        far = s.call("multiply", [late, 2.0], device="sim:1")[0]
        good = s.call("multiply", [x, 2.0], device="sim:1")[0]
        for _ in range(3):
            last = x + 1.0
        s.flush()
    last.wait(WAIT)
    with pytest.raises(td.KernelError, match="surfaced late"):
        far.numpy()
    np.testing.assert_array_equal(good.numpy(), ones(8, value=2.0))
    assert late.error is not None
    s.sync(WAIT)  # waiters get the error before the skipped instructions have retired
    moved_late = moves(s)[-1]
    assert (moved_late.status, [e.elided for e in moved_late.edges]) == ("SKIPPED", [True])
    assert_sound(s)


# -- hangs -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient() -> Iterator[Callable[..., Session]]:
    """Sessions on machines that call a kernel hung after a tenth of a second."""
    opened: list[tuple[Session, VirtualMachine]] = []

    def connect(*devices: Any) -> Session:
        machine = VirtualMachine(devices, hang_after=0.1)
        opened.append((Session(EmbeddedTransport(machine, machine.close, strict=False)), machine))
        return opened[-1][0]

    yield connect
    for session, machine in opened:
        machine.close(timeout=WAIT)
        session.close()


def hang(session: Session, device: str, **where: Any) -> None:
    """Make the next such task of a device hang. No earlier one is reported then: on a busy machine, any task may be."""
    until(session, lambda: not machine_of(session).hung)
    device_of(session, device).inject(Fault(FaultKind.HANG, **where))


def hung(session: Session) -> list[dict[str, Any]]:
    """Wait until an instruction is reported as hanging."""
    until(session, lambda: bool(machine_of(session).hung))
    found: list[dict[str, Any]] = session.stats()["hung"]
    return found


@pytest.mark.filterwarnings("default")
def test_a_launched_op_that_hangs_is_named_though_nobody_waits_for_it(impatient):
    s = impatient("cpu:0", {"name": "sim:0", "launches": True})
    x = s.asarray(ones(8), device="sim:0").wait(WAIT)
    for op in ("exp", "log"):
        for _ in range(2):  # the first call is the launcher's
            s.call(op, [x])[0].wait(WAIT)
    hang(s, "sim:0", label="exp")
    results = [s.call(op, [x])[0] for op in ("exp", "log", "log")]
    s.flush()
    (entry,) = hung(s)
    assert re.match(r"fence behind .*exp \(.*test_faults.py:\d+.*\)", entry["op"]), entry
    assert entry["stream"] == "sim:0/compute0"
    device_of(s, "sim:0").release_hangs()
    assert [result.wait(WAIT).is_ready() for result in results] == [True] * 3


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
def test_a_hanging_kernel_is_named_while_the_others_go_on(impatient, device):
    """Behaviour 48: a kernel that hangs: it is named within 5 s, the other streams go on, shutdown still ends."""
    s = impatient({"name": "cpu:0", "workers": 2}, {"name": "sim:0", "compute_streams": 2}, "sim:1")
    x = s.asarray(ones(8), device=device).wait(WAIT)
    hang(s, device, label="exp")
    stuck = s.call("exp", [x])[0]
    behind = stuck + 1.0
    s.flush()
    (entry,) = hung(s)
    assert entry["op"] == "exp"
    assert entry["stream"].startswith(f"{device}/compute")
    assert "test_a_hanging_kernel" in str(entry["location"])
    assert entry["seconds"] >= 0.1
    for other in ("cpu:0", "sim:0", "sim:1"):  # the hanging device's second stream, too
        np.testing.assert_array_equal(s.call("multiply", [x, 3.0], device=other)[0].numpy(), ones(8, value=3.0))
    assert not stuck.is_ready()
    assert not behind.is_ready()
    assert machine_of(s).close(timeout=0.2) is False
    assert machine_of(s).closed


def test_a_hang_that_ends_is_no_longer_named(impatient):
    """Behaviour 48: it is reported as long as it hangs, and afterwards its result is valid."""
    s = impatient("cpu:0", "sim:0")
    x = s.asarray(ones(8), device="sim:0").wait(WAIT)
    hang(s, "sim:0", label="exp")
    y = s.call("exp", [x])[0]
    s.flush()
    assert [entry["op"] for entry in hung(s)] == ["exp"]
    device_of(s, "sim:0").release_hangs()
    np.testing.assert_allclose(y.numpy(), np.exp(ones(8)))
    until(s, lambda: not machine_of(s).hung)
    assert s.stats()["hung"] == []
    assert_sound(s)


def test_a_hanging_copy_is_named_after_a_quiet_time(impatient):
    """Behaviour 48: also when the machine was idle before, and its background thread slept."""
    s = impatient("cpu:0", "sim:0")
    machine = machine_of(s)
    other = Session(EmbeddedTransport(machine, lambda: None, strict=False))
    x = s.asarray(ones(8), device="sim:0").wait(WAIT)
    s.publish("x", x)
    x.release()
    s.flush()
    background = machine.background
    while not background.dozing:
        background.awake = False
        background.ring()
        machine.wait_until(lambda: background.dozing, 0.01)
    device_of(s, "sim:0").inject(Fault(FaultKind.HANG, stream="d2h"))
    values: list[Any] = []
    reader = threading.Thread(target=lambda: values.append(other.lookup("x").numpy()))
    reader.start()
    until(s, lambda: bool(machine.hung))
    assert [(entry["op"], entry["stream"]) for entry in machine.hung.values()] == [("d2h sim:0->cpu:0", "sim:0/d2h0")]
    device_of(s, "sim:0").release_hangs()
    reader.join(WAIT)
    np.testing.assert_array_equal(values[0], ones(8))
    assert_sound(s)
    other.close()


def test_closing_with_a_hang_answers_those_who_wait(impatient):
    """Behaviour 48: shutdown ends although a kernel hangs; calls that wait for the kernel get an error, not a hang."""
    s = impatient("cpu:0", "sim:0")
    x = s.asarray(ones(8), device="sim:0").wait(WAIT)
    hang(s, "sim:0", label="exp")
    y = s.call("exp", [x])[0]
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            y.wait(WAIT)
        except td.TensordError as error:
            errors.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    hung(s)
    machine_of(s).close(timeout=0.2)
    waiting.join(WAIT)
    assert not waiting.is_alive()
    assert [type(error) for error in errors] in ([td.ConnectionLost], [td.CancelledError])


# -- slow streams, failing ops -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", ["compute", "h2d", "d2h", "p2p"])
def test_a_slow_stream_changes_no_result(sim_session, stream):
    """Slow streams: every interleaving gives the same values."""
    s = sim_session
    for name in ("sim:0", "sim:1"):
        device_of(s, name).inject(Fault(FaultKind.SLOW, stream=stream, seconds=0.002, count=12))
    x = s.asarray(ones(16), device="sim:0")
    y = s.asarray(ones(16, value=2.0))
    for _ in range(4):
        x = s.call("add", [x, y], device="sim:1")[0]
        y = s.call("multiply", [x, 0.5], device="sim:0")[0]
        x *= 2.0
    model_x, model_y = ones(16), ones(16, value=2.0)
    for _ in range(4):
        model_x = model_x + model_y
        model_y = model_x * 0.5
        model_x = model_x * 2
    np.testing.assert_array_equal(x.numpy(), model_x)
    np.testing.assert_array_equal(y.numpy(), model_y)
    assert_sound(s)


def test_an_allocation_that_fails_for_ever_fails_one_by_one(make_session):
    """Allocation faults: each op that needs memory fails, in order, and no op that needs none."""
    s = make_session(devices=["cpu:0", "sim:0"])
    x = s.asarray(ones(8), device="sim:0").wait(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.ALLOCATION, count=FOREVER))
    failed = [x + float(k) for k in range(3)]
    x *= 2.0
    for one in failed:
        with pytest.raises(td.DeviceMemoryError):
            one.wait(WAIT)
    np.testing.assert_array_equal(x.numpy(), ones(8, value=2.0))
    assert s.stats()["failed"] == 3
    assert [r.status for r in records(s, "add")] == ["FAILED"] * 3
    assert_sound(s)


# -- a lost device -----------------------------------------------------------------------------------------------------


def lose(s: Session, device: str) -> td.Tensor:
    """Lose the device with an op that hits it; the op's result."""
    victim = s.asarray(ones(4), device=device).wait(WAIT)
    device_of(s, device).inject(Fault(FaultKind.LOST, label="exp"))
    result = s.call("exp", [victim])[0]
    with pytest.raises(td.KernelError, match=f"{device} is lost"):
        result.wait(WAIT)
    return result


def test_versions_only_on_a_lost_device_are_poisoned_and_the_others_go_on(sim_session):
    """A sticky device error loses the device: versions whose only copy was there are poisoned, the rest goes on."""
    s = sim_session
    only = s.asarray(ones(8), device="sim:0").wait(WAIT)
    both = s.asarray(ones(8, value=2.0), device="sim:0")
    s.call("add", [both, 1.0], device="sim:1")[0].wait(WAIT)
    elsewhere = s.asarray(ones(8, value=3.0), device="sim:1").wait(WAIT)
    s.call("sum", [elsewhere], device="sim:0")[0].wait(WAIT)
    lost = lose(s, "sim:0")
    with pytest.raises(td.KernelError, match="sim:0 is lost") as caught:
        only.numpy()
    assert "lose" in (caught.value.location or "")  # the call that lost it
    assert caught.value.op == "exp"
    assert only.residency() == {"sim:0": "poisoned"}
    assert both.residency() == {"sim:1": "valid"}
    assert elsewhere.residency() == {"sim:1": "valid"}
    np.testing.assert_array_equal(both.numpy(), ones(8, value=2.0))
    np.testing.assert_array_equal(s.call("add", [both, elsewhere], device="sim:1")[0].numpy(), ones(8, value=5.0))
    np.testing.assert_array_equal(s.call("add", [both, 1.0], device="cpu:0")[0].numpy(), ones(8, value=3.0))
    dependent = s.call("add", [only, elsewhere], device="sim:1")[0]
    with pytest.raises(td.KernelError, match="sim:0 is lost"):
        dependent.numpy()
    s.call("add", [elsewhere, 4.0], out=[only], device="sim:1")  # a full overwrite elsewhere heals
    only.wait(WAIT)
    assert only.residency() == {"sim:1": "valid"}
    np.testing.assert_array_equal(only.numpy(), ones(8, value=7.0))
    del lost
    assert_sound(s)


def test_nothing_new_is_admitted_on_a_lost_device(sim_session):
    """Ops, uploads and moves to a lost device fail at once, with the device's error and the user's line."""
    s = sim_session
    kept = s.asarray(ones(8)).wait(WAIT)
    lost = lose(s, "sim:0")
    attempts = [
        s.asarray(ones(8), device="sim:0"),
        kept.to_device("sim:0"),
        s.call("add", [kept, 1.0], device="sim:0")[0],
        s.call("add", [kept, 2.0], device="sim:0")[0],
    ]
    for attempt in attempts:
        with pytest.raises(td.KernelError, match="sim:0 is lost") as caught:
            attempt.wait(WAIT)
        assert "test_nothing_new_is_admitted" in (caught.value.location or "")
    np.testing.assert_array_equal(kept.numpy(), ones(8))
    assert transfers(s) == []
    del lost, attempts
    assert_sound(s)


def test_what_waits_for_a_lost_device_fails_and_nothing_hangs(sim_session):
    """Instructions admitted and not dispatched when the device was lost fail; those that do not need it run."""
    s = sim_session
    x = s.asarray(ones(8), device="sim:0").wait(WAIT)
    y = s.asarray(ones(8, value=2.0)).wait(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.LOST, label="exp"))
    with held(s, "cpu:0", "compute"):
        slow = y + 1.0  # on the host, not there yet
        waiting = s.call("add", [x, slow], device="sim:0")[0]
        after = s.call("multiply", [waiting, 2.0], device="sim:1")[0]
        healthy = s.call("multiply", [slow, 2.0], device="sim:1")[0]
        trigger = s.call("exp", [x])[0]
        s.flush()
        with pytest.raises(td.KernelError, match="lost"):
            trigger.wait(WAIT)
        with pytest.raises(td.KernelError, match="lost"):
            after.wait(WAIT)  # at once: the host's op has not run yet
        assert not healthy.is_ready()
    np.testing.assert_array_equal(healthy.numpy(), ones(8, value=6.0))
    np.testing.assert_array_equal(slow.numpy(), ones(8, value=3.0))
    with pytest.raises(td.KernelError, match="lost"):
        waiting.numpy()
    assert_sound(s)


def test_queued_work_on_a_lost_device_fails_with_one_root(sim_session):
    """Instructions launched behind the op that lost the device fail; dependents carry their source's error."""
    s = sim_session
    x = s.asarray(ones(8), device="sim:0").wait(WAIT)
    device_of(s, "sim:0").inject(Fault(FaultKind.LOST, label="exp"))
    with held(s, "sim:0", "compute"):
        before = x + 1.0
        copied = before.to_device("cpu:0")
        s.flush()
    copied.wait(WAIT)
    with held(s, "sim:0", "compute"):
        trigger = s.call("exp", [x])[0]
        chained = trigger * 2.0
        s.flush()
    with pytest.raises(td.KernelError, match="with or before exp") as caught:
        chained.numpy()
    assert caught.value.instruction == records(s, "exp")[0].id
    assert records(s, "multiply")[0].status == "SKIPPED"
    np.testing.assert_array_equal(before.numpy(), ones(8, value=2.0))  # its value was on the host by then
    assert before.residency() == {"cpu:0": "valid"}
    assert_sound(s)


def test_memory_of_a_lost_device_is_counted_to_the_end(sim_session):
    """Counters stay exact: memory of the lost device is given back with its handles."""
    s = sim_session
    tensors = [s.asarray(ones(64), device="sim:0") for _ in range(4)]
    s.call("sum", [tensors[0]], device="cpu:0")[0].wait(WAIT)
    del_me = lose(s, "sim:0")
    assert "sim:0" not in copies_of(s, tensors[0])
    del del_me
    tensors.clear()
    s.sync(WAIT)
    until(s, lambda: not machine_of(s).engine.live)
    assert allocated(s, "sim:0") == 0
    assert allocated(s, "cpu:0") == 0
    assert_sound(s)


def test_the_host_goes_on_while_a_lost_device_has_a_view_s_bytes(sim_session):
    """A copy of a single view on a lost device is dropped; its storage is elsewhere."""
    s = sim_session
    x = s.asarray(ones(100, 100))
    row = x[3]
    s.call("sum", [row], device="sim:0")[0].wait(WAIT)
    lost = lose(s, "sim:0")
    assert row.residency() == {"cpu:0": "valid"}
    assert s.call("sum", [row], device="sim:1")[0].item() == 100.0
    del lost
    assert_sound(s)
