"""Room for more messages, awaited by a loop: flow control without a thread that sleeps.

A program that issues ops faster than the machine does them has to wait, and so has a loop whose tasks ask by the
thousand: a daemon ends the session of a client that leaves too much unfinished. A thread sleeps until there is room.
Here one task of the loop looks every few milliseconds, for all tasks that wait for room in that session. The daemon
tells of what it has done by itself; the background thread reads that meanwhile, as it reads answers.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from ...interpreter.errors import TensordError
from ..transport.interface import Reply

if TYPE_CHECKING:
    from ..outbox.outbox import Outbox

ENOUGH: Final = 0.5  # of a window, that may be unfinished where there is room
MOST: Final = 2.0  # windows unfinished, beyond which a question waits for room, too
PAUSE: Final = 0.002  # seconds between two looks

_looking: WeakKeyDictionary[Outbox, dict[asyncio.AbstractEventLoop, asyncio.Task[None]]] = WeakKeyDictionary()


async def room(outbox: Outbox, share: float = ENOUGH) -> None:
    """Wait until at most that share of a window is unfinished. ConnectionLost if the session ends."""
    while not outbox.transport.has_room(share):
        await asyncio.shield(look(outbox))


def look(outbox: Outbox) -> asyncio.Task[None]:
    """The running loop's task that looks for room."""
    loop = asyncio.get_running_loop()
    tasks = _looking.setdefault(outbox, {})
    task = tasks.get(loop)
    if task is None:
        task = tasks[loop] = loop.create_task(until_room(outbox))
        task.add_done_callback(lambda _: tasks.pop(loop, None))
    return task


async def until_room(outbox: Outbox) -> None:
    """Look until there is room, or the session has ended."""
    read = Reply()  # stands for what the background thread is to read
    try:
        with suppress(TensordError):
            outbox.transport.attend(read)
            while not outbox.transport.has_room(ENOUGH):  # noqa: ASYNC110 - no thread rings for room
                await asyncio.sleep(PAUSE)
    finally:
        read.set(None, None)
