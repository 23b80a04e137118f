"""Errors: where they go, where they do not go, and how often they are reported."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.interpreter.wire.messages import Effect, encode_message
from tensord.streams.faults import Fault, FaultKind

from ..each_case import each_case
from .looking_inside import WAIT, assert_sound, device_of, held, machine_of, ones, records, until
from .made_ops import here, make_gate, make_op, raising

THREE_WORKERS = {"name": "cpu:0", "workers": 3}


@pytest.fixture
def reports(session, monkeypatch) -> list[Any]:
    """Every error that the machine reports."""
    found: list[Any] = []
    monkeypatch.setattr(machine_of(session).engine, "report", lambda _session, error: found.append(error))
    return found


# --- 13, 14: propagation


@pytest.mark.parametrize("where", ["cpu:0 at once", "cpu:0 on a stream", "sim:0 on a stream"])
def test_an_error_reaches_what_depends_on_it_and_nothing_else(make_session, monkeypatch, where):
    """Behaviour 13: b carries a's error and a's line, c is right, one report is made."""
    make_op(monkeypatch, "boom", raising, bounded=True)
    session = make_session(devices=["cpu:0", "sim:0"])
    device, _, how = where.partition(" ")
    told: list[Any] = []
    monkeypatch.setattr(machine_of(session).engine, "report", lambda _session, error: told.append(error))
    x = session.asarray(ones(4), device=device)
    session.sync()
    if how != "at once":
        device_of(session, device).hold("compute")
    a, line = session.call("boom", [x])[0], here()
    b = (a + x) * 2.0
    far = b.to_device("sim:0" if device == "cpu:0" else "cpu:0") + 1.0
    c = x + x
    session.flush()
    device_of(session, device).resume("compute")
    np.testing.assert_array_equal(c.numpy(), ones(4, value=2))
    raised = []
    for tensor in (a, b, far):
        with pytest.raises(td.KernelError, match="ZeroDivisionError: boom") as caught:
            tensor.numpy()
        raised.append(caught.value)
    (origin,) = records(session, "boom")
    assert {(e.op, e.instruction, e.location) for e in raised} == {("boom", origin.id, raised[0].location)}
    assert line in (raised[0].location or "")
    assert isinstance(raised[0].__cause__, ZeroDivisionError)
    session.sync()
    assert len(told) == 1
    assert session.stats()["session"]["errors"] == session.stats()["failed"] == 1
    assert origin.status == "FAILED"
    assert [r.status for r in records(session, "add")] == ["SKIPPED", "SKIPPED", "DONE"]
    assert_sound(session)


def test_an_unused_error_harms_nothing(session, reports, monkeypatch):
    """Behaviour 14: the failed result is never used; the session goes on, sync does not raise, it closes normally."""
    make_op(monkeypatch, "boom", raising)
    x = session.asarray(ones(4))
    session.call("boom", [x])
    session.sync(WAIT)
    np.testing.assert_array_equal((x + x).numpy(), ones(4, value=2))
    assert [error.op for error in reports] == ["boom"]
    assert_sound(session)
    session.close()


def test_the_error_of_an_unused_op_is_found_in_the_stats(session, monkeypatch):
    """Behaviour 14: an error without a result goes to `stats()`."""
    make_op(monkeypatch, "boom", raising)
    session.call("boom", [session.asarray(ones(4))])
    line = here(-1)
    session.sync(WAIT)
    (text,) = session.stats()["recent_errors"]
    assert text.startswith("KernelError: boom")
    assert line in text


# --- 15: several results


def half_fails(_xp: Any, inputs: Any, outputs: Any, _attributes: Any) -> list[Any]:
    """The first result is good, the second one is not."""
    outputs[0][...] = inputs[0] * 2
    return [None, ValueError("no second result")]


@pytest.mark.parametrize("at_once", [True, False])
def test_an_op_may_fail_in_one_of_its_results(session, reports, monkeypatch, at_once):
    """Behaviour 15: the other result is healthy, and only dependents of the failed one are skipped."""
    make_op(
        monkeypatch,
        "half",
        half_fails,
        outputs=2,
        bounded=at_once,
        infer=lambda metas, _: (metas[0], metas[0]),
    )
    x = session.asarray(ones(4))
    (good, bad), line = session.call("half", [x]), here()
    after_good, after_bad = good + x, bad + x
    np.testing.assert_array_equal(good.numpy(), ones(4, value=2))
    np.testing.assert_array_equal(after_good.numpy(), ones(4, value=3))
    for tensor in (bad, after_bad):
        with pytest.raises(td.KernelError, match="no second result") as caught:
            tensor.numpy()
        assert line in (caught.value.location or "")
        assert caught.value.op == "half"
    assert len(reports) == 1
    assert_sound(session)


def test_an_op_with_pending_results_may_fail_in_one_of_them(session, reports, monkeypatch):
    """Behaviour 15: the meta of the failed one never becomes known; asking for it raises."""
    make_op(
        monkeypatch,
        "half",
        lambda _xp, inputs, _outputs, _: [inputs[0][:2].copy(), ValueError("no second result")],
        outputs=2,
        dynamic=True,
        infer=lambda *_: (None, None),
    )
    good, bad = session.call("half", [session.asarray(ones(4))])
    after_bad = bad + 1.0
    assert good.shape == (2,)
    for tensor in (bad, after_bad):
        with pytest.raises(td.KernelError, match="no second result"):
            _ = tensor.shape
    assert len(reports) == 1
    assert_sound(session)


# --- 16: healing


@pytest.mark.parametrize("on_stream", [True, False])
def test_a_full_overwrite_heals_a_partial_one_does_not(session, monkeypatch, on_stream):
    """Behaviour 16: a failed in-place write poisons; a write to a part changes nothing; a write to the whole heals."""
    make_op(monkeypatch, "boom", raising, bounded=True)
    x, y = session.asarray(ones(4)), session.asarray(ones(4, value=3))
    session.sync()
    if on_stream:
        device_of(session, "cpu:0").hold("compute")
    session.call("boom", [y], out=[x])
    x[0:2] = 7.0
    still = x + y
    session.call("add", [y, y], out=[x])
    healed = x + y
    session.flush()
    device_of(session, "cpu:0").resume("compute")
    np.testing.assert_array_equal(healed.numpy(), ones(4, value=9))
    np.testing.assert_array_equal(x.numpy(), ones(4, value=6))
    assert x.error is None
    with pytest.raises(td.KernelError, match="boom"):
        still.wait(WAIT)
    assert_sound(session)


FULL = {
    "x[...]": lambda x, v: x.__setitem__(..., v),
    "x[:]": lambda x, v: x.__setitem__(slice(None), v),
    "x[:, :]": lambda x, v: x.__setitem__((slice(None), slice(None)), v),
    "x[0:2]": lambda x, v: x.__setitem__(slice(0, 2), v),
    "x[-2:9, ::1]": lambda x, v: x.__setitem__((slice(-2, 9), slice(None, None, 1)), v),
    "x[::-1]": lambda x, v: x.__setitem__(slice(None, None, -1), v),
    "x[None, ...]": lambda x, v: x.__setitem__((None, ...), v),
    "x[..., None]": lambda x, v: x.__setitem__((..., None), v),
    "x[()]": lambda x, v: x.__setitem__((), v),
}


@each_case("how", FULL)
@each_case("captured", [False, True])
def test_a_write_by_an_index_that_selects_all_heals(session, how, captured):
    """Behaviour 16: also in a routine."""
    x = session.xp.linalg.inv(session.asarray(np.zeros((2, 2))))
    with pytest.raises(td.KernelError, match="Singular matrix"):
        x.wait(WAIT)
    write = session.routine(FULL[how]) if captured else FULL[how]
    write(x, 5.0)
    assert x.tolist() == [[5.0, 5.0], [5.0, 5.0]]
    write(x, session.asarray(7.0))
    assert x.tolist() == [[7.0, 7.0], [7.0, 7.0]]


@each_case("index", [0, slice(1), (slice(None), 0), slice(0, 0), slice(None, None, 2), "mask", "positions"])
def test_a_write_to_a_part_heals_nothing_nor_does_one_of_which_data_decide(session, index):
    x = session.xp.linalg.inv(session.asarray(np.zeros((2, 2))))
    data = {"mask": np.ones((2, 2), bool), "positions": np.array([0, 1])}
    x[session.asarray(data[index]) if isinstance(index, str) else index] = 5.0
    with pytest.raises(td.KernelError, match="Singular matrix"):
        x.wait(WAIT)


def test_a_failed_write_in_place_poisons(session, monkeypatch):
    """Behaviour 16: also where the write runs at once; values that were read before stay as they were."""
    make_op(monkeypatch, "boom", raising, bounded=True)
    x = session.asarray(ones(4))
    before = x + x
    session.call("boom", [x], out=[x])
    line = here(-1)
    np.testing.assert_array_equal(before.numpy(), ones(4, value=2))
    with pytest.raises(td.KernelError, match="boom") as caught:
        x.wait(WAIT)
    assert line in (caught.value.location or "")
    assert x.error is not None
    assert x.error.op == "boom"
    assert_sound(session)


# --- 17: cancel


@pytest.mark.parametrize("length", [100, 2000])
def test_cancel_reports_a_long_chain_at_once_and_the_running_kernel_finishes(make_session, monkeypatch, length):
    """Behaviour 17: also links that are already on the stream; waiters get the error before the kernel has ended.

    Also calls that begin to wait between the cancellation and the kernel's end, for the kernel or for ops behind it.
    """
    gate = make_gate(monkeypatch)
    session = make_session(devices=[THREE_WORKERS])
    x = session.asarray(ones(4))
    running = session.call("slow_copy", [x])[0]
    chain = [running]
    for _ in range(length):
        chain.append(chain[-1] + 1.0)
    session.flush()
    assert gate.entered.wait(WAIT)
    told: list[BaseException] = []

    def wait_for_the_end() -> None:
        try:
            chain[-1].numpy()
        except td.CancelledError as error:
            told.append(error)

    waiter = threading.Thread(target=wait_for_the_end)
    waiter.start()
    until(session, lambda: session._core.transport._replies.open)
    session.cancel()
    waiter.join(WAIT)
    assert len(told) == 1
    for tensor in (running, chain[1], chain[length // 2], chain[-1]):
        with pytest.raises(td.CancelledError):
            tensor.wait(WAIT)
    assert not gate.opened.is_set()
    assert session.stats()["session"]["cancelled"]
    gate.opened.set()
    session.sync(WAIT)
    session.restart()
    for tensor in (running, chain[1], chain[length // 2], chain[-1]):
        assert isinstance(tensor.error, td.CancelledError)
    assert [r.status for r in records(session, "slow_copy")] == ["CANCELLED"]
    assert {r.status for r in records(session, "add")} == {"CANCELLED"}
    del tensor, running
    told.clear()
    chain.clear()  # cancelled instructions have a place in the plan, but no memory
    np.testing.assert_array_equal((x + x).numpy(), ones(4, value=2))
    assert_sound(session)


def test_what_comes_between_cancel_and_restart_is_cancelled_too(session):
    """Behaviour 17: later instructions are refused until restart, with their own line; then the session works."""
    x = session.asarray(ones(4))
    session.sync()
    session.cancel()
    y, line = x + x, here()
    uploaded = session.asarray(ones(2))
    session.flush()
    session.restart()
    for tensor in (y, uploaded):
        with pytest.raises(td.CancelledError):
            tensor.wait(WAIT)
    assert y.error is not None
    assert line in (y.error.location or "")
    assert session.stats()["session"]["errors"] == 0  # nobody waits for the cancelled results
    del tensor, uploaded, y
    np.testing.assert_array_equal((x + x).numpy(), ones(4, value=2))
    assert_sound(session)


def test_what_a_stream_holds_back_is_told_cancelled_at_once(make_session):
    """Behaviour 17: a link that is queued on a stream, and not started, is cancelled before the stream gets to it."""
    session = make_session(devices=["cpu:0"])
    device = session._core.transport.machine.devices["cpu:0"]
    x = session.asarray(ones(4))
    session.sync()
    device.hold("compute")
    y = x + 1.0
    session.flush()
    session.cancel()
    with pytest.raises(td.CancelledError):
        y.wait(WAIT)
    device.resume("compute")
    session.restart()
    np.testing.assert_array_equal((x + x).numpy(), ones(4, value=2))
    assert_sound(session)


def test_releases_happen_despite_cancel(make_session, monkeypatch):
    """Behaviour 17: memory of cancelled results, and of tensors that are released meanwhile, comes back."""
    gate = make_gate(monkeypatch)
    session = make_session(devices=[THREE_WORKERS])
    x = session.asarray(ones(1000))
    slow = session.call("slow_copy", [x])[0]
    y = slow + x
    for _ in range(20):
        y = y * x  # each link releases the one before
    session.flush()
    assert gate.entered.wait(WAIT)
    session.cancel()
    del x, y
    session.flush()
    gate.opened.set()
    session.sync(WAIT)
    stats = session.stats()
    assert stats["session"]["tensors"] == 1
    assert isinstance(slow.error, td.CancelledError)
    assert stats["devices"]["cpu:0"]["allocated"] == 0  # freed when the kernel had ended
    session.restart()
    assert_sound(session)


def test_nothing_overtakes_a_reader_that_still_runs(make_session, monkeypatch):
    """Behaviour 17: a cancelled write keeps its place: a write after restart waits for the reader before it."""
    gate = make_gate(monkeypatch)
    session = make_session(devices=[THREE_WORKERS])
    x, y = session.asarray(ones(4)), session.asarray(ones(4, value=5))
    reader = session.call("slow_copy", [x])[0]
    session.publish("reader", reader)  # so the cancellation spares it
    session.call("multiply", [y, y], out=[x])
    session.flush()
    assert gate.entered.wait(WAIT)
    session.cancel()
    session.restart()
    session.call("add", [y, y], out=[x])
    session.flush()
    assert not x.is_ready()
    gate.opened.set()
    np.testing.assert_array_equal(reader.numpy(), ones(4))
    np.testing.assert_array_equal(x.numpy(), ones(4, value=10))
    assert [r.status for r in records(session, "multiply")] == ["CANCELLED"]
    assert_sound(session)


# --- 18: side effects


def test_side_effects_happen_in_program_order(make_session):
    """Behaviour 18: the second effect's data is ready first."""
    session = make_session(devices=["cpu:0", "sim:0"])
    early, late = session.asarray(ones(1)), session.asarray(ones(1, value=2), device="sim:0")
    seen: list[float] = []
    session.sync()
    with held(session, "sim:0", "compute"):
        session.effect(lambda a: seen.append(a.item()), late * 2.0)
        session.effect(lambda a: seen.append(a.item()), early)
        early.wait(WAIT)
        assert seen == []
        other = session.chain()
        session.effect(lambda a: seen.append(-a.item()), early, chain=other)  # another chain waits for neither
        session.check_chain(other)
        assert seen == [-1.0]
    session.check_chain()
    assert seen == [-1.0, 4.0, 1.0]
    assert_sound(session)


