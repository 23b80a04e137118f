"""Nodes of a test, linked over TCP in one process, and transfers between them with waits for their ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from tensord.interpreter.errors import TensordError
from tensord.interpreter.types.meta import Meta
from tensord.interpreter.wire.members import Member, PortRange
from tensord.streams.links.tcp.links import TcpLinks
from tensord.vm.service.certificates import make_tls

TOKEN = "t" * 32
WAIT = 60.0  # seconds until a test that hangs fails


class Node(TcpLinks):
    """The links of a node, and their reports."""

    def __init__(
        self, name: str, *, tls: bool = False, patience: float = WAIT, incarnation: int = 1, **more: Any
    ) -> None:
        self.reports: list[tuple[str, str, str]] = []
        self.broke = threading.Event()  # a link is broken
        own = Member(name, incarnation=incarnation)
        made = make_tls(name) if tls else None
        super().__init__(own, PortRange("127.0.0.1", 0, 0), made, self.reported, patience=patience, **more)
        self.entry = own._replace(values=self.address, fingerprint=made.fingerprint if made else "")

    def reported(self, event: str, node: str, why: str) -> None:
        self.reports.append((event, node, why))
        if event == "a link is broken":
            self.broke.set()

    def told(self, text: str) -> bool:
        return any(text in " ".join(report) for report in self.reports)


def join(nodes: Iterable[Node], *changes: Member, token: str = TOKEN) -> None:
    """Tell all nodes of all; `changes` are entries in place of some."""
    nodes = list(nodes)
    table = {node.node: node.entry for node in nodes} | {entry.node: entry for entry in changes}
    for node in nodes:
        node.join(table, token)


class Nodes:
    """Nodes by number. A context manager, which closes them."""

    def __init__(self, count: int = 2, **options: Any) -> None:
        self.all = [Node(f"node{number}", **options) for number in range(count)]
        join(self.all)

    def __getitem__(self, number: int) -> Node:
        return self.all[number]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        ended = [node.close(WAIT) for node in self.all]
        assert all(ended)


class Transfer:
    """A value on its way from one node to another."""

    def __init__(self, source: Node, target: Node, value: Any) -> None:
        self.source, self.target, self.value = source, target, value
        self.id = os.urandom(16)
        self.meta = Meta.of(value.shape, value.dtype)
        self.into = np.zeros(value.shape, value.dtype)
        self.errors: dict[str, TensordError | None] = {}
        self._sent, self._arrived = threading.Event(), threading.Event()

    def offer(self) -> Self:
        self.source.to(self.target.node).offer(self.id, self.meta, self.value, self._done)
        return self

    def expect(self) -> Self:
        self.target.to(self.source.node).expect(self.id, self.meta, self._offered)
        return self

    def take(self) -> Self:
        self.target.to(self.source.node).take(self.id, self.meta, self.into, self._received)
        return self

    def merge(self) -> Self:
        """Take the value by adding it to zeros."""
        flat = self.into.reshape(-1)

        def merge(first: int, piece: Any) -> None:
            flat[first : first + len(piece)] += piece

        self.target.to(self.source.node).take(self.id, self.meta, merge, self._received)
        return self

    def start(self) -> Self:
        return self.expect().offer()

    def _done(self, error: TensordError | None) -> None:
        assert "sender" not in self.errors
        self.errors["sender"] = error
        self._sent.set()

    def _offered(self, error: TensordError | None) -> None:
        if error is None:
            self.target.to(self.source.node).receive(self.id, self.into, self._received)
        else:
            self._received(error)

    def _received(self, error: TensordError | None) -> None:
        assert "receiver" not in self.errors
        self.errors["receiver"] = error
        self._arrived.set()

    def wait(self) -> tuple[TensordError | None, TensordError | None]:
        """How both halves ended; a value that arrived is whole."""
        assert self._sent.wait(WAIT), "the sender's half hangs"
        assert self._arrived.wait(WAIT), "the receiver's half hangs"
        found = self.errors["sender"], self.errors["receiver"]
        if found[1] is None:
            np.testing.assert_array_equal(self.into, self.value)
        return found


def send(source: Node, target: Node, value: Any) -> None:
    """Send a value, and see that it arrives."""
    ends = Transfer(source, target, value).start().wait()
    assert ends == (None, None), ends
