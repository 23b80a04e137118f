"""Links over real sockets: received values, refused peers, and lost nodes."""

from __future__ import annotations

import os
import socket
import struct
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

from tensord.interpreter.errors import MetadataError, NodeLost
from tensord.interpreter.wire.members import Member
from tensord.streams.links.tcp import links as links_module
from tensord.streams.links.tcp.frames import HEADER, HeaderKind, frame
from tensord.streams.links.tcp.hello import VERSION, LinkHello, hear_answer, say

from ....each_case import each_case
from ....puppet import eventually
from .nodes import TOKEN, WAIT, Node, Nodes, Transfer, join, send
from .proxy import Proxy

MIB = 1 << 20
SILENCE = 2.0  # seconds that break a link; on a busy machine they may also pass because a thread waits for its turn


@pytest.fixture(params=["plain", "tls"])
def tls(request) -> bool:
    return request.param == "tls"


def noise(nbytes: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def test_values_of_all_kinds_arrive(tls):
    grid = np.arange(60_000, dtype=np.float32).reshape(200, 300)
    values = [
        np.zeros(()),
        np.zeros((3, 0, 2), np.int16),
        np.array(True),
        np.arange(12).reshape(3, 4),
        grid,
        grid.T,
        grid[::-1, 5:200:3],
        noise(64 << 10),
        noise((64 << 10) + 1),
        noise(9 * MIB + 5),
    ]
    with Nodes(tls=tls) as nodes:
        for value in values:
            send(nodes[0], nodes[1], value)
            send(nodes[1], nodes[0], value)
            send(nodes[0], nodes[0], value)


def test_values_arrive_where_memory_was_there_before_and_pieces_are_merged(tls):
    values = [noise(100), noise(3 * MIB), np.arange(300_001, dtype=np.complex128), np.ones((3, 0), np.int16)]
    with Nodes(tls=tls) as nodes:
        for value in values:
            for source, target in ((nodes[0], nodes[1]), (nodes[1], nodes[0]), (nodes[0], nodes[0])):
                transfers = [Transfer(source, target, value).take().offer(), Transfer(source, target, value).offer()]
                transfers += [Transfer(source, target, value).merge().offer(), transfers[1].merge()]
                assert [transfer.wait() for transfer in transfers] == [(None, None)] * 4


def test_many_values_go_both_ways_and_to_many_nodes_at_once(tls):
    sizes = [10, 5 * MIB, 1000, 100_000, 0]
    with Nodes(3, tls=tls) as nodes:
        transfers = [
            Transfer(nodes[source], nodes[target], noise(size, source + 7 * target))
            for size in sizes
            for source in range(3)
            for target in range(3)
            if source != target
        ]
        for transfer in transfers:
            transfer.offer()
        for transfer in reversed(transfers):
            transfer.expect()
        for transfer in transfers:
            assert transfer.wait() == (None, None)


def test_a_node_that_is_none_or_lost_or_takes_no_values():
    others = [
        Member("node2", incarnation=1),
        Member("node3", incarnation=1, state="lost"),
        Member("node4", state="left"),
    ]
    with Nodes() as nodes:
        join(nodes.all, *others)
        with pytest.raises(MetadataError, match="'node0' knows no node 'node9'; it knows node0, node1, node2"):
            nodes[0].to("node9")
        with pytest.raises(MetadataError, match="'node2' takes no values"):
            nodes[0].to("node2")
        with pytest.raises(NodeLost, match="node node3 is lost: its daemon has ended"):
            nodes[0].to("node3")
        with pytest.raises(NodeLost, match="node node4 is lost: it has left the cluster"):
            nodes[0].to("node4")


@each_case(
    ("change", "why"),
    [
        ({"state": "lost"}, "node node1 is lost: its daemon has ended"),
        ({"state": "left"}, "has left"),
        ({"incarnation": 2}, "and incarnation 1 is gone"),
    ],
)
def test_what_is_pending_with_a_lost_node_fails_at_once(change, why):
    with Nodes() as nodes:
        send(nodes[0], nodes[1], noise(10))
        offered = Transfer(nodes[0], nodes[1], noise(MIB)).offer()
        expected = Transfer(nodes[1], nodes[0], noise(MIB)).expect()
        join([nodes[0]], nodes[1].entry._replace(**change))
        assert offered._sent.wait(WAIT)
        assert expected._arrived.wait(WAIT)
        assert why in str(offered.errors["sender"])
        assert isinstance(expected.errors["receiver"], NodeLost)


@each_case(("wanted", "why"), [(1, "was started anew, and incarnation 1"), (3, "is known here in incarnation 2")])
def test_a_link_is_to_the_incarnation_that_is_meant(wanted, why):
    with Nodes(incarnation=2) as nodes:
        for node in ("node0", "node1"):
            assert nodes[0].to(node, 2) is nodes[0].to(node)
            with pytest.raises(NodeLost, match=f"node {node} is lost: its daemon {why}"):
                nodes[0].to(node, wanted)


def test_a_node_that_was_started_anew_is_linked_anew(tls):
    with Nodes(tls=tls) as nodes:
        send(nodes[0], nodes[1], noise(10))
        old = nodes.all[1]
        assert old.close(WAIT)
        nodes.all[1] = Node("node1", tls=tls, incarnation=2)
        join(nodes.all)
        send(nodes[0], nodes[1], noise(MIB))
        send(nodes[1], nodes[0], noise(MIB))


def test_a_node_that_does_not_answer_fails_what_waits_for_it():
    with socket.create_server(("127.0.0.1", 0)) as deaf, Nodes(patience=0.2) as nodes:
        where = f"127.0.0.1:{deaf.getsockname()[1]}"
        join([nodes[0]], Member("node2", values=where, incarnation=1))
        transfer = Transfer(nodes[0], nodes[0], noise(10))
        transfer.source.to("node2").offer(transfer.id, transfer.meta, transfer.value, transfer._done)
        transfer.source.to("node2").expect(os.urandom(16), transfer.meta, transfer._offered)
        assert all(isinstance(error, NodeLost) for error in transfer.wait())
        assert "node node2 is lost: it cannot be reached" in str(transfer.errors["sender"])


def test_an_end_while_values_are_on_their_way_fails_them(tls):
    nodes = Nodes(tls=tls)
    with nodes:
        send(nodes[0], nodes[1], noise(10))
        value = noise(32 * MIB)
        pending = [Transfer(nodes[0], nodes[1], value).start() for _ in range(3)]
        waiting = Transfer(nodes[0], nodes[1], noise(10)).offer()
        assert nodes[0].close(WAIT)
        for transfer in pending:
            assert transfer.wait()[0] is None or isinstance(transfer.errors["sender"], NodeLost)
        assert waiting._sent.wait(WAIT)
        assert "is lost: its daemon ends" in str(waiting.errors["sender"])


# -- refused peers -----------------------------------------------------------------------------------------------------


def knock(at: Node, **change: Any) -> tuple[socket.socket, str]:
    """Dial a node as node1 does; the connection, and the reason why it is refused."""
    hello = LinkHello(VERSION, "node1", at.node, 1, time.time_ns() * 2, sys.byteorder, TOKEN)._replace(**change)
    connection = socket.create_connection(("127.0.0.1", int(at.address.rpartition(":")[2])))
    say(connection, hello)
    return connection, hear_answer(connection, time.monotonic() + WAIT).why


@each_case(
    ("change", "why"),
    [
        ({"token": "u" * 32}, "the token is not that"),
        ({"token": ""}, "the token is not that"),
        ({"to": "node7"}, "this is node0, not 'node7'"),
        ({"node": "node7"}, "node7 is not a member"),
        ({"node": "a/b"}, "the first message is not a HELLO of a node"),
        ({"incarnation": 2}, "node1 is known here in incarnation 1"),
        ({"incarnation": -1}, "not a HELLO"),
        ({"version": 7}, "version 7 of links"),
        ({"order": "middle"}, "numbers in middle order"),
        ({"life": 0}, "an earlier incarnation"),
    ],
)
def test_strangers_are_refused_and_told_why(change, why):
    with Nodes() as nodes:
        send(nodes[1], nodes[0], noise(10))
        connection, told = knock(nodes[0], **change)
        connection.close()
        assert why in told
        send(nodes[1], nodes[0], noise(10))


def test_nobody_is_known_before_the_first_table():
    node = Node("node0")
    connection, why = knock(node)
    connection.close()
    assert "does not know its cluster's members yet" in why
    assert node.close(WAIT)


def test_another_certificate_is_none():
    with Nodes(tls=True, patience=SILENCE) as nodes:
        join([nodes[0]], nodes[1].entry._replace(fingerprint="ab" * 32))
        transfer = Transfer(nodes[0], nodes[1], noise(10)).offer()
        assert transfer._sent.wait(WAIT)
        assert isinstance(transfer.errors["sender"], NodeLost)
        assert eventually(lambda: nodes[0].told("the table of members says abababab"))


def test_plain_and_tls_do_not_meet():
    with Nodes(1, tls=True, patience=0.3) as one, Nodes(1, patience=0.3) as other:
        plain = other.all[0]
        plain.node, plain.entry = "node1", plain.entry._replace(node="node1")
        join([one[0], plain])
        assert eventually(lambda: plain.told("takes values by TLS alone"))
        assert eventually(lambda: one[0].told("a node cannot be reached"))


def test_whatever_strangers_say_and_however_many_say_nothing_the_others_are_served():
    with Nodes() as nodes:
        port = int(nodes[0].address.rpartition(":")[2])
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(links_module.MAX_HANDSHAKES + 8)]
        for seed in range(20):
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(struct.pack("<I", [4, 10**9][seed % 2]) + noise(seed * 10, seed).tobytes())
        send(nodes[0], nodes[1], noise(MIB))
        for connection in silent:
            connection.close()
        assert eventually(lambda: not nodes[0]._greeters)