def test_print_shows_values_in_program_order(make_session, capsys):
    """Behaviour 18: with `print`."""
    session = make_session(devices=["cpu:0", "sim:0"])
    x = session.asarray([1, 2], device="sim:0")
    session.sync()
    with held(session, "sim:0", "compute"):
        session.print("first", x * 2)
        session.print("second", 3)
        session.flush()
        assert capsys.readouterr().out == ""
    session.check_chain()
    assert capsys.readouterr().out == "first [2 4]\nsecond 3\n"


@pytest.mark.parametrize("cause", ["operand", "callback", "refused"])
def test_an_error_in_a_chain_stops_what_follows_in_it(session, monkeypatch, cause):
    """Behaviour 18: a poisoned operand, a callback that raises, or one that was never admitted."""
    make_op(monkeypatch, "boom", raising)
    x = session.asarray(ones(1))
    seen: list[str] = []
    session.effect(lambda _: seen.append("before"), x)
    line = here(6)
    if cause == "operand":
        bad = session.call("boom", [x])[0]
        line = here(-1)
        session.effect(lambda _: seen.append("bad"), bad)
    elif cause == "callback":
        session.effect(raising, x)
    else:
        transport, chain = session._core.transport, session._core.effects._default
        session.flush()
        missing = Effect((10_000,), chain, lambda _: seen.append("bad"), 0, 0)
        transport.send([encode_message(missing)])
    session.effect(lambda _: seen.append("after"), x)
    with pytest.raises(td.TensordError) as caught:
        session.check_chain()
    assert seen == ["before"]
    if cause != "refused":
        assert isinstance(caught.value, td.KernelError)
        assert line in (caught.value.location or "")
    else:
        assert type(caught.value) is td.ProtocolError
    fresh = session.chain()
    session.effect(lambda _: seen.append("elsewhere"), x, chain=fresh)
    session.check_chain(fresh)
    assert seen == ["before", "elsewhere"]
    assert session.stats()["session"]["errors"] == 1
    assert_sound(session)


