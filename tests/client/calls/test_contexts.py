"""Contexts: tensors made inside one are released when it ends, except for kept ones."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import threading
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest

import tensord as td
from tensord.client.core.scopes import SWEEP_MARGIN
from tensord.interpreter.wire.message_kinds import RELEASE

from ...daemon import Daemon
from ...each_case import each_case
from ...puppet import eventually

HERE = r"\S*test_contexts\.py"


def alive(session):
    """How many tensors the session has on the machine."""
    return session.stats()["session"]["tensors"]


def in_thread(work):
    """Call it in another thread; its result."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


class BrokenError(Exception):
    """An exception of the user's program."""


def fail_inside(session, before=lambda: None):
    """In a context, make a tensor, do something, and raise; check that the error propagates. The handle."""
    made = []

    def program():
        with session.context():
            made.append(session.asarray([1.0]))
            before()
            raise BrokenError

    with pytest.raises(BrokenError):
        program()
    return made[0]


class TestTheEnd:
    def test_releases_what_was_made_inside_and_nothing_else(self, session):
        x = session.asarray([1.0, 2.0])
        with session.context():
            y = x + 1
            z = y * y
            assert alive(session) == 3
        assert alive(session) == 1
        assert x.tolist() == [1.0, 2.0]
        for gone in (y, z):
            assert repr(gone).endswith(" released>")

    def test_whatever_has_made_the_tensor(self, sim_session):
        s = sim_session
        x = s.asarray(np.eye(3))
        s.publish("x", x)
        made = {
            "upload": lambda: s.asarray([1.0]),
            "operator": lambda: 2.0 - x,
            "call": lambda: s.call("add", [x, x])[0],
            "several results": lambda: s.call("qr", [x])[1],
            "view": lambda: x[0],
            "view of a view": lambda: x.T[0][1],
            "move": lambda: x.to_device("sim:0"),
            "copy": x.copy,
            "lookup": lambda: s.lookup("x"),
            "snapshot": lambda: s.lookup(["x"], snapshot=True)["x"],
            "namespace": lambda: s.xp.linspace(0, 1, 3),
            "data decide its shape": lambda: s.xp.unique_values(x),
            "network": lambda: s.nn.relu(x),
            "random": lambda: s.random.normal((3,)),
        }
        before = alive(s)
        with s.context():
            inside = {name: make() for name, make in made.items()}
        assert alive(s) == before
        for name, tensor in inside.items():
            with pytest.raises(td.ProtocolError, match="when its context ended"):
                tensor.numpy()
            assert tensor._id < 0, name

    def test_a_handle_that_outlives_it_says_so_at_the_users_line(self, session):
        x = session.asarray([1.0])
        with session.context():
            y = x + 1
        uses = [
            y.numpy,
            y.wait,
            lambda: y + 1,
            lambda: x + y,
            lambda: y.shape,
            lambda: y[0],
            lambda: session.fetch([y]),
        ]
        for use in uses:
            with pytest.raises(td.ProtocolError, match=rf"its context ended \({HERE}:\d+ .*c\.keep.*\[{HERE}:\d+ "):
                use()

    def test_a_handle_that_was_released_before_says_only_that(self, session):
        with session.context():
            y = session.asarray([1.0])
            y.release()
        with pytest.raises(td.ProtocolError, match=r"was released \["):
            y.numpy()

    def test_writes_in_place_to_tensors_from_outside_stay(self, session):
        x = session.asarray([1.0, 2.0])
        with session.context():
            x += 1
            x[0] = session.asarray(7.0)
            session.call("multiply", [x, 2.0], out=[x])
        assert x.tolist() == [14.0, 6.0]

    def test_an_exception_goes_on(self, session):
        assert fail_inside(session)._id < 0

    def test_reads_prints_and_effects_issued_inside_have_their_values(self, session, capsys):
        seen = []
        with session.context():
            y = session.asarray([1.0]) + 1
            array = y.numpy()
            session.print("printed", y)
            session.effect(lambda value: seen.append(value.tolist()), y)
        session.check_chain()
        assert (array.tolist(), seen) == ([2.0], [[2.0]])
        assert capsys.readouterr().out == "printed [2.]\n"

    def test_a_name_that_was_published_inside_keeps_the_value(self, session):
        with session.context():
            session.publish("w", session.asarray([5.0]))
        assert session.lookup("w").tolist() == [5.0]

    def test_is_told_to_the_machine_without_another_call(self, session, machine_of, monkeypatch):
        machine, outbox = machine_of(session), session._core.outbox
        rouse, roused = outbox.waker.rouse, threading.Event()

        def noted():
            roused.set()
            rouse()

        with session.context():
            outlives = session.asarray(np.ones(1000))
            session.sync()
            monkeypatch.setattr(outbox, "waker", SimpleNamespace(awake=False, rouse=noted))
        assert roused.is_set()
        eventually(lambda: machine.devices["cpu:0"].allocated == 0)
        assert outlives._id < 0

    def test_comes_in_messages_of_bounded_length(self, session, monkeypatch):
        released: list[list[int]] = []
        send = session._core.transport.send

        def noted(batch):
            released.extend(message[1] for message in batch if message[0] == RELEASE)
            send(batch)

        x = session.asarray([1.0])
        with session.context():
            several = [x + 1 for _ in range(5000)]
            session.sync()
            monkeypatch.setattr(session._core.transport, "send", noted)
        session.sync()
        assert sum(map(len, released)) == 5000
        assert max(map(len, released)) <= 4096
        assert len(several) == 5000

    def test_is_not_cut_short_by_ctrl_c(self, session):
        made = []

        def program():
            with session.context() as c:
                c._scope.handles.append(once(lambda: signal.raise_signal(signal.SIGINT)))
                made.append(session.asarray([1.0]))

        with pytest.raises(KeyboardInterrupt):
            program()
        assert made[0]._id < 0
        assert not session._core.opened

    def test_leaves_the_value_of_a_piece_that_was_kept(self, session):
        with session.context() as c:
            whole = session.asarray([1.0, 2.0, 3.0])
            assert whole[0].item() == 1.0
            piece = c.keep(whole[2])
        assert piece.item() == 3.0


