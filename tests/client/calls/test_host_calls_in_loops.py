"""Host calls of sessions that were opened in an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import tensord as td

from ...behaviours.looking_inside import WAIT


def running(**options: Any) -> Callable[[Callable[[td.Session], Awaitable[None]]], None]:
    """running(...)(main): `main` is called in a loop, with a session that was opened in it."""

    async def whole(main: Callable[[td.Session], Awaitable[None]]) -> None:
        async with td.connect_async(**options) as session:
            await asyncio.wait_for(main(session), WAIT)

    return lambda main: asyncio.run(whole(main))


@pytest.fixture(params=["here", "daemon"])
def run(request: pytest.FixtureRequest) -> Callable[..., None]:
    """`running`, on a machine in this process and on a daemon."""
    here = request.param == "here"
    return running(address="local" if here else request.getfixturevalue("daemon").address)


def test_coroutines_run_on_the_loop_in_which_the_session_was_opened(run):
    async def main(session: td.Session) -> None:
        loop = asyncio.get_running_loop()
        seen: list[tuple[bool, bool]] = []

        async def function(a: Any) -> Any:
            seen.append((asyncio.get_running_loop() is loop, threading.current_thread() is threading.main_thread()))
            other = session.asarray(a) + 1  # with ops, and a wait, of its own session
            return await other.numpy_async()

        x = session.asarray([1.0, 2.0])
        results = [session.host_call(function, x, result=x) for _ in range(3)]
        assert [(await one.numpy_async()).tolist() for one in results] == [[2.0, 3.0]] * 3
        assert seen == [(True, True)] * 3

    run(main)


def test_functions_do_not_hold_up_the_loop(run):
    async def main(session: td.Session) -> None:
        go = threading.Event()

        def function(a: Any) -> Any:
            assert go.wait(WAIT)
            return a

        x = session.asarray([1.0])
        y = session.host_call(function, x, result=x)
        assert (await (x + 1).numpy_async()).tolist() == [2.0]
        go.set()
        assert (await y).numpy().tolist() == [1.0]

    run(main)


def test_a_wait_that_would_stop_the_loop_raises(run):
    async def main(session: td.Session) -> None:
        async def function(a: Any) -> Any:
            await asyncio.sleep(0)
            return a

        x = session.asarray([1.0])
        y = session.host_call(function, x, result=x)
        with pytest.raises(td.ProtocolError, match="await the tensor instead") as caught:
            y.numpy()
        assert "test_host_calls_in_loops.py" in str(caught.value.location)
        assert (await y.numpy_async()).tolist() == [1.0]

    run(main)


def test_on_the_serial_engine_a_coroutine_runs_at_once():
    async def main(session: td.Session) -> None:
        async def function(a: Any) -> Any:
            await asyncio.sleep(0)
            return a + 1

        x = session.asarray([1.0])
        assert session.host_call(function, x, result=x).numpy().tolist() == [2.0]

        async def asks(_: Any) -> Any:
            return await x.numpy_async()

        with pytest.raises(td.KernelError, match="may neither send nor wait"):
            session.host_call(asks, x, result=x).numpy()

    running(address="local", engine="serial")(main)


def test_a_loop_that_is_closed_is_an_error_of_the_call(daemon):
    async def opened() -> td.Session:
        return await td.connect_async(daemon.address)

    async def function(a: Any) -> Any:
        return a

    session = asyncio.run(opened())
    with session:
        x = session.asarray([1.0])
        with pytest.raises(td.KernelError, match="loop is closed"):
            session.host_call(function, x, result=x).numpy()