def test_a_stranger_that_says_nothing_does_not_hold_up_the_end(tls):
    node = Node("node0", tls=tls, patience=10 * WAIT)
    port = int(node.address.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port)):
        assert eventually(lambda: node._greeters)
        assert node.close(WAIT / 4)


def test_a_connection_for_which_there_is_no_thread_is_closed_and_the_next_one_is_served(monkeypatch):
    start = threading.Thread.start
    refused: list[threading.Thread] = []

    def no_thread(thread):
        if thread.name == "tensord-greets" and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with Nodes() as nodes:
        send(nodes[0], nodes[1], noise(10))
        assert eventually(lambda: not any(node._greeters for node in nodes.all))
    assert refused


@each_case(
    "said",
    [
        b"\xff" * 100,
        frame(HeaderKind.PIECE, os.urandom(16), 1, b"abc"),
        frame(HeaderKind.OFFER, os.urandom(16), 1, b"\xc1"),
        frame(HeaderKind.FAIL, os.urandom(16), 0, b""),
        HEADER.pack(HeaderKind.SMALL, 1 << 31, 1, bytes(16)),
        frame(HeaderKind.OFFER, os.urandom(16), 1)[:-3],  # cut short
    ],
)
def test_a_member_that_lies_breaks_its_own_link_and_is_linked_again(said):
    """A stranger with the token takes node1's place, and then sends an invalid frame."""
    with Nodes(3) as nodes:
        send(nodes[0], nodes[1], noise(10))
        connection, why = knock(nodes[0])
        while why:  # node1 was linked again in between
            connection.close()
            connection, why = knock(nodes[0])
        connection.sendall(said)
        connection.close()
        send(nodes[0], nodes[2], noise(MIB))
        assert eventually(lambda: nodes[0].told("a link is broken"))
        nodes[1].close(WAIT)
        nodes.all[1] = Node("node1", incarnation=2)
        join(nodes.all)
        send(nodes[0], nodes[1], noise(MIB))