class TestInside:
    def test_a_dropped_handle_releases_its_tensor_at_once(self, session):
        with session.context():
            y = session.asarray([1.0])
            for _ in range(3):
                y = y + 1
            assert alive(session) == 1
            assert y.tolist() == [4.0]

    def test_it_does_not_grow_with_history(self, session):
        x = session.asarray([1.0])
        with session.context() as c:
            living = [x + 1 for _ in range(10)]
            for _ in range(10 * SWEEP_MARGIN):
                x + 1
                assert len(c._scope.handles) <= 2 * (len(living) + 1) + SWEEP_MARGIN + 1
            assert c.stats()["tensors"] == len(living)
        assert all(each._id < 0 for each in living)

    def test_it_does_not_grow_with_what_it_has_handed_on(self, session):
        x = session.asarray([1.0])
        with session.context() as c:
            kept = [c.keep(x + 1) for _ in range(3 * SWEEP_MARGIN)]
            assert len(c._scope.handles) <= SWEEP_MARGIN + 1
        assert not any(each._id < 0 for each in kept)

    def test_what_it_holds_is_shown(self, session):
        with session.context() as c:
            assert repr(c) == "<tensord.Context open, 0 tensors, 0>"
            c["w"] = session.asarray(np.ones(256))
            pending = session.xp.unique_values(c["w"])
            assert repr(c) == "<tensord.Context open, 2 tensors, 2 KiB, names w>"
            with session.context() as inner:
                inner["b"] = c["w"] + 1
                found = session.stats()["contexts"]
                assert found == [c.stats(), inner.stats()]
                assert found[1] == {"tensors": 1, "bytes": 2048, "names": ["b"]}
        assert repr(c) == "<tensord.Context ended, 0 tensors, 0>"
        assert session.stats()["contexts"] == []
        assert pending._id < 0

    def test_without_one_a_handle_knows_nothing_of_contexts(self, session):
        x = session.asarray([1.0])
        with session.context():
            pass
        assert not is_held(x)
        assert not hasattr(x + 1, "_holder")