def test_after_cancel_and_restart_side_effects_happen_again(session):
    """Behaviours 17 and 18: a cancelled print does not silence the prints that follow."""
    x = session.asarray(ones(1))
    session.sync()
    seen: list[str] = []
    with held(session, "cpu:0", "compute"):
        session.effect(lambda _: seen.append("cancelled"), x * 2.0)
        session.flush()
        session.cancel()
    session.restart()
    session.effect(lambda _: seen.append("after"), x)
    session.check_chain()
    assert seen == ["after"]
    assert_sound(session)


def test_a_callback_that_waits_is_an_error_not_a_deadlock(session):
    """Behaviour 18: callbacks run on the driving thread; they may neither send nor wait."""
    x = session.asarray(ones(1))
    session.effect(lambda _: x.numpy(), x)
    with pytest.raises(td.ProtocolError, match="may neither send nor wait"):
        session.check_chain()
    np.testing.assert_array_equal((x + x).numpy(), ones(1, value=2))


# --- 39, 40: readers and later writes


@pytest.mark.parametrize("device", ["cpu:0", "sim:0"])
def test_a_reader_sees_the_old_value_whatever_became_of_the_writes_behind_it(make_session, monkeypatch, device):
    """Behaviour 39: a slow read of x, a write of x that is skipped, a good write of x."""
    gate = make_gate(monkeypatch)
    make_op(monkeypatch, "boom", raising)
    session = make_session(devices=[THREE_WORKERS, {"name": "sim:0", "compute_streams": 2}])
    x, y = (session.asarray(ones(4, value=n), device=device) for n in (1, 5))
    bad = session.call("boom", [y])[0]
    session.sync()
    reader = session.call("slow_copy", [x])[0]
    session.call("multiply", [y, bad], out=[x])
    poisoned = x + y
    session.call("add", [y, y], out=[x])
    session.flush()
    assert gate.entered.wait(WAIT)
    assert not x.is_ready()
    gate.opened.set()
    np.testing.assert_array_equal(reader.numpy(), ones(4))
    np.testing.assert_array_equal(x.numpy(), ones(4, value=10))
    with pytest.raises(td.KernelError, match="boom"):
        poisoned.wait(WAIT)
    assert [r.status for r in records(session, "multiply")] == ["SKIPPED"]
    assert_sound(session)


