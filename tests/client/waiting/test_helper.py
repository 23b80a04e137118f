"""Threads for work that may take long: results, context, and results that no caller takes."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import Any

import pytest

import tensord as td
from tensord.client.locations.locations import located
from tensord.client.waiting.helper import in_helper

from ...behaviours.looking_inside import WAIT
from ...puppet import eventually

WHO: ContextVar[str] = ContextVar("who", default="")


class Slow:
    """Work that ends on request; `dropped` gets a result that no caller takes."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self.dropped: list[Any] = []

    def __call__(self) -> str:
        self.begun.set()
        assert self.go_on.wait(WAIT)
        return "done"


def ended() -> bool:
    """Is no helper's thread left?"""
    return all(each.name != "tensord helper" for each in threading.enumerate())


def test_work_has_a_thread_of_its_own_and_the_context_of_its_task():
    async def main() -> None:
        WHO.set("here")
        who, thread = await in_helper(lambda: (WHO.get(), threading.get_ident()))
        assert who == "here"
        assert thread != threading.get_ident()

    asyncio.run(main())
    eventually(ended)


def test_errors_name_the_line_that_awaits():
    def fail() -> None:
        raise located(td.MetadataError("wrong"))

    async def main() -> None:
        with pytest.raises(td.MetadataError) as caught:
            await in_helper(fail)
        assert f"test_helper.py:{main.__code__.co_firstlineno + 2}" in (caught.value.location or "")

    asyncio.run(main())
    eventually(ended)


def test_the_result_of_a_cancelled_task_is_dropped():
    slow = Slow()

    async def main() -> None:
        task = asyncio.create_task(in_helper(slow, slow.dropped.append))
        await asyncio.sleep(0)
        assert slow.begun.wait(WAIT)
        task.cancel()
        await asyncio.wait([task])
        slow.go_on.set()
        while not slow.dropped:  # noqa: ASYNC110 - another thread adds it
            await asyncio.sleep(0)

    asyncio.run(main())
    assert slow.dropped == ["done"]
    eventually(ended)


def test_the_result_is_dropped_where_the_loop_is_closed():
    slow = Slow()

    async def main() -> None:
        asyncio.create_task(in_helper(slow, slow.dropped.append))  # noqa: RUF006 - the end of the loop cancels it
        await asyncio.sleep(0)

    asyncio.run(main())
    slow.go_on.set()
    eventually(lambda: slow.dropped == ["done"] and ended())
