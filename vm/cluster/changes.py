"""A signal for changes, on which coroutines wait. When a coroutine resumes, several changes may have happened."""

from __future__ import annotations

import asyncio
from contextlib import suppress


class Changes:
    """A version number, which grows with each change. For use on one event loop."""

    def __init__(self) -> None:
        self.version = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def report(self) -> None:
        """Report a change."""
        self.version += 1
        waiting, self._waiting = self._waiting, set()
        for one in waiting:
            if not one.done():
                one.set_result(None)

    async def wait(self, version: int, seconds: float | None = None) -> int:
        """Wait until the version differs from `version`, or until `seconds` have passed. Returns the version."""
        if self.version == version:
            change: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.add(change)
            try:
                with suppress(TimeoutError):
                    await asyncio.wait_for(change, seconds)
            finally:
                self._waiting.discard(change)
        return self.version
