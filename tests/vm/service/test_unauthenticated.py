"""Connections that do not say HELLO have some seconds for it, and are few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tensord.vm.service.unauthenticated import Strangers

from ...fuzz.harness import FakeDoor, Harness


class Door(FakeDoor):
    """A door that cuts what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.accepted: list[Callable[[int], None]] = []
        self.gone: list[int] = []

    def connect(self, fd: int) -> None:
        """Somebody comes in."""
        self.connections[fd] = fd * 10
        for tell in self.accepted:
            tell(fd)

    def cut(self, fd: int, number: int) -> None:
        """As a real one."""
        if self.connections.get(fd) == number:
            del self.connections[fd]
            self.gone.append(fd)


def scene(**limits: Any) -> tuple[Harness, Door, Strangers]:
    harness = Harness(**limits)
    harness.door = door = Door()
    return harness, door, Strangers(harness.lobby, [harness.door])


def test_who_is_a_stranger_at_two_looks_is_cut() -> None:
    harness, door, strangers = scene()
    door.connect(7)
    harness.hello(b"me")
    door.connect(8)
    strangers.look()
    assert door.gone == []
    door.connect(9)
    strangers.look()
    assert door.gone == [8]
    strangers.look()
    assert door.gone == [8, 9]
    harness.check()


def test_a_descriptor_that_is_used_again_is_another_connection() -> None:
    _, door, strangers = scene()
    door.connect(8)
    strangers.look()
    door.connections[8] = 81
    strangers.look()
    assert door.gone == []


def test_the_oldest_strangers_go_when_there_are_too_many() -> None:
    harness, door, _ = scene(sessions=3)
    door.connect(7)
    harness.hello(b"me")
    for fd in range(20, 26):
        door.connect(fd)
    assert door.gone == [20, 21, 22]
    assert list(door.connections) == [7, 23, 24, 25]