class TestKeep:
    def test_gives_a_tensor_to_the_session(self, session):
        with session.context() as c:
            y = session.asarray([1.0])
            assert c.keep(y) is y
            assert c.stats()["tensors"] == 0
        assert y.tolist() == [1.0]
        del y
        session.sync()
        assert alive(session) == 0

    def test_gives_it_to_the_context_around(self, session):
        with session.context() as outer:
            with session.context() as inner:
                y = inner.keep(session.asarray([1.0]))
            assert y.tolist() == [1.0]
            assert outer.stats()["tensors"] == 1
        assert y._id < 0

    def test_of_an_outer_context_hands_on_what_an_inner_one_holds(self, session):
        with session.context() as outer:
            with session.context():
                y = outer.keep(session.asarray([1.0]))
            assert outer.stats()["tensors"] == 0
        assert y.tolist() == [1.0]

    def test_leaves_what_lives_longer_where_it_is(self, session):
        x = session.asarray([1.0])
        with session.context() as outer:
            y = x + 1
            with session.context() as inner:
                inner.keep([x, y])
            assert outer.stats()["tensors"] == 1
        assert x.tolist() == [1.0]
        assert y._id < 0

    def test_takes_nested_structures(self, session):
        pair = namedtuple("pair", "a b")  # noqa: PYI024 - as users write them

        @dataclass
        class Layer:
            weight: object
            name: str = "layer"

        t = [session.asarray([float(n)]) for n in range(7)]
        with session.context() as c:
            u = [each + 1 for each in t]
            given = {"w": u[0], "list": [u[1], (u[2], None, 3.5, np.float32(1))], "pair": pair(u[3], np.ones(2))}
            given["layer"] = Layer(u[4])
            given["itself"] = given
            assert c.keep(given) is given
            c.keep({u[5]})
        assert [each._id < 0 for each in u] == [False] * 6 + [True]

    @each_case("kept", ["w", None, 3.0, object(), np.ones(2)], ids=lambda kept: type(kept).__name__)
    def test_refuses_what_is_no_tensor(self, session, kept):
        with (
            session.context() as c,
            pytest.raises(td.MetadataError, match=r"keep: takes a tensor, or dicts.*test_contexts\.py"),
        ):
            c.keep(kept)

    def test_keeps_nothing_of_a_structure_with_something_it_cannot_search(self, session):
        class Network:
            pass

        with session.context() as c:
            y = session.asarray([1.0])
            with pytest.raises(TypeError, match="not Network"):
                c.keep([y, Network()])
            with pytest.raises(td.ProtocolError, match="was released"):
                c.keep([y, released(session)])
            assert c.stats()["tensors"] == 1

    def test_refuses_a_tensor_of_another_session(self, make_session):
        one, other = make_session("local:both"), make_session("local:both")
        with one.context() as c, pytest.raises(td.MetadataError, match=r"another session.*test_contexts\.py"):
            c.keep(other.asarray([1.0]))


def released(session):
    """A released handle."""
    tensor = session.asarray([1.0])
    tensor.release()
    return tensor


