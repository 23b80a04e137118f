"""Ports for the daemons of tests."""

from __future__ import annotations

import itertools
import random
import socket
from contextlib import suppress

# Below those that Linux gives to outgoing connections, one of which might get the port before the daemon listens there.
PORTS = range(10_000, 32_768)
_numbers = itertools.count(random.SystemRandom().randrange(len(PORTS)))  # another process begins elsewhere


def free_port() -> int:
    """A tcp port of 127.0.0.1 that no process has, and that this process has not got before."""
    while True:
        port = PORTS[next(_numbers) % len(PORTS)]
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
