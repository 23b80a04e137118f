"""Two sessions of one machine: tensors shared by name, and the effects of one session's end or cancellation on the
other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

import tensord as td
from tensord.client.session.session import Session

from .looking_inside import WAIT, address, allocated, assert_sound, device_of, held, machine_of, ones, records, until

DEVICES = ["cpu:0", "sim:0"]
Pair = tuple[Session, Session]


@pytest.fixture
def pair(make_session: Callable[..., Session], request: pytest.FixtureRequest) -> Pair:
    """Two sessions on one machine."""
    address = f"local:{request.node.name}"
    return make_session(address, devices=DEVICES), make_session(address, devices=DEVICES)


def end(session: Session, how: str) -> None:
    """Cancel the session, or close it."""
    if how == "cancel":
        session.cancel()
    else:
        session.close()


@pytest.fixture(params=["cancel", "close"])
def how(request: pytest.FixtureRequest) -> str:
    """The two ways in which a session stops."""
    return str(request.param)


def test_sessions_share_one_machine_and_its_tensors(pair):
    """Behaviour 35: two sessions use one published tensor; it lives as long as one of them, or its name, holds it."""
    a, b = pair
    assert machine_of(a) is machine_of(b)
    x = a.asarray(ones(16), device="sim:0").wait(WAIT)
    a.publish("x", x)
    y = b.lookup("x")
    assert address(b, y, "sim:0") == address(a, x, "sim:0")
    x += 1.0
    x.wait(WAIT)
    np.testing.assert_array_equal(y.numpy(), ones(16, value=2.0))  # one tensor, two handles
    x.release()
    a.unpublish("x")
    assert allocated(a, "sim:0") == 64
    np.testing.assert_array_equal(y.numpy(), ones(16, value=2.0))
    y.release()
    b.flush()
    until(b, lambda: not machine_of(b).engine.live)
    assert allocated(a, "sim:0") == 0
    assert_sound(a)
    assert_sound(b)


def test_a_dict_of_names_goes_atomically(pair):
    """Behaviour 35: several names are published, and looked up, at once."""
    a, b = pair
    a.publish({"w": a.asarray(ones(2)), "b": a.asarray(ones(3, value=2.0))})
    both = b.lookup(["w", "b"])
    assert {name: tensor.shape for name, tensor in both.items()} == {"w": (2,), "b": (3,)}
    with pytest.raises(td.MetadataError, match="nothing is published as 'nothing'"):
        b.lookup(["w", "nothing"])
    assert b.stats()["session"]["tensors"] == 2
    assert_sound(b)


def test_what_another_session_holds_comes_out_right(pair, how):
    """Behaviour 42: A stops while its instructions write a tensor that B holds: B's value is right."""
    a, b = pair
    x = a.asarray(ones(16)).wait(WAIT)
    a.publish("x", x)
    mine = b.lookup("x")
    with held(b, "cpu:0", "compute"):
        step = x + 1.0  # A's own, but B needs it
        doubled = step * 2.0
        a.call("add", [doubled, 0.0], out=[x])
        useless = doubled - 1.0
        own = useless * 3.0
        a.flush()
        end(a, how)
    if how == "cancel":
        with pytest.raises(td.CancelledError):
            own.wait(WAIT)
    np.testing.assert_array_equal(mine.numpy(), ones(16, value=4.0))
    assert mine.error is None
    until(b, lambda: not machine_of(b).engine.live)
    del own, useless
    assert records(b, "multiply")[0].status == "DONE"
    assert [r.status for r in records(b, "subtract") + records(b, "multiply")[1:]] == ["CANCELLED"] * 2
    assert b.stats()["failed"] == 0
    assert_sound(b)


def test_the_transfers_that_others_need_are_followed_to_their_sources(pair, how):
    """Behaviour 42: also where a planned transfer lies between the tensor that B holds and the one that A computed for
    it.
    """
    a, b = pair
    x = a.asarray(ones(16)).wait(WAIT)
    target = a.asarray(ones(16), device="sim:0").wait(WAIT)
    a.publish("target", target)
    mine = b.lookup("target")
    with held(b, "cpu:0", "compute"):
        first = x + 1.0
        second = first * 5.0  # on the host; the device needs it
        a.call("add", [target, second], out=[target])
        a.flush()
        end(a, how)
    np.testing.assert_array_equal(mine.numpy(), ones(16, value=11.0))
    until(b, lambda: not machine_of(b).engine.live)
    assert {r.status for r in records(b, opcode="Transfer")} == {"DONE"}
    assert_sound(b)


def test_a_view_that_another_session_took_comes_out_right(pair, how):
    """Behaviour 42: B holds no handle to the tensor any more, only a view of its storage."""
    a, b = pair
    x = a.asarray(ones(4, 4)).wait(WAIT)
    with held(b, "cpu:0", "compute"):
        result = x + 1.0
        a.publish("result", result)
        row = b.lookup("result")[1]
        b.flush()
        a.unpublish("result")
        a.flush()
        end(a, how)
    np.testing.assert_array_equal(row.numpy(), ones(4, value=2.0))
    assert_sound(b)


