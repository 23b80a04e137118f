"""The round trip of a bare ZeroMQ message: the lower bound for one op and its result.

`python -m bench.echo ADDRESS [SECRET]` sends every message back, until it gets an empty one; with CURVE if a secret
key is given.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import zmq

from .partner import Partner, say

MESSAGE = bytes(64)  # about the size of an op and the request for its result


@contextmanager
def echoing(*, curve: bool = False) -> Iterator[Callable[[], bytes]]:
    """A function that sends a message to another process, and returns its answer: over ipc, or tcp with CURVE."""
    public, secret = zmq.curve_keypair()
    with tempfile.TemporaryDirectory(prefix="tensord-") as home:
        address = ("tcp://127.0.0.1:*", secret.decode()) if curve else (f"ipc://{home}/echo",)
        with Partner("echo", *address) as peer, zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            if curve:
                socket.curve_serverkey = public
                socket.curve_publickey, socket.curve_secretkey = zmq.curve_keypair()
            yield from rounds(socket, peer)


def rounds(socket: zmq.Socket[bytes], peer: Partner) -> Iterator[Callable[[], bytes]]:
    """The function of `echoing`; at the end of the block, the other process ends."""
    socket.connect(peer.hear())

    def echo() -> bytes:
        socket.send(MESSAGE)
        answer: bytes = socket.recv()
        return answer

    yield echo
    socket.send(b"")
    peer.process.wait()


def main() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        for secret in sys.argv[2:]:
            socket.curve_server, socket.curve_secretkey = True, secret.encode()
        socket.bind(sys.argv[1])
        say(socket.getsockopt_string(zmq.LAST_ENDPOINT))
        while True:
            frames = socket.recv_multipart()
            if not frames[-1]:
                return
            socket.send_multipart(frames)


if __name__ == "__main__":
    main()
