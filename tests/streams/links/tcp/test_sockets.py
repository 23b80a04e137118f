"""Connections read exactly the requested bytes, however they arrive."""

from __future__ import annotations

import random
import socket
import threading

import pytest

from tensord.streams.links.tcp.sockets import READ_AHEAD_BYTES, Connection

SIZES = (0, 1, 32, READ_AHEAD_BYTES - 1, READ_AHEAD_BYTES, READ_AHEAD_BYTES + 1, 5 * READ_AHEAD_BYTES + 7)


@pytest.fixture
def ends():
    """A connection to read from, and the socket of the other side."""
    one, other = socket.socketpair()
    with one, other:
        yield Connection(one, 5.0, tls=False), other


@pytest.mark.parametrize("seed", range(5))
def test_any_split_of_the_same_bytes_is_read_alike(ends, seed):
    rng = random.Random(seed)
    connection, other = ends
    data = rng.randbytes(40 * READ_AHEAD_BYTES)

    def send():
        rest = memoryview(data)
        while rest:
            size = rng.choice(SIZES[1:])
            other.sendall(rest[:size])
            rest = rest[size:]

    sending = threading.Thread(target=send)
    sending.start()
    reading, read = random.Random(seed + 1), bytearray()
    while len(read) < len(data):
        part = bytearray(min(reading.choice(SIZES), len(data) - len(read)))
        connection.read_into(memoryview(part))
        read += part
    sending.join()
    assert read == data


def test_frames_that_came_together_are_read_at_the_end_of_the_connection_too(ends):
    connection, other = ends
    other.sendall(b"abcdef")
    other.shutdown(socket.SHUT_WR)
    parts = [bytearray(3), bytearray(3)]
    for part in parts:
        connection.read_into(memoryview(part))
    assert parts == [b"abc", b"def"]
    with pytest.raises(ConnectionResetError, match="has hung up"):
        connection.read_into(memoryview(bytearray(1)))


@pytest.mark.parametrize("size", [2, READ_AHEAD_BYTES])
def test_a_connection_that_ends_within_what_was_asked_for_is_an_error(ends, size):
    connection, other = ends
    other.sendall(b"a")
    other.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionResetError, match="has hung up"):
        connection.read_into(memoryview(bytearray(size)))