# -- connections that break --------------------------------------------------------------------------------------------


def through(nodes: Nodes, *proxies: Proxy) -> None:
    """Have the nodes dial each other through the proxies."""
    entries = [node.entry._replace(values=one.address) for node, one in zip(nodes.all, proxies, strict=True)]
    join(nodes.all, *entries)


@pytest.mark.parametrize("seed", range(2))
def test_a_connection_that_is_cut_at_any_byte_ends_values_whole_or_with_node_lost(seed, tls):
    rng = np.random.default_rng(seed)
    with Nodes(tls=tls) as nodes, Proxy(nodes[0].address) as first, Proxy(nodes[1].address) as second:
        through(nodes, first, second)
        send(nodes[0], nodes[1], noise(10))
        for _ in range(5):
            proxy = (first, second)[rng.integers(2)]
            proxy.cut_after(int(rng.choice([1, 20, 200, 3000, 100_000, 3 * MIB]) * rng.random()) + 1)
            transfers = [
                Transfer(nodes[way % 2], nodes[1 - way % 2], noise(int(rng.choice([10, 50_000, 2 * MIB])), way))
                for way in range(6)
            ]
            calls: list[Any] = [one.offer for one in transfers]
            calls += [(one.expect, one.take, one.merge)[rng.integers(3)] for one in transfers]
            rng.shuffle(calls)
            for call in calls:
                call()
            for transfer in transfers:
                sender, receiver = transfer.wait()
                assert all(error is None or isinstance(error, NodeLost) for error in (sender, receiver))
                assert sender is not None or receiver is None
            proxy.left = None
            send_after_a_break(nodes)
        assert first.cuts + second.cuts > 0
        for node in nodes.all:
            (protocol,) = [link._protocol for link in node._links.values()]
            assert not protocol.sender.sending
            assert not protocol.receiver.receiving
            assert (protocol.sender.given, protocol.receiver.held, protocol.receiver.arrived) == (0, 0, 0)


