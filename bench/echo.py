"""What a bare ZeroMQ message over ipc takes there and back: the floor under one op and its result.

`python -m bench.echo ADDRESS` sends everything back, until it gets an empty message.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import zmq

from .partner import Partner, say

MESSAGE = bytes(64)  # about as much as an op and the question for its result


@contextmanager
def echoing() -> Iterator[Callable[[], bytes]]:
    """A function that sends a message to another process, and returns what comes back."""
    with tempfile.TemporaryDirectory(prefix="tensord-") as home, Partner("echo", f"ipc://{home}/echo") as peer:
        address = peer.hear()
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.connect(address)

            def echo() -> bytes:
                socket.send(MESSAGE)
                answer: bytes = socket.recv()
                return answer

            yield echo
            socket.send(b"")
            peer.process.wait()


def main() -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as socket:
        socket.bind(sys.argv[1])
        say(sys.argv[1])
        while True:
            frames = socket.recv_multipart()
            if not frames[-1]:
                return
            socket.send_multipart(frames)


if __name__ == "__main__":
    main()