def test_a_queued_reader_of_another_session_comes_out_right(pair, how):
    """Behaviour 42: B holds nothing of A's any more, but has an instruction queued that reads it."""
    a, b = pair
    seen: list[object] = []
    x = a.asarray(ones(16)).wait(WAIT)
    with held(b, "cpu:0", "compute"):
        result = x + 1.0
        useful = result * 2.0
        a.publish({"result": result, "useful": useful})
        taken, shown = b.lookup("result"), b.lookup("useful")
        total = b.call("multiply", [taken, 10.0])[0]
        b.effect(lambda values: seen.append(values.tolist()), shown)  # A has nothing left that B could hold
        taken.release()
        shown.release()
        b.flush()
        a.unpublish("result", "useful")
        a.flush()
        end(a, how)
    np.testing.assert_array_equal(total.numpy(), ones(16, value=20.0))
    b.check_chain()
    assert seen == [[4.0] * 16]
    assert_sound(b)


def test_a_name_alone_protects_what_it_names(pair, how):
    """Behaviour 42: only a name holds the tensor when A stops."""
    a, b = pair
    x = a.asarray(ones(16)).wait(WAIT)
    with held(b, "cpu:0", "compute"):
        a.publish("later", x + 41.0)
        a.flush()
        end(a, how)
    np.testing.assert_array_equal(b.lookup("later").numpy(), ones(16, value=42.0))
    assert_sound(b)


def test_a_cancelled_session_cannot_spoil_what_others_hold(pair):
    """Behaviour 42: messages of A after its cancellation are refused; a shared tensor in them keeps its value."""
    a, b = pair
    x = a.asarray(ones(16))
    a.publish("x", x)
    mine = b.lookup("x")
    a.cancel()
    x += 1.0
    a.call("setitem", [x, 9.0], {"index": (0,)}, out=[x])
    a.flush()
    np.testing.assert_array_equal(mine.numpy(), ones(16))
    a.restart()
    x += 1.0
    x.wait(WAIT)
    np.testing.assert_array_equal(mine.numpy(), ones(16, value=2.0))
    assert_sound(a)
    assert_sound(b)


def test_another_session_s_work_is_not_cancelled(pair, how):
    """Behaviour 42: other sessions notice nothing."""
    a, b = pair
    ya, yb = a.asarray(ones(16)).wait(WAIT), b.asarray(ones(16)).wait(WAIT)
    with held(b, "cpu:0", "compute"):
        for _ in range(50):
            ya = ya + 1.0
            yb = yb + 1.0
        a.flush()
        b.flush()
        end(a, how)
    np.testing.assert_array_equal(yb.numpy(), ones(16, value=51.0))
    assert b.stats()["session"]["cancelled"] is False
    if how == "cancel":
        with pytest.raises(td.CancelledError):
            ya.numpy()
    del ya
    if how == "cancel":
        a.flush()
    assert_sound(b)


def test_a_closed_session_s_tensors_are_gone_except_those_published(pair):
    """Behaviour 42: a session ends: its tensors are gone, memory is back at its baseline, names keep theirs."""
    a, b = pair
    kept = a.asarray(ones(16), device="sim:0")
    a.publish("kept", kept)
    rest = [a.asarray(ones(1000), device=d) for d in DEVICES for _ in range(3)]
    a.sync(WAIT)
    assert allocated(b, "sim:0") == 64 + 12_000
    a.close()
    until(b, lambda: not machine_of(b).engine.live)
    assert (allocated(b, "cpu:0"), allocated(b, "sim:0")) == (0, 64)
    np.testing.assert_array_equal(b.lookup("kept").numpy(), ones(16))
    b.unpublish("kept")
    b.sync(WAIT)
    assert allocated(b, "sim:0") == 0
    with pytest.raises(td.ConnectionLost):
        rest[0].numpy()
    assert_sound(b)


def test_cancelling_while_the_other_session_reads_from_its_own_thread(pair):
    """Behaviour 42: A writes and is cancelled again and again while B reads the tensor: no error reaches B."""
    a, b = pair
    x = a.asarray(ones(16))
    a.publish("x", x)
    mine = b.lookup("x")
    problems: list[BaseException] = []
    stop = threading.Event()

    def read() -> None:
        try:
            while not stop.is_set():
                values = mine.numpy()
                assert (values == values[0]).all()
        except BaseException as error:  # handed to the test
            problems.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(60):
        for _ in range(5):
            step = x + 1.0
            a.call("add", [step, 0.0], out=[x])
        a.flush()
        a.cancel()
        a.restart()
    stop.set()
    reader.join(WAIT)
    assert problems == []
    assert mine.error is None
    np.testing.assert_array_equal(mine.numpy(), ones(16, value=301.0))
    assert_sound(b)