@pytest.mark.parametrize("release_first", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_a_reader_through_a_view_sees_the_old_value(make_session, monkeypatch, release_first, whole):
    """Behaviour 40: a view of x is queued, x is overwritten in place, the view is released before it was read."""
    gate = make_gate(monkeypatch)
    session = make_session(devices=[THREE_WORKERS])
    x, y = session.asarray(np.arange(4, dtype=np.float32)), session.asarray(ones(4, value=5))
    view = x[1:3]
    reader = session.call("slow_copy", [view])[0]
    session.flush()
    assert gate.entered.wait(WAIT)
    if release_first:
        del view
        session.flush()
    if whole:
        session.call("add", [y, y], out=[x])
    else:
        x[0:4] = 10.0
    session.flush()
    view = None
    session.flush()
    gate.opened.set()
    np.testing.assert_array_equal(reader.numpy(), [1, 2])
    np.testing.assert_array_equal(x.numpy(), ones(4, value=10))
    assert session.stats()["devices"]["cpu:0"]["allocated"] == (4 + 4 + 2) * 4
    assert_sound(session)


# --- 45: pending metas and other sessions


def test_a_pending_meta_delays_no_other_session(make_session, monkeypatch):
    """Behaviour 45: session A has instructions with pending metas; B's are admitted and run."""
    opened = threading.Event()
    make_op(
        monkeypatch,
        "slow_unique",
        lambda xp, inputs, _outputs, _: (opened.wait(WAIT), [xp.unique(inputs[0])])[1],
        dynamic=True,
        infer=lambda *_: (None,),
    )
    a = make_session("local:shared", devices=[THREE_WORKERS])
    b = make_session("local:shared", devices=None)
    x = a.asarray([3, 1, 3])
    found = a.call("slow_unique", [x])[0]
    pending = [found + n for n in range(50)]
    a.flush()
    y = b.asarray(ones(4))
    for _ in range(100):
        y = y + 1.0
    np.testing.assert_array_equal(y.numpy(), ones(4, value=101))
    z = b.call("unique_values", [y])[0]
    assert z.shape == (1,)
    b.sync(WAIT)
    assert not found.is_ready()
    opened.set()
    np.testing.assert_array_equal(pending[7].numpy(), [8, 10])
    assert_sound(a)


def test_a_fault_of_a_stream_is_an_error_like_a_kernels(session, reports):
    """Behaviour 13: an op that fails before its kernel runs carries op, line and instruction, too."""
    device_of(session, "cpu:0").inject(Fault(FaultKind.FAIL, label="exp"))
    x = session.asarray(ones(4))
    y, line = session.call("exp", [x])[0], here()
    with pytest.raises(td.KernelError, match="injected") as caught:
        (y + x).wait(WAIT)
    assert line in (caught.value.location or "")
    assert caught.value.op == "exp"
    assert caught.value.instruction == records(session, "exp")[0].id
    assert len(reports) == 1
    assert_sound(session)


@pytest.mark.parametrize("engine", ["vm", "serial"])
def test_sync_tells_how_many_have_failed_since_the_last_one(engine):
    with td.connect("local", engine=engine) as session:
        singular = session.asarray(np.zeros((2, 2)))
        counts = []
        for n in (2, 0, 1):
            lost = [session.xp.linalg.inv(singular) for _ in range(n)]
            counts.append(session.sync())
            del lost
        assert counts == [2, 0, 1]
