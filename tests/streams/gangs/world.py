"""Nodes that launch together, without threads: each next event is a choice.

A node's library launches one after the other, on one stream. A launch ends once it is at the head of the streams of all
of its nodes; a communicator exists once all of its nodes make one with that id.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tensord.interpreter.collectives.library import Element
from tensord.interpreter.errors import CancelledError, TensordError
from tensord.streams.gangs.gang import Gang, Rendezvous
from tensord.streams.gangs.states import State
from tensord.streams.gangs.turns import Turns
from tensord.streams.library import CollectiveLaunch, Ended, Operands
from tensord.streams.links.in_memory import InMemory, mesh

DIGEST = bytes(range(32))
Step = Callable[[], object]


class Job:
    """A launch of a library. `error`: why it is to end."""

    def __init__(self, launch: CollectiveLaunch, ended: Ended) -> None:
        self.launch, self.ended = launch, ended
        self.error: TensordError | None = None
        self.id = b""


class ModelLibrary:
    """The library of a node."""

    name = version = "model"

    def __init__(self, world: World, node: str) -> None:
        self.world, self.node = world, node
        self.queue: list[Job] = []
        self.making: Job | None = None
        self.stream: list[Job] = []
        self.ids: dict[tuple[str, ...], bytes] = {}
        self.order: list[str] = []

    def begin(self, launch: CollectiveLaunch, operands: Operands, ended: Ended) -> None:
        assert operands == [launch.label]
        self.queue.append(Job(launch, ended))

    def working_id(self, devices: Sequence[str]) -> bytes:
        return self.ids.get(tuple(devices), b"")

    def withdraw(self, launch: CollectiveLaunch, error: TensordError, *, missing: bool = False) -> None:
        for job in (*self.queue, *([self.making] if self.making else []), *self.stream):
            begun = job in self.stream
            if job.launch is launch and (missing or not (begun and isinstance(error, CancelledError))):
                job.error = job.error or error

    def close(self, timeout: float) -> bool:
        raise AssertionError(timeout)

    def steps(self) -> list[Step]:
        """The possible next events of this node."""
        found: list[Step] = [partial(self.end, job) for job in self.stream if job.error or self.world.at_heads(job)]
        if self.making is not None and (self.making.error or self.world.all_make(self.making)):
            found.append(self.make)
        elif self.making is None and self.queue:
            found.append(self.take)
        return found

    def take(self) -> None:
        """The next launch gets its communicator, or begins to make one."""
        job = self.queue.pop(0)
        shared, key = job.launch.shared, job.launch.devices
        assert shared is not None
        if job.error is not None:
            job.ended(job.error)
        elif shared.existing:
            job.id = shared.existing
            assert self.ids.get(key) == job.id, "a node has promised a communicator that it has not"
            shared.announce(job.id)
            self.place(job)
        else:
            job.id = shared.made_with or next(self.world.numbers).to_bytes(4)
            self.making = job
            shared.announce(job.id)

    def make(self) -> None:
        job, self.making = self.making, None
        assert job is not None
        if job.error is not None:
            job.ended(job.error)
        else:
            self.world.made.add(job.id)
            self.ids[job.launch.devices] = job.id
            self.place(job)

    def place(self, job: Job) -> None:
        self.order.append(job.launch.label)
        self.stream.append(job)
        assert job.launch.shared is not None
        job.launch.shared.placed()

    def end(self, job: Job) -> None:
        if job.error is None:
            self.world.computed.add(job.launch.label)
        else:
            self.ids.pop(job.launch.devices, None)
        self.stream.remove(job)
        job.ended(job.error)


class World:
    """Some nodes, and the launches in which they take part."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self.carried: list[Step] = []
        self.numbers = itertools.count(1)
        self.links: dict[str, InMemory] = dict(zip(nodes, mesh(nodes, self.carry), strict=True))
        self.libraries = {node: ModelLibrary(self, node) for node in nodes}
        self.turns = {node: Turns() for node in nodes}
        self.gangs: dict[tuple[str, str], Gang] = {}
        self.results: dict[tuple[str, str], list[TensordError | None]] = {}
        self.made: set[bytes] = set()
        self.computed: set[str] = set()

    def carry(self, _nbytes: int, step: Step) -> None:
        self.carried.append(step)

    def add(self, label: str, nodes: Sequence[str], digests: dict[str, bytes] | None = None) -> None:
        """A launch of these nodes, in the order of the GPUs."""
        ordered = sorted(nodes)
        for node in nodes:
            links = {other: self.links[node].to(other) for other in nodes if other != node}
            digest = (digests or {}).get(node, DIGEST)
            rendezvous = Rendezvous(ordered, node, label.encode().ljust(16, b"\0"), digest, links)
            launch = CollectiveLaunch(label, nodes, {nodes.index(node): node}, [], Element("uint8", 1), "sum")
            self.gangs[label, node] = Gang(launch, self.libraries[node], self.turns[node], rendezvous)

    def begin(self, label: str, node: str) -> None:
        told: list[TensordError | None] = []
        self.results[label, node] = told
        operands: Any = [label]
        self.gangs[label, node].begin(operands, told.append)

    def all_make(self, job: Job) -> bool:
        """Whether all nodes make it, or some have made it already."""
        makers = [one.making.id for one in self.libraries.values() if one.making is not None]
        return job.id in self.made or makers.count(job.id) == len(job.launch.devices)

    def at_heads(self, job: Job) -> bool:
        label = job.launch.label
        if label in self.computed:
            return True
        streams = [self.libraries[node].stream for node in job.launch.devices]
        return all(stream and stream[0].launch.label == label for stream in streams)

    def steps(self) -> list[Step]:
        """The possible next events, except beginnings."""
        found: list[Step] = [partial(self.carry_one, n) for n in range(len(self.carried))]
        return found + [step for library in self.libraries.values() for step in library.steps()]

    def carry_one(self, number: int) -> None:
        self.carried.pop(number)()

    def run(self, choose: Callable[[list[Step]], Step] = lambda steps: steps[0]) -> None:
        """Let all possible events happen."""
        while steps := self.steps():
            choose(steps)()

    def outcome(self, label: str, node: str) -> TensordError | None:
        """The only answer of a node."""
        (found,) = self.results[label, node]
        return found

    def check_over(self, failures: int = 0) -> None:
        """Check that no state is left, except `failures` failures that no node asks for."""
        for key, gang in self.gangs.items():
            assert gang.state is State.OVER, (key, gang.state)
            assert gang.since == 0
            assert key not in self.results or len(self.results[key]) == 1, key
        for node, links in self.links.items():
            assert not self.turns[node]._asked
            for exchange in links.exchanges.values():
                assert exchange.pending() == 0
                assert len(exchange._failed) <= failures