class TestNames:
    def test_find_tensors_here_and_in_the_contexts_around(self, session):
        with session.context() as outer:
            outer["w"] = w = session.asarray([1.0])
            outer["b"] = session.asarray([2.0])
            with session.context() as inner:
                inner["b"] = b = session.asarray([3.0])
                assert inner["w"] is w
                assert inner["b"] is b
                assert inner.names() == list(inner) == ["b", "w"]
                assert "w" in inner
                assert "x" not in inner
                assert 7 not in inner
                del inner["b"]
                assert inner["b"].tolist() == [2.0]
            assert outer.names() == ["b", "w"]

    def test_keep_their_tensors_alive_until_the_end(self, session):
        with session.context() as c:
            c["w"] = session.asarray([1.0])
            assert c["w"].tolist() == [1.0]
            c["w"] = c["w"] + 1
            assert c["w"].tolist() == [2.0]
            assert alive(session) == 1
        assert alive(session) == 0

    def test_take_over_what_an_inner_context_holds(self, session):
        with session.context() as outer:
            with session.context() as inner:
                outer["w"] = session.asarray([1.0])
                assert inner["w"].tolist() == [1.0]
            assert outer["w"].tolist() == [1.0]
            assert outer.stats()["tensors"] == 1
        assert alive(session) == 0

    def test_leave_a_tensor_from_outside_to_its_holder(self, session):
        x = session.asarray([1.0])
        with session.context() as c:
            c["x"] = x
            assert c.stats()["tensors"] == 0
        assert x.tolist() == [1.0]

    def test_a_missing_one_is_a_key_error_that_tells_which_there_are(self, session):
        with session.context() as outer, session.context() as inner:
            outer["w"] = session.asarray([1.0])
            for error in (KeyError, td.MetadataError):
                with pytest.raises(error, match=r"there is no 'v' in this context.*\(names: w\).*test_contexts\.py"):
                    inner["v"]
            with pytest.raises(KeyError, match=r"this context itself has no name 'w'.*test_contexts\.py"):
                del inner["w"]

    @each_case("name", [7, None, "", " ", "a\nb"])
    def test_are_printable_text(self, session, name):
        with session.context() as c, pytest.raises(td.MetadataError, match=r"name (is|must be).*test_contexts\.py"):
            c[name] = session.asarray([1.0])

    @each_case("value", [7, None, np.ones(2)], ids=str)
    def test_are_names_of_tensors(self, session, value):
        with session.context() as c, pytest.raises(TypeError, match=r"expected a tensor.*test_contexts\.py"):
            c["w"] = value

    def test_of_a_released_tensor_say_that_it_was_released(self, session):
        with session.context() as c:
            c["w"] = w = session.asarray([1.0])
            w.release()
            with pytest.raises(td.ProtocolError, match="was released"):
                c["w"]


