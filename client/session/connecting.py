"""Opens a session in an event loop: `session = await td.connect_async(...)`, `async with td.connect_async(...)`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..waiting.helper import in_helper

if TYPE_CHECKING:
    from .session import Session


class Connecting(Coroutine[Any, Any, "Session"]):
    """A session that is being opened: a coroutine, which returns the session, and an asynchronous context manager,
    which closes it at the end of its block. If the task is cancelled, the session is closed."""

    def __init__(self, connect: Callable[[], Session]) -> None:
        self._connect = connect
        self._opening: Coroutine[Any, Any, Session] | None = None
        self._session: Session | None = None

    async def _open(self) -> Session:
        session: Session = await in_helper(self._connect, drop=close)
        session._core.run_in(asyncio.get_running_loop())
        return session

    def _coroutine(self) -> Coroutine[Any, Any, Session]:
        self._opening = self._opening or self._open()
        return self._opening

    def __await__(self) -> Generator[Any, Any, Session]:
        return self._coroutine().__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine().send(value)

    def throw(self, *given: Any) -> Any:
        return self._coroutine().throw(*given)

    def close(self) -> None:
        self._coroutine().close()

    async def __aenter__(self) -> Session:
        self._session = await self
        return self._session

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close_async()


def close(session: Session) -> None:
    """Close a session whose task no longer waits for it."""
    session.close()
