"""A bare socket between two processes, plain or TLS: the baseline for the links between daemons.

`python -m bench.wire BYTES [FINGERPRINT-FILE]` listens, prints its port, and answers each BYTES received with one byte.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from tensord.vm.service.certificates import make_tls

from .partner import Partner, say

ANSWER = b"."


class Wire:
    """The sending side: sends to the other process, and waits for its answer."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def send(self, values: memoryview) -> None:
        self.connection.sendall(values)
        assert self.connection.recv(1) == ANSWER


@contextmanager
def wire(nbytes: int, *, tls: bool) -> Iterator[Wire]:
    """A wire to a process that takes `nbytes` bytes at a time."""
    with Partner("wire", str(nbytes), *["tls"] * tls) as partner:
        port, fingerprint = partner.hear().split(":")
        with socket.create_connection(("127.0.0.1", int(port))) as plain:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with closing(make_tls("bench").dial(plain, fingerprint) if tls else plain) as connection:
                yield Wire(connection)


def take(connection: Any, into: memoryview) -> bool:
    """Fill the memory from the connection. False at its end."""
    done = 0
    while done < len(into):
        some = connection.recv_into(into[done:])
        if not some:
            return False
        done += some
    return True


def serve(nbytes: int, *, tls: bool) -> None:
    """Take values until the connection ends."""
    encryption = make_tls("bench") if tls else None
    with socket.create_server(("127.0.0.1", 0)) as listener:
        say(f"{listener.getsockname()[1]}:{encryption.fingerprint if encryption else ''}")
        plain, _ = listener.accept()
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    into = memoryview(bytearray(nbytes))
    with closing(encryption.accept(plain) if encryption else plain) as connection:
        while take(connection, into):
            connection.sendall(ANSWER)


if __name__ == "__main__":
    serve(int(sys.argv[1]), tls=len(sys.argv) > 2)