class TestItsLife:
    def test_it_can_end_early_and_the_rest_of_the_block_is_outside(self, session):
        with session.context() as outer:
            with session.context() as c:
                y = session.asarray([1.0])
                c.finalize()
                assert c.ended
                assert y._id < 0
                z = session.asarray([2.0])
                c.finalize()
            assert z.tolist() == [2.0]
            assert outer.stats()["tensors"] == 1

    def test_it_is_opened_once(self, session):
        c = session.context()
        with c, pytest.raises(td.ProtocolError, match=r"is open already.*test_contexts\.py"):
            c.__enter__()
        with pytest.raises(td.ProtocolError, match=r"has ended: make another one.*test_contexts\.py"):
            c.__enter__()

    @each_case("use", ["names", "keep", "__iter__", "__getitem__", "__delitem__", "__contains__"])
    def test_it_is_used_between_its_beginning_and_its_end(self, session, use):
        c, arguments = session.context(), () if use in {"names", "__iter__"} else ("w",)
        for state in ("is not open yet", "has ended"):
            with pytest.raises(td.ProtocolError, match=rf"this context {state}.*test_contexts\.py"):
                getattr(c, use)(*arguments)
            c.finalize()

    def test_one_that_ends_before_those_inside_leaves_them_open(self, session):
        outer = session.context()
        outer.__enter__()
        outer["w"] = session.asarray([1.0])
        with session.context() as inner:
            y = session.asarray([2.0])
            outer.finalize()
            assert y.tolist() == [2.0]
            assert "w" not in inner
            kept = inner.keep(y + 1)
        assert y._id < 0
        assert kept.tolist() == [3.0]
        assert not is_held(session.asarray([1.0]))

    def test_generators_may_end_theirs_in_any_order(self, session):
        def values():
            with session.context():
                yield session.asarray([1.0])

        first, second = values(), values()
        x, y = next(first), next(second)
        assert list(first) == []
        assert (x._id < 0, y._id < 0) == (True, False)
        z = session.asarray([2.0])
        assert list(second) == []
        assert (y._id < 0, z._id < 0) == (True, True)
        assert not session._core.opened
        assert session.asarray([3.0]).tolist() == [3.0]

    def test_a_session_closed_inside_hides_no_error(self, make_session):
        session = make_session()
        y = fail_inside(session, session.close)
        with pytest.raises(td.ProtocolError, match="when its context ended"):
            y.numpy()

    def test_a_machine_that_is_lost_inside_hides_no_error(self, session):
        lost = td.ConnectionLost("the machine has ended for the test")
        assert fail_inside(session, lambda: session._core.outbox.lost(lost))._id < 0

    def test_a_daemon_that_dies_inside_hides_no_error(self, tmp_path):
        with Daemon.start(tmp_path, "--device", "cpu:0") as daemon, daemon.connect() as session:

            def die():
                session.sync()
                daemon.kill()
                eventually(lambda: session.closed)

            assert fail_inside(session, die)._id < 0

    def test_a_session_cancelled_inside_releases_all_the_same(self, session):
        with session.context():
            y = session.asarray([1.0]) + 1
            session.cancel()
        session.restart()
        assert alive(session) == 0
        assert y._id < 0

    def test_it_may_end_inside_an_atomic_block_and_around_one(self, session):
        x = session.asarray([1.0])
        with session.atomic(), session.context() as c:
            y = x + 1
            z = c.keep(y * 2)
        assert (y._id < 0, z.tolist()) == (True, [4.0])
        with session.context(), session.atomic():
            y = x + 1
        assert alive(session) == 2

    def test_a_forked_child_that_ends_it_leaves_it_to_the_parent(self, session):
        with session.context() as c:
            y = session.asarray([1.0])
            session.sync()
            child = os.fork()
            if not child:
                c.finalize()
                os._exit(0 if y._id < 0 else 1)
            assert os.waitpid(child, 0)[1] == 0
            assert y.tolist() == [1.0]
        assert y._id < 0

    def test_a_closed_session_has_contexts_that_hold_nothing(self, make_session):
        session = make_session()
        session.close()
        with session.context() as c:
            assert c.names() == []


