"""A slow link between a client and a daemon: a tcp proxy with a limited rate in each direction.

`python -m bench.slow_link HOST PORT BYTES_PER_SECOND` prints the port on which it listens.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from .partner import Partner, say

PIECE = 1 << 16  # the most bytes that are forwarded at a time


@contextmanager
def slow_link(address: str, rate: float) -> Iterator[str]:
    """The address of the same daemon behind a link of `rate` bytes per second."""
    host, _, port = address.removeprefix("tcp://").rpartition(":")
    with Partner("slow_link", host, port, str(rate)) as link:
        yield f"tcp://127.0.0.1:{link.hear()}"


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, rate: float) -> None:
    """Forward all bytes until the connection ends."""
    loop = asyncio.get_running_loop()
    free = loop.time()  # when the link will have forwarded everything that came
    with suppress(ConnectionError):
        while piece := await reader.read(PIECE):
            free = max(free, loop.time()) + len(piece) / rate
            await asyncio.sleep(free - loop.time())
            writer.write(piece)
            await writer.drain()
    writer.close()


async def serve(host: str, port: int, rate: float) -> None:
    """Accept connections, and forward them."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(host, port)
        await asyncio.gather(pump(reader, there[1], rate), pump(there[0], writer, rate))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    say(str(server.sockets[0].getsockname()[1]))
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
