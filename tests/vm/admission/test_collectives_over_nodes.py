"""COLLECTIVE messages about several nodes: refusals, and the nodes that are told. Two engines without threads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tensord.interpreter.errors import CancelledError, MetadataError, ProtocolError, QuotaError, TensordError
from tensord.interpreter.wire.node_messages import Collective, Send
from tensord.streams.links.in_memory import InMemory, pair
from tensord.vm.reporting.invariants import violations
from tensord.vm.tracing.flat import SourceLocation

from ...each_case import each_case
from ..bare_engine import Bare

FIRST = bytes(15) + b"\x07"
HOMES = ("node0/cpu:0", "node1/cpu:0")
META = ((4,), "float64")
VALUES = [1.0, 2.0, 3.0, 4.0]


class Node:
    """A machine of the two, and a client with one tensor."""

    def __init__(self, links: InMemory, **limits: int) -> None:
        self.bare = Bare(inline=False, node=links.node)
        self.bare.engine.join(links, self.sink)
        self.client = self.bare.client(**limits)
        self.x = self.client.upload(VALUES)

    def sink(self, tasks: Sequence[Any]) -> None:
        self.bare.engine.finished.extend(tasks)

    def reduce(self, **changes: Any) -> int:
        """Take part in an all_reduce; the id of the result."""
        made = self.client.new()
        message = Collective("all_reduce", (self.x,), (made,), (), (), 1, HOMES, (META, META), FIRST)
        self.client.send(message._replace(**changes))
        self.bare.drain()
        return made


@pytest.fixture
def nodes() -> tuple[Node, Node]:
    first, second = pair()
    return Node(first), Node(second)


def drain(nodes: Sequence[Node]) -> None:
    for _ in range(3):
        for node in nodes:
            node.bare.drain()


def error_of(node: Node, id_: int) -> TensordError:
    with pytest.raises(TensordError) as raised:
        node.client.fetch(id_)
    return raised.value


def check_idle(nodes: Sequence[Node]) -> None:
    for node in nodes:
        assert not node.bare.engine.live
        assert violations(node.bare.engine) == []


def test_both_parts_together_give_the_sum_on_each_node(nodes: tuple[Node, Node]) -> None:
    made = [node.reduce() for node in nodes]
    drain(nodes)
    assert [node.client.fetch(id_) for node, id_ in zip(nodes, made, strict=True)] == [[2.0, 4.0, 6.0, 8.0]] * 2
    check_idle(nodes)


@each_case("size", [4, 1 << 15])
def test_a_chunk_that_is_merged_is_received_by_one_instruction(nodes: tuple[Node, Node], size: int) -> None:
    """Direct, and around a ring: without a value for the chunk, and without waiting for the offer."""
    metas = (((size,), "float64"),) * 2
    before = {node: len(node.bare.engine.scheduler.ring.entries) for node in nodes}
    made = [node.reduce(inputs=(node.client.upload(range(size)),), metas=metas) for node in nodes]
    drain(nodes)
    for node, id_ in zip(nodes, made, strict=True):
        assert node.client.fetch(id_) == [2.0 * each for each in range(size)]
        records = node.bare.engine.scheduler.ring.records(lambda *_: SourceLocation())
        found = [record.opcode for record in records[before[node] :]]
        direct_and_last = size == 4 and node is nodes[1]  # it copies the chunk of the first node, and merges its own
        assert (found.count("Expect"), found.count("MergeChunk")) == (0, int(direct_and_last))
        assert found.count("Recv") == found.count("Send") == (1 if size == 4 else 2)
    check_idle(nodes)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no transfer": ({"transfer": b""}, "needs the name of a transfer"),
    "a meta that is none": ({"metas": (META, ((4,), "float7"))}, "meta is malformed"),
    "a meta of a number": ({"metas": (META, "float")}, "meta is malformed"),
    "a meta too few": ({"metas": (META,)}, "1 tensors on 2 devices"),
    "a negative size": ({"metas": (META, ((-4,), "float64"))}, "meta is malformed"),
    "metas that differ": ({"metas": (META, ((5,), "float64"))}, "must be equal"),
    "too many devices": ({"homes": [f"node1/cpu:{n}" for n in range(65)], "metas": (META,) * 65}, "64 devices"),
    "a device twice": ({"homes": HOMES[:1] * 2}, "twice"),
    "two tensors for one device": ({"inputs": (1, 1)}, "got 2 tensors for 1 results, and 1 for 1 are named"),
    "incarnations too few": ({"incarnations": (1,)}, "1 incarnations for 2 nodes"),
    "no tensor": ({"inputs": ()}, "got 0 tensors"),
    "an unknown device": ({"homes": ("node0/cpu:9", HOMES[1])}, "unknown device|the request names"),
    "an unknown node": ({"homes": (HOMES[0], "node7/cpu:0")}, "no node 'node7'"),
    "another meta than the tensor's": ({"metas": (((2, 2), "float64"),) * 2}, "the request names"),
    "a library that is not there": ({"attributes": (("library", "nccl 22707"),)}, "is not there for node0/cpu:0"),
    "a library for what it has not": ({"attributes": {"library": "nccl 22707", "reduction": "min"}}, "does not carry"),
    "a library of no name": ({"attributes": (("library", 7),)}, "must be the name of a library"),
    "a library with a long name": ({"attributes": (("library", "n" * 65),)}, "must be the name of a library"),
    "no kind": ({"kind": "gossip"}, "unknown collective"),
}


@each_case("case", list(REFUSED))
def test_what_does_not_fit_is_refused(case: str) -> None:
    first, second = pair()
    nodes = Node(first), Node(second)
    changes, text = REFUSED[case]
    error = error_of(nodes[0], nodes[0].reduce(**changes))
    assert isinstance(error, MetadataError | ProtocolError)
    assert any(part in error.message for part in text.split("|")), error.message
    check_idle(nodes)


def test_a_launch_of_other_nodes_alone_is_refused(nodes: tuple[Node, Node]) -> None:
    library, homes = (("library", "nccl 1"),), ("node1/cpu:0", "node1/cpu:1")
    nodes[0].reduce(attributes=library, homes=homes, inputs=(), outputs=())
    (error,) = nodes[0].bare.errors
    assert "does not carry this out" in error.message
    check_idle(nodes)


@each_case("first", [True, False])
def test_the_other_node_is_told_of_a_part_that_is_refused(first: bool) -> None:
    links = pair()
    nodes = Node(links[0], tensors=1), Node(links[1])
    made = [0, 0]
    for index in (0, 1) if first else (1, 0):
        made[index] = nodes[index].reduce()
    drain(nodes)
    for node, id_ in zip(nodes, made, strict=True):
        assert isinstance(error_of(node, id_), QuotaError)
    check_idle(nodes)


def test_chunks_beyond_what_a_session_may_offer_fail_at_both_nodes() -> None:
    links = pair()
    nodes = Node(links[0], transfers=1), Node(links[1])
    here, there = nodes
    here.client.send(Send(here.x, "node1", b"v" * 16, 1))  # no node receives it
    here.bare.drain()
    made = [node.reduce() for node in nodes]
    drain(nodes)
    assert isinstance(error_of(there, made[1]), QuotaError)
    assert QuotaError in {type(error) for error in here.bare.errors}
    here.bare.engine.cancel(here.client.session)
    drain(nodes)
    check_idle(nodes)


def test_the_other_node_is_told_of_a_cancellation(nodes: tuple[Node, Node]) -> None:
    here, there = nodes
    here.reduce()
    here.bare.engine.cancel(here.client.session)
    here.bare.schedule()
    made = there.reduce()
    drain(nodes)
    assert isinstance(error_of(there, made), CancelledError)
    check_idle(nodes)


@each_case("what", ["a cancelled session", "a result that is there already"])
def test_the_other_node_is_told_of_a_part_that_comes_at_a_wrong_time(what: str) -> None:
    links = pair()
    here, there = nodes = Node(links[0]), Node(links[1])
    made = there.reduce()
    if what == "a cancelled session":
        here.bare.engine.cancel(here.client.session)
    here.reduce(**({} if what == "a cancelled session" else {"outputs": (here.x,)}))
    drain(nodes)
    assert isinstance(error_of(there, made), CancelledError | ProtocolError)
    check_idle(nodes)


def test_a_machine_without_a_node_name_refuses() -> None:
    client = Bare().client()
    x, made = client.upload(VALUES), client.new()
    client.send(Collective("all_reduce", (x,), (made,), (), (), 1, HOMES, (META, META), FIRST))
    with pytest.raises(MetadataError, match="no node name"):
        client.fetch(made)
