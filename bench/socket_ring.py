"""A ring of processes with bare sockets: each process sends to the next one while it receives from the one before.

`python -m bench.socket_ring BYTES STEPS` prints its port, reads the port of the next process, and goes around the
ring for each further line: STEPS steps, in each of which BYTES bytes are sent and as many are received.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from .partner import Partner, listen, say
from .wire import take


class SocketRing:
    """The processes."""

    def __init__(self, partners: list[Partner]) -> None:
        self.partners = partners
        ports = [partner.hear() for partner in partners]
        for partner, port in zip(partners, ports[1:] + ports[:1], strict=True):
            partner.tell(port)

    def go_around(self) -> None:
        """Do all steps, until the last process has received everything."""
        for partner in self.partners:
            partner.tell("go")
        for partner in self.partners:
            partner.hear()


@contextmanager
def socket_ring(ranks: int, nbytes: int, steps: int) -> Iterator[SocketRing]:
    """A ring of `ranks` processes."""
    with ExitStack() as stack:
        started = [stack.enter_context(Partner("socket_ring", str(nbytes), str(steps))) for _ in range(ranks)]
        yield SocketRing(started)


def serve(nbytes: int, steps: int) -> None:
    """Go around the ring for each command."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        say(str(listener.getsockname()[1]))
        (port,) = listen()
        out = socket.create_connection(("127.0.0.1", int(port)))
        into, _ = listener.accept()
    values, received = memoryview(bytearray(nbytes)), memoryview(bytearray(nbytes))
    with out, into:
        while listen():
            for _ in range(steps):
                sender = threading.Thread(target=out.sendall, args=(values,))
                sender.start()
                take(into, received)
                sender.join()
            say("done")


if __name__ == "__main__":
    serve(int(sys.argv[1]), int(sys.argv[2]))
