"""The answers to requests: the page, its files, its views, and questions about what is shown."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from ....interpreter.errors import TensordError
from .access import Access, Refused
from .files import INDEX, Page
from .source import UnknownError, ViewSource
from .viewers import Viewer, Viewers

if TYPE_CHECKING:
    from aiohttp import web

T = TypeVar("T")

PATIENCE: Final = 30.0  # seconds for a page to receive a view
HEARTBEAT: Final = 20.0
MAX_MESSAGE_BYTES: Final = 1024  # bytes of a message of a page, which needs none
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def say(line: str) -> None:
    """Print a line for the operator."""
    sys.stderr.write(f"tensord web: {line}\n")
    sys.stderr.flush()


class RequestAnswers:
    """Answers to requests. `thread`: the thread that calls the source."""

    def __init__(
        self,
        source: ViewSource,
        access: Access,
        pages: Mapping[str, Page],
        viewers: Viewers,
        thread: Executor,
        *,
        patience: float = PATIENCE,
    ) -> None:
        self._source = source
        self._access = access
        self._pages = pages
        self._viewers = viewers
        self._thread = thread
        self._patience = patience
        self._questions: Mapping[str, Callable[[str, Mapping[str, str]], Any]] = {
            "why": lambda id_, _query: {"text": source.why(natural(id_))},
            "tensor": lambda id_, query: source.tensor(natural(id_), natural(query.get("session", "0"))),
            "advice": lambda rest, _query: source.advice() if not rest else not_there(),
        }

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to any request; an error of ours affects only that request."""
        try:
            return await self._answer(request)
        except Refused as refused:
            return self._error(refused.status, refused.reason)
        except UnknownError as error:
            return self._error(HTTPStatus.NOT_FOUND, error.message)
        except (TensordError, OSError) as error:
            return self._error(HTTPStatus.SERVICE_UNAVAILABLE, text_of(error))
        except Exception as error:
            say(f"{request.method} {request.path}: {type(error).__name__}: {error}")
            return self._error(HTTPStatus.INTERNAL_SERVER_ERROR, f"internal error, {type(error).__name__}")

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self._access.check(request.headers, request.cookies, request.query)
        if request.method not in {"GET", "HEAD"}:
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "GET or HEAD")
        section, _, rest = request.path.removeprefix("/").partition("/")
        if not section:
            return self._page()
        if section == "static":
            return self._file(self._pages.get(rest))
        if section == "api" and rest == "views":
            return await self._views(request)
        what, _, rest = rest.partition("/")
        if section != "api" or what not in self._questions:
            not_there()
        return await self._respond(partial(self._questions[what], rest, request.query))

    def _page(self) -> web.StreamResponse:
        """The page, with the token as a cookie, which its requests send back."""
        response = self._file(self._pages.get(INDEX))
        response.set_cookie(self._access.cookie, self._access.token, httponly=True, samesite="Strict", path="/")
        return response

    def _file(self, page: Page | None) -> web.Response:
        from aiohttp import web

        if page is None:
            not_there()
        return web.Response(body=page.body, headers={**HEADERS, "Content-Type": page.kind})

    async def _respond(self, question: Callable[[], Any]) -> web.StreamResponse:
        """The answer of the source, which is refreshed first if no page is open."""

        def ask() -> Any:
            if not polled:
                self._source.refresh()
            return question()

        polled = self._viewers.taken.is_set()
        try:
            return self._json(HTTPStatus.OK, await self.run(ask))
        finally:
            if not self._viewers.taken.is_set():
                await self.run(self._source.rest)

    def _json(self, status: HTTPStatus, value: Any) -> web.StreamResponse:
        from aiohttp import web

        return web.json_response(value, status=status, headers=HEADERS)

    def _error(self, status: HTTPStatus, reason: str) -> web.StreamResponse:
        return self._json(status, {"error": reason})

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    # -- views ---------------------------------------------------------------------------------------------------------

    async def _views(self, request: web.BaseRequest) -> web.StreamResponse:
        from aiohttp import web

        socket = web.WebSocketResponse(heartbeat=HEARTBEAT, max_msg_size=MAX_MESSAGE_BYTES, compress=False, timeout=1.0)
        if not socket.can_prepare(request):
            raise Refused(HTTPStatus.BAD_REQUEST, "views are sent over a WebSocket")
        viewer = self._viewers.join()
        if viewer is None:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "too many pages are open: close some of them")
        try:
            await socket.prepare(request)
            await self._serve(socket, viewer, request)
        except (ConnectionError, TimeoutError):
            pass  # it is gone, or has not received a view in time
        except Exception as error:  # the socket is the answer, so no other can be given
            say(f"{request.path}: {type(error).__name__}: {error}")
        finally:
            self._viewers.leave(viewer)
        return socket

    async def _serve(self, socket: web.WebSocketResponse, viewer: Viewer, request: web.BaseRequest) -> None:
        """Send views until the server ends, or the page is gone, receives none in time, or sends a message."""
        sending, heard = asyncio.ensure_future(self._send(socket, viewer)), asyncio.ensure_future(socket.receive())
        try:
            await asyncio.wait({sending, heard}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
                await socket.close(code=1001, message=b"the server of this page has ended")
            else:
                await socket.close(code=1008, message=b"a page must not send messages")
        finally:
            for task in (sending, heard):
                task.cancel()
            await asyncio.wait({sending, heard})
            if not socket.closed and request.transport is not None:
                request.transport.abort()

    async def _send(self, socket: web.WebSocketResponse, viewer: Viewer) -> None:
        history = await self.run(self._source.history)
        if history is not None:
            viewer.show_history(history)
        while not viewer.ended:
            for text in await viewer.next():
                async with asyncio.timeout(self._patience):
                    await socket.send_str(text)


def state_text(state: str, **about: Any) -> str:
    return json.dumps({"state": state, **about})


def text_of(error: Exception) -> str:
    """The error in one line."""
    return error.message if isinstance(error, TensordError) else str(error)


def natural(text: str) -> int:
    """A number from a path or a query."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 19):
        raise Refused(HTTPStatus.BAD_REQUEST, "an id is a natural number")
    return int(text)


def not_there() -> NoReturn:
    raise Refused(HTTPStatus.NOT_FOUND, "the paths are /, /api/views, /api/why/ID, /api/tensor/ID and /api/advice")
