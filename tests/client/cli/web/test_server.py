"""The server: no page and no stranger hinders the others, and the daemon gets no more questions than allowed."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from functools import wraps
from time import monotonic
from typing import Any

import pytest

from tensord.client.cli.web import answers, connection_limit, viewers
from tensord.client.cli.web.access import Access
from tensord.client.cli.web.files import Page
from tensord.client.cli.web.serving import Server
from tensord.client.cli.web.source import Polled, UnknownError
from tensord.interpreter.errors import ConnectionLost

from ....each_case import each_case

aiohttp: Any = pytest.importorskip("aiohttp")

TOKEN = "the-token-of-these-tests"  # noqa: S105 - of nothing else
PAGES = {
    "index.html": Page("text/html; charset=utf-8", b"<!DOCTYPE html>the page"),
    "main.js": Page("text/javascript; charset=utf-8", b"1;"),
}
PATIENCE = 30.0


class Shown:
    """A source whose views are numbers. `trouble`: the error of polls; `errors`: the errors of the next questions."""

    def __init__(self, *, live: bool = True, pause: float = 0.001, size: int = 0) -> None:
        self.live = live
        self.pause = pause
        self.size = size
        self.polls = 0
        self.refreshed = 0
        self.rests = 0
        self.errors: list[Exception] = []
        self.trouble: Exception | None = None

    def poll(self) -> Polled:
        self.polls += 1
        if self.trouble is not None:
            raise self.trouble
        return Polled(json.dumps([self.polls, "x" * self.size]), self.pause)

    def history(self) -> str | None:
        return None if self.live else "7"

    def refresh(self) -> None:
        self.refreshed += 1

    def rest(self) -> None:
        self.rests += 1

    def about(self) -> Mapping[str, Any]:
        return {"run": 1}

    def why(self, instruction: int) -> str:
        if instruction > 100:
            raise UnknownError(f"there is no #{instruction}")
        if instruction == 13:
            raise ZeroDivisionError
        return f"because of {instruction}"

    def tensor(self, id_: int, session: int) -> Mapping[str, Any]:
        return {"tensor": {"id": id_, "session": session}}

    def advice(self) -> Mapping[str, Any]:
        if self.errors:
            raise self.errors.pop(0)
        return {"advice": []}


class Served:
    """A server, and a client of it."""

    def __init__(self, source: Shown, server: Server, client: Any, port: int) -> None:
        self.source = source
        self.server = server
        self.client = client
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    async def get(self, path: str, **options: Any) -> tuple[int, Any]:
        async with self.client.get(self.url + path, **options) as response:
            return response.status, await response.json()

    def look(self, **options: Any) -> Any:
        return self.client.ws_connect(f"{self.url}/api/views", **options)

    async def raw(self, text: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        writer.write(text)
        return reader, writer

    async def still_serves(self) -> None:
        assert await self.get("/api/why/1") == (200, {"text": "because of 1"})


@asynccontextmanager
async def served(source: Shown, **options: float) -> AsyncIterator[Served]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        server = Server(source, Access(TOKEN, "127.0.0.1", "cookie"), PAGES, **{"again": 0.001} | options)
        serving = asyncio.ensure_future(server.serve(listening))
        try:
            async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
                yield Served(source, server, client, port)
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving


Test = Callable[[Served], Coroutine[Any, Any, None]]


def with_a_server(**given: Any) -> Callable[[Test], Callable[[], None]]:
    """Run the test with a server; its source and patience may be given."""
    options = {name: given.pop(name) for name in ("patience",) if name in given}

    def decorator(test: Test) -> Callable[[], None]:
        async def run() -> None:
            async with served(Shown(**given), **options) as found:
                await asyncio.wait_for(test(found), PATIENCE)

        @wraps(test)
        def plain() -> None:
            asyncio.run(run())

        del plain.__wrapped__
        return plain

    return decorator


async def eventually(predicate: Callable[[], object]) -> None:
    deadline = monotonic() + PATIENCE
    while not predicate():
        assert monotonic() < deadline, "it never came true"
        await asyncio.sleep(0.002)


async def view_from(page: Any) -> Any:
    """The next message with a view."""
    while "view" not in (found := json.loads(await page.receive_str())):
        pass
    return found


# -- the page and questions --------------------------------------------------------------------------------------------


@with_a_server()
async def test_the_page_has_the_token_for_what_it_asks_then(at: Served) -> None:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as browser:
        async with browser.get(f"{at.url}/?token={TOKEN}") as response:
            assert (response.status, await response.text()) == (200, "<!DOCTYPE html>the page")
            assert "script-src 'self'" in response.headers["Content-Security-Policy"]
            cookie = response.headers["Set-Cookie"]
            assert "HttpOnly" in cookie
            assert "SameSite=Strict" in cookie
        async with browser.get(f"{at.url}/static/main.js") as response:
            assert (response.status, response.content_type) == (200, "text/javascript")
        async with browser.ws_connect(f"{at.url}/api/views", origin=at.url) as page:
            assert (await view_from(page))["view"][0] == 1


@with_a_server()
async def test_questions_are_answered(at: Served) -> None:
    assert await at.get("/api/why/12") == (200, {"text": "because of 12"})
    assert await at.get("/api/tensor/5?session=3") == (200, {"tensor": {"id": 5, "session": 3}})
    assert await at.get("/api/advice") == (200, {"advice": []})


@with_a_server()
async def test_what_does_not_exist_is_not_found(at: Served) -> None:
    assert await at.get("/api/why/101") == (404, {"error": "there is no #101"})
    for path in ("/nothing", "/api/nothing", "/static/", "/static/..%2f..%2fweb.py", "/static/web.py", "/api/advice/1"):
        assert (await at.get(path))[0] == 404
    for path in ("why/x", "why/-1", "why/", "why/1e3", f"why/{'9' * 30}", "tensor/1?session=a", "why/%D9%A3"):
        assert (await at.get(f"/api/{path}"))[0] == 400
    await at.still_serves()


@with_a_server()
async def test_an_error_of_ours_or_of_the_daemon_concerns_one_request(at: Served) -> None:
    assert await at.get("/api/why/13") == (500, {"error": "internal error, ZeroDivisionError"})
    at.source.errors = [ConnectionLost("the daemon is gone")]
    assert await at.get("/api/advice") == (503, {"error": "the daemon is gone"})
    await at.still_serves()


# -- strangers ---------------------------------------------------------------------------------------------------------


@with_a_server()
async def test_without_the_token_nothing_is_told(at: Served) -> None:
    async with aiohttp.ClientSession() as stranger:
        for path in ("/", "/static/main.js", "/api/why/1", "/api/views", "/nothing", "/?token=wrong"):
            async with stranger.get(at.url + path) as response:
                assert response.status == 401
                assert "token" in (await response.json())["error"]
                assert "Set-Cookie" not in response.headers
        with pytest.raises(aiohttp.WSServerHandshakeError, match="401"):
            await stranger.ws_connect(f"{at.url}/api/views")
    assert (at.source.polls, at.source.refreshed) == (0, 0)


@with_a_server()
async def test_another_site_and_a_name_that_was_pointed_here_get_nothing(at: Served) -> None:
    assert (await at.get("/api/advice", headers={"Host": "evil.example"}))[0] == 403
    assert (await at.get("/api/advice", headers={"Origin": "http://evil.example"}))[0] == 403
    with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
        await at.look(origin="http://evil.example")
    assert at.source.polls == 0


@with_a_server()
async def test_nobody_can_change_anything(at: Served) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        async with at.client.request(method, f"{at.url}/api/advice", data=b"x" * 100_000) as response:
            assert response.status == 405
    await at.still_serves()


@with_a_server()
async def test_huge_and_damaged_requests_are_refused(at: Served) -> None:
    for text in (
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"\x00\xff\xfe nothing of HTTP\r\n\r\n",
    ):
        reader, writer = await at.raw(text)
        assert b" 400 " in await reader.readline()
        writer.close()
    await at.still_serves()


@with_a_server()
async def test_connections_are_bounded_and_one_more_is_told_so(at: Served) -> None:
    idle = [await at.raw(b"GET / HT") for _ in range(connection_limit.MAX_CONNECTIONS)]
    reader, writer = await at.raw(b"")
    assert await reader.read() == connection_limit.FULL
    for _, one in (*idle, (reader, writer)):
        one.close()
    await eventually(lambda: at.client is not None)
    while True:  # until the server has noticed that there is room again
        with suppress(aiohttp.ClientError, AssertionError):
            await at.still_serves()
            return


# -- views -------------------------------------------------------------------------------------------------------------


@with_a_server()
async def test_nothing_is_polled_while_no_page_looks(at: Served) -> None:
    await at.still_serves()
    assert at.source.polls == 0
    async with at.look() as page:
        assert (await view_from(page))["view"][0] == 1
        rests = at.source.rests
    await eventually(lambda: at.source.rests > rests)
    polls = at.source.polls
    await at.still_serves()
    assert at.source.polls == polls
    async with at.look() as page:
        assert (await view_from(page))["view"][0] == polls + 1


@with_a_server(pause=60.0)
async def test_all_pages_get_the_views_of_one_poller(at: Served) -> None:
    async with at.look() as one, at.look() as other:
        assert (await view_from(one))["view"][0] == 1
        assert json.loads(await other.receive_str())["state"] == "connected"
        assert at.source.polls == 1
        at.server.viewers.show("[99]")
        for page in (one, other):
            while (await view_from(page))["view"] != [99]:
                pass


@with_a_server()
async def test_a_question_does_not_take_news_away_from_pages(at: Served) -> None:
    async with at.look() as page:
        await view_from(page)
        await at.still_serves()
        assert at.source.refreshed == 0
    await eventually(lambda: not at.server.viewers.taken.is_set())
    await at.still_serves()
    assert at.source.refreshed == 1


def test_a_page_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewers.Viewers.__init__, "__defaults__", (2,))

    @with_a_server()
    async def look(at: Served) -> None:
        async with at.look(), at.look():
            with pytest.raises(aiohttp.WSServerHandshakeError, match="503"):
                await at.look()
        await eventually(lambda: not at.server.viewers.taken.is_set())
        async with at.look() as page:
            await view_from(page)

    look()


@with_a_server(size=1 << 20, patience=0.2)
async def test_a_page_that_never_reads_is_cut_off_and_others_go_on(at: Served) -> None:
    handshake = (
        f"GET /api/views HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {TOKEN}\r\nUpgrade: websocket\r\n"
        "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    _, writer = await at.raw(handshake.encode())
    await eventually(at.server.viewers.taken.is_set)
    async with at.look(max_msg_size=1 << 22) as page:
        await eventually(lambda: len(at.server.viewers) == 2)
        while len(at.server.viewers) == 2:
            await view_from(page)
        assert (await view_from(page))["view"][0] > 1
    writer.close()


@with_a_server()
async def test_a_page_that_says_something_is_closed(at: Served) -> None:
    async with at.look() as page:
        await page.send_str("hello")
        while (await page.receive()).type == aiohttp.WSMsgType.TEXT:
            pass
        assert page.close_code == 1008
    async with at.look() as page:
        await page.send_bytes(b"x" * (answers.MAX_MESSAGE_BYTES + 1))
        while (await page.receive()).type == aiohttp.WSMsgType.TEXT:
            pass
        assert page.close_code == 1009
    await at.still_serves()


@each_case("error", [ConnectionLost("the daemon is gone"), OSError("no route"), ZeroDivisionError("a bug")])
def test_pages_are_told_that_the_daemon_does_not_answer_and_that_it_does_again(error: Exception) -> None:
    @with_a_server()
    async def look(at: Served) -> None:
        at.source.trouble = error
        async with at.look() as page:
            while (told := json.loads(await page.receive_str()))["state"] != "waiting":
                pass
            assert str(error) in told["message"]
            polls = at.source.polls
            await eventually(lambda: at.source.polls > polls + 1)  # the source is polled again and again
            at.source.trouble = None
            while json.loads(await page.receive_str()).get("state") != "connected":
                pass
            await view_from(page)

    look()


@with_a_server(live=False)
async def test_a_file_has_one_view_and_is_not_polled(at: Served) -> None:
    for _ in range(2):
        async with at.look() as page:
            assert json.loads(await page.receive_str()) == {"state": "opened", "run": 1}
            assert json.loads(await page.receive_str()) == {"skipped": 0, "view": 7}
    assert at.source.polls == 0


def test_pages_are_told_that_the_server_ends() -> None:
    async def read_on(page: Any) -> int:
        while (await page.receive()).type == aiohttp.WSMsgType.TEXT:
            pass
        return int(page.close_code)

    async def run() -> None:
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
            async with served(Shown()) as at:
                page = await client.ws_connect(f"{at.url}/api/views")
                await view_from(page)
                reading = asyncio.ensure_future(read_on(page))
            assert await reading == 1001

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
