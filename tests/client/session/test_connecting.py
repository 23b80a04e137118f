"""Sessions that a loop opens and closes."""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import Any

import pytest

import tensord as td
from tensord.client.session import connect as connect_module

from ...behaviours.looking_inside import WAIT
from ...puppet import eventually, paused
from ..waiting.test_helper import ended
from ..waiting.watching import watch


def test_a_session_is_awaited_or_opened_for_a_block(daemon, monkeypatch):
    async def main() -> None:
        async with td.connect_async(daemon.address) as first:
            second = await td.connect_async("local", devices=["cpu:0"])
            async with second:
                assert await first.asarray([1.0]).tolist_async() == await second.asarray([1.0]).tolist_async()
        third = await asyncio.create_task(td.connect_async("local", engine="serial"))
        await third.close_async()
        assert [first.closed, second.closed, third.closed] == [True] * 3

    with monkeypatch.context() as patch:
        sleeps = watch(patch)
        asyncio.run(main())
    assert sleeps == []


def test_it_takes_what_connect_takes_and_raises_what_that_raises():
    assert inspect.iscoroutinefunction(td.connect_async) is False
    with pytest.raises(TypeError, match="'nonsense'"):
        asyncio.run(td.connect_async(nonsense=1))  # type: ignore[call-arg]

    async def main() -> None:
        with pytest.raises(td.MetadataError) as caught:
            await td.connect_async("local", devices=["nothing:0"])
        assert f"test_connecting.py:{main.__code__.co_firstlineno + 2}" in (caught.value.location or "")
        with pytest.raises(td.ConnectionLost, match="no daemon listens"):
            await td.connect_async("ipc:///there/is/nobody")

    asyncio.run(main())


def test_a_loop_goes_on_while_the_daemon_does_not_answer(daemon):
    async def main() -> None:
        with paused(daemon):
            task = asyncio.create_task(td.connect_async(daemon.address))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not task.done()
        session = await asyncio.wait_for(task, WAIT)
        await session.close_async()

    asyncio.run(main())


def test_a_session_of_a_cancelled_task_is_closed(monkeypatch):
    begun, go_on = threading.Event(), threading.Event()
    opened: list[Any] = []
    connect = connect_module.connect

    def slowly(*args: Any, **kwargs: Any) -> Any:
        begun.set()
        assert go_on.wait(WAIT)
        opened.append(connect(*args, **kwargs))
        return opened[0]

    monkeypatch.setattr(connect_module, "connect", slowly)

    async def main() -> None:
        task = asyncio.create_task(td.connect_async("local"))
        await asyncio.sleep(0)
        assert begun.wait(WAIT)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    go_on.set()
    eventually(lambda: opened and ended())
    assert opened[0].closed


def test_a_cancelled_close_closes(session):
    async def main() -> None:
        task = asyncio.create_task(session.close_async())
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(main())
    eventually(ended)
    assert session.closed


def test_what_was_never_awaited_opens_nothing():
    td.connect_async("local").close()
