"""HTTP for scrapers: GET and HEAD, one request for each connection.

Theory. At most `MAX_CONNECTIONS` connections are open at a time; the next one is accepted when one of them ends, and
the kernel keeps the waiting ones. Each has `PATIENCE` seconds to send a request, and as long to receive the answer. So
a thousand scrapers, slow readers or silent peers cost no more than that, and each scraper has its turn.

A connection belongs to one task. Any error in the task ends the connection.

Rejected: `prometheus_client.start_http_server` (a thread for each connection, without a bound or a timeout); keep-alive
(otherwise idle connections would keep others out).
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Final, TypeAlias

from ....interpreter.errors import MetadataError
from ....interpreter.metrics.endpoint import Endpoint

MAX_CONNECTIONS: Final = 64  # connections at a time
BACKLOG: Final = 1024  # connections that the kernel keeps until they are accepted
PATIENCE: Final = 5.0
MAX_REQUEST_BYTES: Final = 8192  # bytes of a request
CHUNK: Final = 4096
END: Final = b"\r\n\r\n"
PAUSE: Final = 0.1  # seconds after a connection that could not be accepted


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request. The names of headers are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Response:
    """The response to a request."""

    status: HTTPStatus
    body: bytes
    kind: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def text(cls, status: HTTPStatus, text: str, **headers: str) -> Response:
        """One line of text."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return cls(status, f"{text}\n".encode(), headers=named)

    def encode(self, *, body: bool = True) -> bytes:
        """The bytes on the connection; for HEAD without the body."""
        headers = {
            "Content-Type": self.kind,
            "Content-Length": str(len(self.body)),
            "Connection": "close",
            **self.headers,
        }
        lines = [f"HTTP/1.1 {self.status.value} {self.status.phrase}", *(f"{k}: {v}" for k, v in headers.items())]
        return "\r\n".join(lines).encode() + END + (self.body if body else b"")


Answer: TypeAlias = Callable[[HttpRequest], Awaitable[Response]]


class RequestRefused(Exception):  # noqa: N818 - an answer
    """A request that is answered only with a status."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.response = Response.text(status, status.phrase)


def listen(endpoint: Endpoint) -> socket.socket:
    """A socket that listens there; MetadataError if that is impossible."""
    try:
        listening = at_path(Path(endpoint.path)) if endpoint.path else at_port(endpoint.host, endpoint.port)
    except OSError as error:
        raise MetadataError(f"cannot offer metrics at {endpoint.text}: {os.strerror(error.errno or 0)}") from None
    listening.listen(BACKLOG)
    listening.setblocking(False)
    return listening


def at_port(host: str, port: int) -> socket.socket:
    if not host:
        dual = socket.has_dualstack_ipv6()
        family = socket.AF_INET6 if dual else socket.AF_INET
        return socket.create_server(("", port), family=family, dualstack_ipv6=dual)
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


def at_path(path: Path) -> socket.socket:
    """A socket for this user only. A socket file without a listener is replaced."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        with suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.lstat().st_mode) and is_left(path):
                path.unlink()
        before = os.umask(0o177)
        try:
            listening.bind(str(path))
        finally:
            os.umask(before)
    except BaseException:
        listening.close()
        raise
    return listening


def is_left(path: Path) -> bool:
    """Return whether no process listens at this socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return True
    return False


async def serve(
    listening: socket.socket, answer: Answer, *, most: int = MAX_CONNECTIONS, patience: float = PATIENCE
) -> None:
    """Serve until this is cancelled."""
    room = asyncio.Semaphore(most)
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        while True:
            await room.acquire()
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError:  # no descriptor is free, or the peer is gone
                room.release()
                await asyncio.sleep(PAUSE)
                continue
            task = tasks.create_task(converse(connection, answer, patience))
            task.add_done_callback(lambda _: room.release())


async def converse(connection: socket.socket, answer: Answer, patience: float) -> None:
    """One request and its answer."""
    loop = asyncio.get_running_loop()
    with connection, suppress(OSError, TimeoutError):
        connection.setblocking(False)
        response, body = await respond(connection, answer, patience)
        async with asyncio.timeout(patience):
            await loop.sock_sendall(connection, response.encode(body=body))
            connection.shutdown(socket.SHUT_WR)
            await drain(connection)


async def respond(connection: socket.socket, answer: Answer, patience: float) -> tuple[Response, bool]:
    """The response, and whether its body is requested. OSError or TimeoutError if no request comes."""
    try:
        async with asyncio.timeout(patience):
            head = await read_head(connection)
        request = parse(head)
        return await answer(request), request.method != "HEAD"
    except RequestRefused as refused:
        return refused.response, True
    except (OSError, TimeoutError):
        raise
    except Exception as error:  # a bug of ours, or an answer of another version: the next scrape may succeed
        return Response.text(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}"), True


async def read_head(connection: socket.socket) -> bytes:
    """The request up to the empty line."""
    loop, head = asyncio.get_running_loop(), b""
    while END not in head:
        if len(head) > MAX_REQUEST_BYTES:
            raise RequestRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        chunk = await loop.sock_recv(connection, CHUNK)
        if not chunk:
            raise ConnectionResetError
        head += chunk
    return head.partition(END)[0]


def parse(head: bytes) -> HttpRequest:
    """A request; RequestRefused for invalid bytes."""
    line, *rest = head.decode("latin-1").split("\r\n")
    parts = line.split(" ")
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or not parts[1].startswith("/"):
        raise RequestRefused(HTTPStatus.BAD_REQUEST)
    headers = {}
    for header in rest:
        name, colon, value = header.partition(":")
        if not colon or not name or name != name.strip():
            raise RequestRefused(HTTPStatus.BAD_REQUEST)
        headers[name.lower()] = value.strip()
    return HttpRequest(parts[0], parts[1].partition("?")[0], headers)


async def drain(connection: socket.socket) -> None:
    """Read the rest of the peer's request, up to the limit of its size; otherwise the peer might lose the answer."""
    loop, left = asyncio.get_running_loop(), MAX_REQUEST_BYTES
    while left > 0 and (chunk := await loop.sock_recv(connection, CHUNK)):
        left -= len(chunk)
