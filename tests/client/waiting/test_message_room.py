"""Flow control in event loops: room for ops, and questions by the thousand."""

from __future__ import annotations

import asyncio
import gc
import signal
from typing import Any

import pytest

from tensord.client.waiting import message_room
from tensord.vm import machine as machine_module

from ...behaviours.looking_inside import WAIT, assert_sound, held, machine_of
from ...daemon import Daemon
from ...puppet import eventually, is_stopped
from .watching import watch

WINDOW = 64


async def looking(session: Any, instead_of: Any = None) -> Any:
    """Wait until a task of this loop looks for room; the objects that it keeps meanwhile."""
    looking: Any = message_room._polls
    loop = asyncio.get_running_loop()
    while (found := looking.get(session._core.outbox, {}).get(loop)) in (None, instead_of):  # noqa: ASYNC110
        await asyncio.sleep(0)  # a step of the other tasks
    return found


def test_after_a_flush_there_is_room_for_half_a_window(session, monkeypatch):
    monkeypatch.setattr(machine_module, "WINDOW", WINDOW)
    x = session.asarray([1.0])
    session.sync()

    async def main() -> None:
        nonlocal x
        with held(session, "cpu:0", "compute"):
            for _ in range(WINDOW // 2 + 1):
                x += 1.0
            flushing = [asyncio.ensure_future(session.flush_async()) for _ in range(3)]
            await looking(session)
            assert not any(one.done() for one in flushing)
            flushing.pop().cancel()
        await asyncio.wait_for(asyncio.gather(*flushing), WAIT)
        assert len(machine_of(session).engine.live) <= WINDOW // 2

    with monkeypatch.context() as patch:
        sleeps = watch(patch)
        asyncio.run(main())
    assert sleeps == []
    assert x.tolist() == [WINDOW // 2 + 2.0]
    assert_sound(session)


def test_a_flush_waits_for_nothing_where_there_is_room(session):
    async def main() -> None:
        x = session.asarray([1.0])
        with held(session, "cpu:0", "compute"):
            y = x + 1
            await asyncio.wait_for(session.flush_async(), WAIT)
        assert await y.tolist_async() == [2.0]

    asyncio.run(main())


def test_the_end_of_the_session_ends_a_wait_for_room(session, monkeypatch):
    monkeypatch.setattr(machine_module, "WINDOW", WINDOW)
    x = session.asarray([1.0])
    session.sync()

    async def main() -> None:
        nonlocal x
        with held(session, "cpu:0", "compute"):
            for _ in range(WINDOW // 2 + 1):
                x += 1.0
            flushing = asyncio.ensure_future(session.flush_async())
            await looking(session)
            closing = asyncio.ensure_future(session.close_async())
            await asyncio.wait_for(flushing, WAIT)
        await closing

    asyncio.run(main())


@pytest.fixture
def narrow(tmp_path: Any) -> Any:
    """A daemon that allows few unfinished calls, and ends a session that has four times as many."""
    (tmp_path / "tensord.toml").write_text(f'devices = ["cpu:0"]\n[limits]\nwindow = {WINDOW}\n')
    with Daemon.start(tmp_path, "--config", str(tmp_path / "tensord.toml")) as running:
        yield running


def test_questions_by_the_thousand_do_not_cost_the_session(narrow):
    async def main() -> None:
        questions = [asyncio.ensure_future(x.tolist_async()) for _ in range(20 * WINDOW)]
        await asyncio.sleep(0)
        outgoing = session._core.transport._outgoing
        assert outgoing._out - outgoing.done < 3 * WINDOW
        assert outgoing.sent - outgoing.done > 19 * WINDOW
        narrow.signal(signal.SIGCONT)
        found = await asyncio.wait_for(asyncio.gather(*questions), 3 * WAIT)
        assert found == [[1.0]] * len(questions)

    with narrow.connect() as session:
        x = session.asarray([1.0])
        session.sync()
        stand_still(narrow)
        asyncio.run(main())
        assert session.sync() == 0


def stand_still(daemon: Daemon) -> None:
    """Stop the process of a daemon, until it gets SIGCONT."""
    daemon.signal(signal.SIGSTOP)
    eventually(lambda: is_stopped(daemon.pid))


def test_a_question_has_its_place_where_it_is_called_although_windows_are_unfinished(narrow):
    async def main() -> None:
        many = [x.tolist_async() for _ in range(3 * WINDOW)]
        before = x.tolist_async()
        narrow.signal(signal.SIGCONT)
        x.__iadd__(100.0)
        assert await before == [1.0]
        assert await x.tolist_async() == [101.0]
        assert await asyncio.gather(*many) == [[1.0]] * len(many)

    with narrow.connect() as session:
        x = session.asarray([1.0])
        session.sync()
        stand_still(narrow)
        asyncio.run(main())
        assert session.sync() == 0


@pytest.mark.filterwarnings("ignore:coroutine")
def test_what_stays_for_the_daemon_s_progress_leaves_although_nobody_waits(narrow):
    with narrow.connect() as session:
        x = session.asarray([1.0])
        session.sync()
        stand_still(narrow)
        dropped = [x.tolist_async() for _ in range(5 * WINDOW)]
        dropped.clear()
        assert session._core.transport._outgoing.unsent
        narrow.signal(signal.SIGCONT)
        eventually(lambda: not session._core.transport._outgoing.unsent)


def test_a_loop_that_is_closed_leaves_nothing_behind(session, monkeypatch):
    monkeypatch.setattr(machine_module, "WINDOW", WINDOW)
    x = session.asarray([1.0])
    session.sync()
    loops = [asyncio.new_event_loop() for _ in range(2)]
    with held(session, "cpu:0", "compute"):
        for _ in range(WINDOW // 2 + 1):
            x = x + 1.0
        for loop in loops:
            waits = [loop.create_task(session.flush_async()) for _ in range(3)]
            loop.run_until_complete(looking(session))
            loop.close()
            for wait in waits:
                wait._log_destroy_pending = False  # type: ignore[attr-defined]
            del wait, waits
        gc.collect()
        assert not any(message_room._polls.values())
    assert asyncio.run(flushed(session))
    assert_sound(session)


def test_another_task_looks_where_the_one_that_did_is_cancelled(session, monkeypatch):
    monkeypatch.setattr(machine_module, "WINDOW", WINDOW)
    x = session.asarray([1.0])
    session.sync()

    async def main() -> None:
        nonlocal x
        with held(session, "cpu:0", "compute"):
            for _ in range(WINDOW // 2 + 1):
                x += 1.0
            first, *others = [asyncio.ensure_future(session.flush_async()) for _ in range(3)]
            looks = await looking(session)
            first.cancel()
            await looking(session, instead_of=looks)
            assert [one.done() for one in (first, *others)] == [True, False, False]
        await asyncio.wait_for(asyncio.gather(*others), WAIT)

    asyncio.run(main())
    assert not any(message_room._polls.values())


async def flushed(session: Any) -> bool:
    """Wait for room."""
    await asyncio.wait_for(session.flush_async(), WAIT)
    return True