class TestThreads:
    def test_one_is_open_in_its_own_thread_alone(self, session):
        with session.context() as c:
            y = in_thread(lambda: session.asarray([1.0]))
            assert c.stats()["tensors"] == 0
        assert y.tolist() == [1.0]

    def test_each_has_its_own(self, session):
        both_open = threading.Barrier(2)

        def work():
            with session.context() as c:
                y = session.asarray([1.0])
                both_open.wait(10)
                z = y + 1
                both_open.wait(10)
                return c.stats()["tensors"], c.keep(z), y

        with session.context() as c:
            found = []
            thread = threading.Thread(target=lambda: found.append(work()))
            thread.start()
            both_open.wait(10)
            mine = session.asarray([3.0])
            assert len(session._core.opened) == 2
            both_open.wait(10)
            thread.join()
            assert c.stats()["tensors"] == 1
        ((count, z, y),) = found
        assert (count, z.tolist(), y._id < 0, mine._id < 0) == (2, [2.0], True, True)

    def test_one_may_be_ended_by_another_thread(self, session):
        with session.context() as outer:
            inner = session.context()
            inner.__enter__()
            y = session.asarray([1.0])
            in_thread(inner.finalize)
            assert y._id < 0
            assert not inner._scope.handles
            for _ in range(3):
                z = session.asarray([2.0])
            assert len(inner._scope.handles) <= 1
            assert outer.stats()["tensors"] == 1
            inner.__exit__(None, None, None)
            assert z.tolist() == [2.0]
        assert z._id < 0
        assert not session._core.opened

    def test_a_handle_that_comes_when_its_context_has_just_ended_goes_to_the_one_around(self, session):
        with session.context() as outer:
            with session.context():
                late = contextvars.copy_context()
            y = late.run(session.asarray, [1.0])
            z = late.run(lambda: y + 1)
            assert outer.stats()["tensors"] == 2
            assert (y.tolist(), z.tolist()) == ([1.0], [2.0])
        assert y._id < 0
        assert z._id < 0

    def test_an_end_in_the_middle_of_a_sweep_is_the_end(self, session):
        x = session.asarray([1.0])
        with session.context() as outer:
            with session.context() as c:
                several = [x + 1 for _ in range(SWEEP_MARGIN - 1)]
                late = contextvars.copy_context()
                c._scope.handles.append(once(c.finalize))
                several.append(x + 1)
                assert c.ended
                y = late.run(lambda: x + 1)
            assert outer.stats()["tensors"] == 1
        assert all(each._id < 0 for each in (*several, y))

    def test_it_may_be_ended_from_a_copy_of_the_contextvars(self, session):
        with session.context() as c:
            y = session.asarray([1.0])
            contextvars.copy_context().run(c.finalize)
            assert y._id < 0
            z = session.asarray([2.0])
        assert z.tolist() == [2.0]

    def test_a_handle_is_released_once_however_many_release_it(self, session, monkeypatch):
        x = session.asarray([1.0])
        released: list[int] = []

        def release(id_):
            released.append(id_)
            x.release()

        monkeypatch.setattr(session._core, "release", release)
        x.release()
        assert released == [-x._id]

    def test_what_is_made_while_another_thread_ends_it_is_released_or_handed_on(self, session):
        x = session.asarray([1.0])
        for _ in range(10):
            made: list[td.Tensor] = []
            c, begun = session.context(), threading.Event()

            def work(c=c, made=made, begun=begun):
                with c:
                    for _ in range(400):
                        made.append(x + 1)
                        begun.set()

            thread = threading.Thread(target=work)
            thread.start()
            begun.wait(10)
            c.finalize()
            thread.join()
            left = [each for each in made if not each._id < 0]
            assert not any(map(is_held, left))
            assert alive(session) == 1 + len(left)
            assert len(made) == 400


def is_held(tensor):
    """Is the tensor held by a context?"""
    return getattr(tensor, "_holder", None) is not None


def once(act):
    """An entry of a handle that is gone; it does something when it is first looked at."""
    acts = [act]
    return lambda: acts.pop()() if acts else None


class TestTasks:
    def test_each_has_its_own_inside_that_of_its_maker(self, session):
        x = session.asarray([1.0])

        async def work(turns):
            with session.context() as mine:
                for _ in range(turns):
                    mine["y"] = y = x + 1
                    await asyncio.sleep(0)
                    assert mine.stats()["tensors"] == 1
                assert "w" in mine
            assert y._id < 0
            return x + turns

        async def main():
            with session.context() as c:
                c["w"] = x
                found = await asyncio.gather(work(2), work(3))
                assert c.stats()["tensors"] == 2
                return c.keep(found)

        found = asyncio.run(main())
        assert [each.tolist() for each in found] == [[3.0], [4.0]]


class TestRoutines:
    def test_what_one_returns_inside_belongs_to_the_context(self, session):
        double = session.routine(lambda x: x * 2)
        x = session.asarray([1.0])
        with session.context() as c:
            y, kept = double(x), c.keep(double(x))
        assert y._id < 0
        assert kept.tolist() == double(x).tolist() == [2.0]

    def test_one_that_is_captured_inside_keeps_its_constants(self, session):
        def add(x):
            return x + session.asarray([1.0, 2.0])

        routine = session.routine(add)
        x = session.asarray([1.0, 1.0])
        for _ in range(3):
            with session.context() as c:
                y = c.keep(routine(x))
            assert y.tolist() == [2.0, 3.0]
        assert routine.captures == 1

    def test_one_may_be_open_in_the_function_that_is_captured(self, session):
        def norm(x):
            with session.context() as c:
                c["square"] = x * x
                return c.keep(session.xp.sum(c["square"]))

        routine = session.routine(norm)
        x = session.asarray([3.0, 4.0])
        assert [each(x).item() for each in (norm, routine, routine)] == [25.0] * 3
        assert routine.captures == 1
