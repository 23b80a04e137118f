"""The server: one event loop, and one thread that calls the source.

Theory. Requests and pages are tasks of the event loop. One thread asks the daemon and makes views, so there is one
question at a time, however many pages are open; each view is made once, for all of them. The poller is a task that
sleeps while no page is open, and as long as `pace` demands between two polls. A slow page gets the newest view when it
is ready again; one that receives nothing for a while is cut off.

Guarantees. The daemon is asked for nothing while no page is open and no question comes. An error of the daemon,
including its end, is reported to the pages, and the poller tries again. An unexpected exception is reported on stderr,
and affects one request, or one poll.

Rejected: a poller for each page (the daemon would pay for each); queues of views (a slow page would grow them); threads
for requests (a source would need locks).
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from ....interpreter.errors import TensordError
from .access import Access
from .answers import PATIENCE, RequestAnswers, say, state_text, text_of
from .connection_limit import ConnectionLimit
from .files import Page
from .source import ViewSource
from .viewers import Viewers

AGAIN: Final = 1.0  # seconds until a daemon that does not answer is asked again
ENDING: Final = 1.0  # seconds for pending answers when the server ends


class Server:
    """Serves a source at a socket, until it is cancelled."""

    def __init__(
        self,
        source: ViewSource,
        access: Access,
        pages: Mapping[str, Page],
        *,
        again: float = AGAIN,
        patience: float = PATIENCE,
    ) -> None:
        self.viewers = Viewers()
        self._source = source
        self._again = again
        self._thread = ThreadPoolExecutor(1, "web")
        self._answers = RequestAnswers(source, access, pages, self.viewers, self._thread, patience=patience)
        self._trouble = ""
        self.viewers.tell(state_text("connected" if source.live else "opened", **source.about()))

    async def serve(self, listening: socket.socket) -> None:
        from aiohttp import web

        server = web.Server(self._answers.answer, access_log=None, keepalive_timeout=15, lingering_time=1)
        accepting = await asyncio.get_running_loop().create_server(ConnectionLimit(server), sock=listening)
        try:
            await self._poll_while_watched()
        finally:
            accepting.close()
            self.viewers.end()
            await server.shutdown(ENDING)
            await self._answers.run(self._source.rest)
            self._thread.shutdown()

    async def _poll_while_watched(self) -> None:
        while True:
            if not self.viewers.taken.is_set():
                await self._answers.run(self._source.rest)
                await self.viewers.taken.wait()
            pause = await self._poll() if self._source.live else None
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):  # `wait_for` may swallow a cancellation
                    await self.viewers.empty.wait()

    async def _poll(self) -> float:
        """Poll once, and show the view; returns the seconds until the next poll."""
        try:
            view, pause = await self._answers.run(self._source.poll)
        except (TensordError, OSError) as error:
            return self._failed(text_of(error))
        except Exception as error:
            return self._failed(f"internal error, {type(error).__name__}: {error}")
        if self._trouble:
            self._trouble = ""
            say("the daemon answers again")
            self.viewers.tell(state_text("connected", **self._source.about()))
        self.viewers.show(view)
        return pause

    def _failed(self, why: str) -> float:
        if not self._trouble:
            say(f"the daemon does not answer: {why}")
        self._trouble = why
        self.viewers.tell(state_text("waiting", message=f"the daemon does not answer: {why}"))
        return self._again


async def until_told(server: Server, listening: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    loop = asyncio.get_running_loop()
    serving = asyncio.ensure_future(server.serve(listening))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, serving.cancel)
    with suppress(asyncio.CancelledError):
        await serving
