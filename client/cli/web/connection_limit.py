"""Limits the number of connections: a further one gets status 503, and is closed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

if TYPE_CHECKING:
    from aiohttp import web

MAX_CONNECTIONS: Final = 200
FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 33\r\n"
    b'Connection: close\r\n\r\n{"error": "too many connections"}'
)


class RefusedConnection(asyncio.Protocol):
    """A connection for which there is no room."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connection = cast(asyncio.Transport, transport)
        connection.write(FULL)
        connection.close()


class ConnectionLimit:
    """Makes the protocol of each connection; beyond `most` open connections, one that refuses."""

    def __init__(self, server: web.Server, most: int = MAX_CONNECTIONS) -> None:
        self._server = server
        self._most = most

    def __call__(self) -> asyncio.BaseProtocol:
        if len(self._server.connections) >= self._most:
            return RefusedConnection()
        return cast(asyncio.BaseProtocol, self._server())
