"""Connections that send messages without end are cut before memory runs out; other connections stay."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tensord.vm.process import resident_memory
from tensord.vm.service.access import guard as module
from tensord.vm.service.access.guard import CHECKS_UNTIL_SUSPECT, MemoryGuard

MIB = 1 << 20
ENDLESS = Path(__file__).with_name("endless.py")


class World:
    """The surroundings of a guard: memory and connections."""

    def __init__(self) -> None:
        self.memory = 0
        self.unread: dict[int, int] = {}
        self.inodes: dict[int, int] = {}
        self.cut: list[int] = []
        self.trims = 0
        self.garbage = 0
        self.guard = MemoryGuard(
            1000,
            resident=lambda: self.memory + self.garbage,
            unread=lambda fd: self.unread.get(fd, 0),
            inode=lambda fd: self.inodes.get(fd, 0),
            cut=self.end,
            trim=self.trim,
        )

    def end(self, fd: int, inode: int) -> bool:
        assert self.inodes[fd] == inode
        self.cut.append(fd)
        return True

    def trim(self) -> None:
        self.trims += 1
        self.garbage = 0

    def connect(self, *fds: int) -> None:
        for fd in fds:
            self.inodes[fd] = 100 + fd
            self.guard.accepted(fd)


@pytest.fixture
def world():
    world = World()
    world.connect(1, 2, 3)
    return world


def test_nobody_is_cut_while_memory_is_not_short(world):
    world.memory, world.unread = 750, {1: 10}
    world.guard.check()
    for _ in range(100):
        assert world.guard.check() == []


def test_who_has_bytes_to_read_and_completes_nothing_is_cut_once_memory_is_short(world):
    world.memory, world.unread = 700, {1: 10, 2: 10}
    for step in range(CHECKS_UNTIL_SUSPECT + 1):
        world.guard.message_completed(2)  # sends as much, in messages that end
        world.guard.check()
        world.memory = 700 + step
    world.memory = 850
    assert world.guard.check() == [1]
    assert (world.cut, world.guard.cuts) == ([1], 1)


def test_idle_connections_are_never_cut(world):
    world.memory = 999
    for _ in range(10):
        assert world.guard.check() == []
    world.memory = 5000
    assert world.guard.check() == []


def test_memory_that_grows_fast_is_not_waited_for(world):
    world.memory, world.unread = 400, {1: 10}
    world.guard.check()
    world.memory = 701
    assert world.guard.check() == [1]


def test_who_sends_slowly_is_found_when_nobody_else_explains_it(world):
    world.memory = 600
    for look in range(10):
        world.unread = {1: 1} if look == 4 else {}
        assert world.guard.check() == []
    world.unread, world.memory = {}, 1100
    assert world.guard.check() == [1]


def test_what_was_freed_is_given_back_before_anybody_is_cut(world):
    world.memory, world.unread = 600, {1: 10}
    for _ in range(CHECKS_UNTIL_SUSPECT + 1):
        world.guard.check()
    world.garbage = 250
    assert world.guard.check() == []
    assert world.trims == 1


def test_memory_is_given_back_once_a_connection_that_ended_is_closed(world):
    world.memory = 10
    world.guard.closed(1)
    for _ in range(20):
        world.guard.check()
    assert world.trims == 0, "libzmq has not freed it yet"
    del world.inodes[1]
    for _ in range(20):
        world.guard.check()
    assert world.trims == 1


def test_memory_is_given_back_once_a_connection_that_was_cut_is_closed(world):
    world.memory, world.unread = 400, {1: 10}
    world.guard.check()
    world.memory = 701
    assert world.guard.check() == [1]
    trims = world.trims
    world.memory = 10
    world.guard.check()
    world.guard.closed(1)
    world.guard.check()
    assert world.trims == trims
    world.inodes[1] = 7  # the number belongs to another connection already
    world.guard.check()
    assert world.trims == trims + 1


def test_memory_is_given_back_where_a_connection_ended_before_it_was_seen(world):
    world.memory = 10
    world.guard.accepted(9)  # it is closed already
    world.guard.closed(9)
    world.guard.check()
    assert world.trims == 1


def test_a_descriptor_that_was_reused_is_not_cut(world):
    world.memory, world.unread = 600, {1: 10, 2: 10}
    for _ in range(CHECKS_UNTIL_SUSPECT + 1):
        world.guard.check()
    world.inodes[1] = 7  # closed, and the number reused, before the monitor's event
    world.memory = 900
    assert world.guard.check() == [2]
    world.guard.closed(1)
    assert world.guard.check() == []


def test_a_real_connection_is_looked_at_and_cut():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        fd = ours.fileno()
        inode = module.socket_inode(fd)
        theirs.send(b"12345")
        assert module.unread_bytes(fd) == 5
        assert not module.cut_connection(fd, inode + 1)
        assert module.cut_connection(fd, inode)
        assert theirs.recv(10) == b""
    assert module.unread_bytes(fd) == 0
    assert not module.cut_connection(fd, inode)


def test_what_is_no_socket_is_none():
    reader, writer = os.pipe()
    assert module.socket_inode(reader) == 0
    os.close(reader)
    os.close(writer)
    assert 1 * MIB < resident_memory() < 1 << 40
    module.give_back()


@pytest.mark.parametrize(("part", "peers"), [(MIB, 1), (64 * 1024, 3)])
def test_endless_messages_leave_memory_under_its_limit_and_others_served(part, peers, tmp_path):
    limit, end = 1024 * MIB, 64 * MIB
    command = [sys.executable, "-W", "error", str(ENDLESS), *map(str, (tmp_path, limit, part, peers, 1, end))]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=110)  # noqa: S603
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["cuts"] >= 1, found
    assert found["peak"] < limit, found
    assert found["answered"] > 0, found
    assert found["went_on"], found
    assert found["end"] < found["baseline"] + end, found
