"""Run by endless.py: `python endless_peer.py PATH PART` sends parts of PART bytes of one message, for ever.

It speaks ZMTP 3.0 (RFC 23) itself, since libzmq sends nothing of a message before its last part.
"""

from __future__ import annotations

import contextlib
import socket
import sys

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
READY = b"\x05READY\x0bSocket-Type\x00\x00\x00\x06DEALER"


def send(path: str, part: int) -> None:
    """Send over one connection, and over a new one after each that was cut."""
    frame = b"\x03" + part.to_bytes(8) + bytes(part)
    while True:
        with socket.socket(socket.AF_UNIX) as peer, contextlib.suppress(ConnectionError):
            peer.connect(path)
            peer.sendall(GREETING + b"\x04" + bytes([len(READY)]) + READY)
            await_handshake(peer)
            while True:
                peer.sendall(frame)


def await_handshake(peer: socket.socket) -> None:
    """Read the other end's greeting and its READY: libzmq refuses messages that come before it has sent them."""
    with peer.makefile("rb") as answer:
        answer.read(len(GREETING))
        flags_and_length = answer.read(2)
        answer.read(flags_and_length[-1] if flags_and_length else 0)


if __name__ == "__main__":
    send(sys.argv[1], int(sys.argv[2]))
