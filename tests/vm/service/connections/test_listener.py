"""A listener's connections. Only libzmq's descriptors are known, whose numbers may be used again at any time."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tensord.vm.service.access.guard import cut_connection
from tensord.vm.service.connections.listener import origin_of


@pytest.fixture
def used_again() -> Iterator[int]:
    """A descriptor that is not a socket."""
    fd = os.memfd_create("something else")
    yield fd
    os.close(fd)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_of_a_number_that_is_used_again_nothing_is_known_and_nothing_kept(used_again: int) -> None:
    before = descriptors()
    assert origin_of(used_again) == ""
    assert not cut_connection(used_again, 0)
    assert descriptors() == before


def test_the_origin_of_a_local_connection_is_its_process() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert origin_of(ours.fileno()) == f"process {os.getpid()} of uid {os.getuid()}"
