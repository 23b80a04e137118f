"""Room for more messages, awaited by a loop: flow control without a thread that sleeps.

A program that issues ops faster than the machine does them has to wait. A thread sleeps until there is room. Of the
tasks of a loop that wait for room in a session, the first one looks every few milliseconds, and the others wait for
that one. The daemon tells of what it has done by itself; the background thread reads that meanwhile, as it reads
answers.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary, WeakValueDictionary

from ...interpreter.errors import TensordError
from ..transport.interface import Reply

if TYPE_CHECKING:
    from ..outbox.outbox import Outbox

ENOUGH: Final = 0.5  # of a window, that may be unfinished where there is room
PAUSE: Final = 0.002  # seconds between two looks

# Set by the task that looks, which alone keeps it: a loop that is closed meanwhile leaves nothing behind.
_looking: WeakKeyDictionary[Outbox, WeakValueDictionary[asyncio.AbstractEventLoop, asyncio.Future[None]]] = (
    WeakKeyDictionary()
)


async def room(outbox: Outbox) -> None:
    """Wait until half a window is free, or the session has ended."""
    loop = asyncio.get_running_loop()
    looks = _looking.setdefault(outbox, WeakValueDictionary())
    while not outbox.transport.has_room(ENOUGH):
        seen = looks.get(loop)
        if seen is None:
            looks[loop] = seen = loop.create_future()
            await look(outbox, seen)
        else:
            await asyncio.shield(seen)


async def look(outbox: Outbox, seen: asyncio.Future[None]) -> None:
    """Look until there is room, or the session has ended, and tell the others. If cancelled, one of them goes on."""
    read = Reply()  # stands for what the background thread is to read
    try:
        with suppress(TensordError):
            outbox.transport.attend(read)
            while not outbox.transport.has_room(ENOUGH):  # noqa: ASYNC110 - no thread rings for room
                await asyncio.sleep(PAUSE)
    finally:
        read.set(None, None)
        del _looking[outbox][seen.get_loop()]
        with suppress(RuntimeError):  # the loop is closed
            seen.set_result(None)