def test_two_sessions_on_a_tight_device_share_its_memory(make_session, request):
    """Behaviour 43: two half-admitted programs neither deadlock nor fail where either would have fitted."""
    where = f"local:{request.node.name}"
    devices = ["cpu:0", {"name": "sim:0", "memory": 4096, "inline": False}]
    sessions = [make_session(where, devices=devices) for _ in range(2)]
    results = []
    with held(sessions[0], "sim:0", "compute"):
        for step in range(10):
            for number, s in enumerate(sessions):
                x = s.asarray(ones(256, value=step + number))
                total = s.call("sum", [s.call("add", [x, 1.0], device="sim:0")[0]])[0].to_device("cpu:0")
                results.append((total, 256.0 * (step + number + 1)))
                del x
                s.flush()
    assert [total.item() for total, _ in results] == [expected for _, expected in results]
    assert sessions[0].stats()["failed"] == 0
    for s in sessions:
        assert_sound(s)


def test_nobody_sees_half_of_an_atomic_group(pair):
    """Two tensors are always written together: a reader of both at once finds them equal."""
    a, b = pair
    names = ["x", "y"]
    a.publish({name: a.asarray(ones(16)) for name in names})
    mine = a.lookup(names)
    problems: list[BaseException] = []
    rounds, stop = [0], threading.Event()

    def read() -> None:
        try:
            while not stop.is_set():
                both = b.lookup(names, snapshot=True)
                np.testing.assert_array_equal(both["x"].numpy(), both["y"].numpy())
                rounds[0] += 1
        except BaseException as error:  # handed to the test
            problems.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    step = -1
    while step < 99 or (not rounds[0] and reader.is_alive()):
        step += 1
        with a.atomic():
            for tensor in mine.values():
                a.call("add", [tensor, 1.0], out=[tensor])
                a.call("multiply", [tensor, 1.0], out=[tensor])
                a.call("setitem", [tensor, float(step)], {"index": (0,)}, out=[tensor])
    stop.set()
    reader.join(WAIT)
    assert problems == []
    assert rounds[0]
    assert mine["y"].tolist() == [step] + [step + 2] * 15
    assert_sound(a)
    assert_sound(b)


def test_a_dict_published_inside_of_a_group_goes_with_what_it_holds(pair):
    a, b = pair
    x = a.asarray(ones(4))
    with a.atomic():
        total = a.asarray([0.0])
        total += 4.0
        a.publish({"x": x, "total": total})
    assert b.lookup(["x", "total"])["total"].tolist() == [4.0]
    assert_sound(b)


def test_a_snapshot_is_untouched_by_later_writes(pair):
    a, b = pair
    x = a.asarray(ones(16), device="sim:0")
    a.publish("x", x)
    live, snapshot = b.lookup("x"), b.lookup("x", snapshot=True)
    b.sync()
    assert allocated(b, "sim:0") == 64
    with held(a, "sim:0", "compute"):
        x += 1.0
        a.flush()
        during = b.lookup("x", snapshot=True)
        x += 1.0
        a.flush()
        a.unpublish("x")
    assert [t.tolist()[0] for t in (live, snapshot, during)] == [3.0, 1.0, 2.0]
    assert snapshot.device == "sim:0"
    snapshot += 10.0
    assert [t.tolist()[0] for t in (x, live, snapshot)] == [3.0, 3.0, 11.0]
    assert_sound(a)
    assert_sound(b)


def test_who_floods_a_device_keeps_no_other_session_waiting(pair):
    """A stream has many kernels of one session; another session's kernel goes in front of all but a few of them."""
    a, b = pair
    big = np.ones((600, 600), np.float32)  # too large for the driving thread
    x, y = a.asarray(big), b.asarray(big)
    (x @ x).wait(WAIT)
    (y @ y).wait(WAIT)
    with held(a, "cpu:0", "compute"):
        flood = [x @ x for _ in range(24)]
        a.flush()
        result = y @ y
        b.flush()
        queued = sum(device_of(a, "cpu:0").streams[n].queued for n in range(len(device_of(a, "cpu:0").compute)))
        assert queued <= 5 * len(device_of(a, "cpu:0").compute)
    result.wait(WAIT)
    done = records(a, "matmul")
    mine = latest_of(done, b)
    ahead = [r for r in done if r.session == a._core.transport._session.id and r.started < mine.started]
    # On its own stream, so that progress of another stream keeps no session waiting.
    assert len([r for r in ahead if r.started and r.stream == mine.stream]) <= 1 + 4
    assert [t.numpy()[0, 0] for t in flood[:1] + flood[-1:]] == [600.0, 600.0]
    assert_sound(a)
    assert_sound(b)


def latest_of(found, session):
    """The session's instruction that started last among these."""
    return max((r for r in found if r.session == session._core.transport._session.id), key=lambda r: r.started)
