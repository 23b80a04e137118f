"""The HTTP server: a peer that sends anything, or reads nothing, does not hinder the others."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path

import pytest

from tensord.client.cli.metrics.server import MAX_REQUEST_BYTES, HttpRequest, Response, listen, serve
from tensord.interpreter.errors import MetadataError
from tensord.interpreter.metrics.endpoint import Endpoint

from ....each_case import each_case

GET = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
SHORT = 0.3  # seconds of patience, for peers that are to run out of it
MUCH = 1 << 21  # bytes, more than a socket takes unread


async def echo(request: HttpRequest) -> Response:
    """The path, and one header."""
    return Response.text(HTTPStatus.OK, f"{request.method} {request.path} {request.headers.get('accept')}")


@asynccontextmanager
async def served(
    path: Path, answer: Callable[[HttpRequest], Awaitable[Response]] = echo, **options: float
) -> AsyncIterator[str]:
    """A server at a socket."""
    with listen(Endpoint.of(f"unix:{path}")) as listening:
        task = asyncio.create_task(serve(listening, answer, **options))  # type: ignore[arg-type]
        yield str(path)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def say(path: str, request: bytes) -> bytes:
    """The response, until the connection ends."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(request)
    with suppress(ConnectionError):
        await writer.drain()
    answer = await reader.read()
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()
    return answer


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.sock"


@each_case(
    ("request_", "status"),
    [
        (b"\x00\xff\x80garbage\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /metrics SMTP\r\n\r\n", 400),
        (b"GET metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\n folded: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + b"x: " + b"y" * (MAX_REQUEST_BYTES + 4096) + b"\r\n\r\n", 431),
        (b"\x16\x03\x01" + b"\x01" * (MAX_REQUEST_BYTES + 4096), 431),
        (GET, 200),
        (b"HEAD /metrics?a=b HTTP/1.0\r\nACCEPT:  text/plain \r\n\r\n", 200),
    ],
    ids=lambda case: str(case[0][:30]),
)
def test_each_request_has_an_answer(path: Path, request_: bytes, status: int) -> None:
    async def run() -> None:
        async with served(path) as where:
            assert (await say(where, request_)).startswith(f"HTTP/1.1 {status} ".encode())
            assert b"\r\n\r\nGET /metrics None" in await say(where, GET)

    asyncio.run(run())


def test_head_has_the_length_and_no_body(path: Path) -> None:
    async def run() -> bytes:
        async with served(path) as where:
            return await say(where, b"HEAD /a?b HTTP/1.1\r\nAccept: *\r\n\r\n")

    head, _, body = asyncio.run(run()).partition(b"\r\n\r\n")
    assert (b"Content-Length: 10" in head, body) == (True, b"")


def test_peers_that_say_nothing_or_take_nothing_lose_their_places_to_others(path: Path) -> None:
    async def much(_: HttpRequest) -> Response:
        return Response(HTTPStatus.OK, bytes(MUCH))

    async def run() -> None:
        async with served(path, much, most=2, patience=SHORT) as where:
            with socket.socket(socket.AF_UNIX) as silent, socket.socket(socket.AF_UNIX) as slow:
                silent.connect(where)
                slow.connect(where)
                slow.sendall(GET)
                assert len(await say(where, GET)) > MUCH

    asyncio.run(run())


def test_a_thousand_scrapers_at_once_are_all_served_and_few_at_a_time(path: Path) -> None:
    now = most = 0

    async def count(request: HttpRequest) -> Response:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return await echo(request)

    async def run() -> list[bytes]:
        async with served(path, count, most=8) as where:
            return await asyncio.gather(*[say(where, GET) for _ in range(1000)])

    answers = asyncio.run(run())
    assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
    assert most <= 8


def test_a_fault_of_ours_is_an_answer_and_the_next_scrape_is_well(path: Path) -> None:
    faults = [KeyError("figures")]

    async def fail_once(request: HttpRequest) -> Response:
        if faults:
            raise faults.pop()
        return await echo(request)

    async def run() -> None:
        async with served(path, fail_once) as where:
            assert b"500 Internal Server Error" in await say(where, GET)
            assert b"200 OK" in await say(where, GET)

    asyncio.run(run())


def test_a_port_that_is_taken_is_told() -> None:
    with listen(Endpoint.of("127.0.0.1:0")) as first:
        port = first.getsockname()[1]
        with pytest.raises(MetadataError, match=f"cannot offer metrics at 127.0.0.1:{port}: Address already in use"):
            listen(Endpoint.of(f"127.0.0.1:{port}"))


def test_a_socket_is_for_this_user_and_one_that_was_left_is_replaced(path: Path) -> None:
    endpoint = Endpoint.of(f"unix:{path}")
    with listen(endpoint):
        assert path.stat().st_mode & 0o777 == 0o600
        with pytest.raises(MetadataError, match="Address already in use"):
            listen(endpoint)
    with listen(endpoint) as again:
        assert again.getsockname() == str(path)
    path.unlink()
    path.write_text("a file of somebody's")
    with pytest.raises(MetadataError, match="Address already in use"):
        listen(endpoint)
    assert path.read_text() == "a file of somebody's"
