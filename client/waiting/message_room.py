"""How the tasks of an event loop wait until a session has room for more messages.

A program that issues ops faster than the machine executes them has to wait. Of a loop's tasks that wait for room in one
session, the first one polls every few milliseconds, since no thread announces room, and wakes the others. Meanwhile the
background thread reads the daemon's reports of progress. If the task that polls is cancelled, another one takes over.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final, TypeAlias
from weakref import WeakKeyDictionary, WeakValueDictionary

from ...interpreter.errors import TensordError
from ..transport.replies import Reply

if TYPE_CHECKING:
    from ..outbox.outbox import Outbox

ENOUGH: Final = 0.5  # the share of a window that has to be free
PAUSE: Final = 0.002  # seconds between two polls

# Each loop's future that is set once there is room. The task that polls is its only owner, so a loop that is closed
# meanwhile leaves nothing behind.
Polls: TypeAlias = "WeakValueDictionary[asyncio.AbstractEventLoop, asyncio.Future[None]]"
_polls: WeakKeyDictionary[Outbox, Polls] = WeakKeyDictionary()


async def await_room(outbox: Outbox) -> None:
    """Wait until half a window is free, or the session has ended."""
    loop = asyncio.get_running_loop()
    polls = _polls.setdefault(outbox, WeakValueDictionary())
    while not outbox.transport.has_room(ENOUGH):
        future = polls.get(loop)
        if future is None:
            polls[loop] = future = loop.create_future()
            await poll(outbox, polls, future)
        else:
            await asyncio.shield(future)


async def poll(outbox: Outbox, polls: Polls, future: asyncio.Future[None]) -> None:
    """Poll until there is room, or the session has ended; then wake the tasks that wait for `future`, also if this task
    is cancelled."""
    read = Reply()  # makes the background thread read reports of progress
    try:
        with suppress(TensordError):
            outbox.transport.attend(read)
            while not outbox.transport.has_room(ENOUGH):  # noqa: ASYNC110 - no thread announces room
                await asyncio.sleep(PAUSE)
    finally:
        read.set(None, None)
        polls.pop(future.get_loop(), None)  # the collector may have taken it already, with a closed loop
        with suppress(RuntimeError):  # the loop is closed
            future.set_result(None)
