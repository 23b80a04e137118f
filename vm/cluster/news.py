"""A signal for changes, for which coroutines wait. Several changes may have happened when a coroutine resumes."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class News:
    """A number that grows with each change. For one event loop."""

    def __init__(self) -> None:
        self.version = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def ring(self) -> None:
        """Something has changed."""
        self.version += 1
        waiting, self._waiting = self._waiting, set()
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def after(self, version: int, seconds: float | None = None) -> int:
        """The version, once it is another one than that, or once so many seconds have passed."""
        if self.version == version:
            one: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(one)
            try:
                with suppress(TimeoutError):
                    await asyncio.wait_for(one, seconds)
            finally:
                self._waiting.discard(one)
        return self.version