def send_after_a_break(nodes: Nodes) -> None:
    """Check that new values arrive, except those that begin before the break is noticed."""

    def arrived() -> bool:
        ends = [Transfer(nodes[way], nodes[1 - way], noise(1000)).start().wait() for way in (0, 1)]
        return ends == [(None, None)] * 2

    assert eventually(arrived)


def test_silence_is_a_break_and_a_link_comes_back_after_it():
    with Nodes(patience=SILENCE) as nodes, Proxy(nodes[0].address) as first, Proxy(nodes[1].address) as second:
        proxies = (first, second)
        through(nodes, *proxies)
        send_after_a_break(nodes)
        for proxy in proxies:
            proxy.stall(on=True)
        stalled = Transfer(nodes[0], nodes[1], noise(32 * MIB)).start()
        assert all(isinstance(error, NodeLost) for error in stalled.wait())
        for proxy in proxies:
            proxy.stall(on=False)
        send_after_a_break(nodes)


def test_a_peer_that_does_not_read_holds_up_nobody(tls):
    with Nodes(tls=tls, patience=SILENCE) as nodes, Proxy(nodes[0].address) as first, Proxy(nodes[1].address) as second:
        through(nodes, first, second)
        send_after_a_break(nodes)
        second.stall(on=True)
        began = time.monotonic()
        offered = [Transfer(nodes[0], nodes[1], noise(64 << 10)).offer() for _ in range(300)]
        assert time.monotonic() - began < WAIT / 2
        for transfer in offered:
            assert transfer._sent.wait(WAIT)
            assert isinstance(transfer.errors["sender"], NodeLost)
        second.stall(on=False)
        send_after_a_break(nodes)


def test_an_idle_link_stays():
    """A busy machine may break it all the same, but not every time."""
    with Nodes(patience=1.0) as nodes:

        def stays() -> bool:
            send_after_a_break(nodes)
            nodes[0].broke.clear()
            return not nodes[0].broke.wait(1.2)

        assert any(stays() for _ in range(10))


def test_a_stated_bandwidth_is_kept():
    with Nodes(bandwidth=20e6) as nodes:
        send(nodes[0], nodes[1], noise(10))
        began = time.monotonic()
        send(nodes[0], nodes[1], noise(4 * MIB))
        assert time.monotonic() - began >= 4 * MIB / 20e6
