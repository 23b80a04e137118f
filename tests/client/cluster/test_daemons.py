"""Cluster sessions on daemons, over tcp with keys: opening them, and the effects of a lost node."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.cluster import watching
from tensord.client.cluster.watching import is_refused, reason_lost
from tensord.collectives import all_reduce
from tensord.interpreter.wire import keys
from tensord.interpreter.wire.members import Member

from ...each_case import each_case
from ...ports import free_port
from ...puppet import cut
from ...streams.links.tcp.proxy import Proxy
from .nodes import Keyed


def on(session, node):
    return session.asarray([1.0, 2.0], device=f"{node}/sim:0")


def test_the_other_nodes_are_reached_with_the_keys_that_the_first_one_tells(keyed):
    with keyed.connect() as session:
        assert session.nodes() == {"node0": "up", "node1": "up"}
        assert list(session._open_cores) == ["node0"]  # the others are opened at first use
        y = on(session, "node1")
        assert (y + y).numpy().tolist() == [2.0, 4.0]
        assert y._core.address == keyed.members["node1"].address
        session.publish("w", y)
        with keyed.connect("node1") as other:
            assert other.lookup("w").tolist() == [1.0, 2.0]
            assert other.address == keyed.running["node1"].address


def test_keys_that_are_missing_are_told_at_the_call_also_over_ipc_which_needs_none(keyed, tmp_path, monkeypatch):
    monkeypatch.delenv("TENSORD_KEYS", raising=False)
    address = keyed.running["node0"].address
    assert address.startswith("ipc://")
    with pytest.raises(
        td.MetadataError, match=r"node1 at tcp://\S+ requires keys, and this process has none: name the"
    ):
        td.connect_cluster(address)
    with pytest.raises(td.MetadataError, match=r"holds no client's .key_secret file"):
        td.connect_cluster(address, keys=tmp_path)
    with td.connect_cluster(address, keys=keyed.keys) as session:
        assert on(session, "node1").tolist() == [1.0, 2.0]


def test_a_name_with_its_node_asks_that_node_alone(keyed):
    with keyed.connect() as session:
        session.publish("mine", session.asarray([1.0]))
        assert session.lookup("node0/mine").item() == 1.0
        assert list(session._open_cores) == ["node0"]
        assert "node0/mine" in session.names()
        assert list(session._open_cores) == ["node0", "node1"]


def test_values_go_from_daemon_to_daemon(keyed):
    with keyed.connect() as session:
        for values in (np.arange(3.0), np.arange(1 << 18, dtype=np.float32)):
            x = session.asarray(values, device="node0/sim:0")
            y = (x + 1).to_device("node1/sim:1")
            np.testing.assert_array_equal((y * 2).to_device("node0/cpu:0").numpy(), (values + 1) * 2)
        assert session.sync() == 0
        trace = session.trace()
        links = [edge for record in trace.records for edge in record.edges if edge.reason == "link"]
        assert len(links) == 4
        assert trace.clocks["node1"].error < 1_000_000_000
        assert trace.verify() == []


def test_a_node_is_found_by_its_environment(keyed, monkeypatch):
    monkeypatch.setenv("TENSORD_ADDRESS", keyed.running["node1"].address)
    monkeypatch.setenv("TENSORD_KEYS", str(keyed.keys))
    with td.connect_cluster() as session:
        assert session.devices[0] == "node1/cpu:0"
        assert on(session, "node0").tolist() == [1.0, 2.0]


def test_keys_that_are_not_allowed_are_refused_with_the_node(keyed, tmp_path):
    keys.create(tmp_path, "stranger")
    with (
        td.connect_cluster(keyed.running["node0"].address, keys=tmp_path) as session,
        pytest.raises(td.NodeLost, match=r"node node1 is lost: it cannot be reached.*allow list"),
    ):
        on(session, "node1")


@pytest.fixture
def mortal(tmp_path):
    """Two daemons that a test may kill."""
    with Keyed(tmp_path) as daemons:
        daemons.start("node0")
        daemons.start("node1")
        daemons.join()
        yield daemons


def wait_for_the_loss(tensor):
    """The error of a wait for a tensor of a node that is lost, and how long it took."""
    began = time.monotonic()
    with pytest.raises(td.NodeLost) as caught:
        tensor.wait()
    return str(caught.value), time.monotonic() - began


def test_a_lost_node_ends_what_is_on_it_and_nothing_else_and_comes_back_anew(mortal):
    with mortal.connect() as session:
        x, y = on(session, "node0"), on(session, "node1")
        session.sync()
        mortal.kill("node1")
        mortal.join("node0", node1="lost")
        message, took = wait_for_the_loss(y)
        assert "node1 is lost: node0 says that it is lost" in message
        assert took < 5
        assert (x + 1).tolist() == [2.0, 3.0]
        with pytest.raises(td.NodeLost, match="node1"):
            session.sync()
        assert session.sync() == 0
        for use in (lambda: y + 1, lambda: x + y, lambda: session.xp.add(x, y), y.numpy):
            with pytest.raises(td.NodeLost, match="node1"):
                use()
        with pytest.raises(td.NodeLost, match="node node1 is lost"):
            on(session, "node1")
        assert session.nodes() == {"node0": "up", "node1": "lost"}
        assert session.devices == ["node0/cpu:0", "node0/sim:0", "node0/sim:1"]
        assert session.names() == []
        with pytest.raises(KeyError, match="not asked: node1"):
            session.lookup("w")
        with pytest.raises(td.NodeLost, match="node node1 is lost"):
            session.lookup("node1/w")
        assert session.wait_for_nodes(1) == session.wait_for_nodes("node0") == ["node0"]
        with pytest.raises(TimeoutError, match=r"after 0 s node0 serves; node node1 is lost: "):
            session.wait_for_nodes(timeout=0)
        mortal.start("node1", incarnation=2)
        joining = threading.Thread(target=mortal.join)
        joining.start()
        assert session.wait_for_nodes(timeout=20) == ["node0", "node1"]
        joining.join()
        assert (on(session, "node1") + 1).tolist() == [2.0, 3.0]
        with pytest.raises(td.NodeLost, match="node node1 is lost: the tensor was on that node, and is lost"):
            on(session, "node1") + y
        assert session.sync() == 0


def test_a_daemon_that_listens_no_more_is_lost_although_nobody_says_so(mortal):
    with mortal.connect() as session:
        y = on(session, "node1")
        y.wait()
        mortal.kill("node1")
        message, took = wait_for_the_loss(y)
        assert "no daemon listens" in message
        assert took < 10
        with pytest.raises(td.NodeLost, match="cannot be reached"):
            on(session, "node1")


def test_a_daemon_of_another_node_at_a_nodes_address_is_not_taken_for_it(mortal):
    mortal.members["node1"] = mortal.members["node1"]._replace(
        address=mortal.members["node0"].address, key=mortal.members["node0"].key
    )
    mortal.join("node0")
    with mortal.connect() as session, pytest.raises(td.NodeLost, match=r"node1 is lost: at tcp.* is node0"):
        on(session, "node1")


def test_what_was_to_come_from_a_lost_node_fails_with_its_name(mortal):
    with mortal.connect() as session:
        y = on(session, "node1")
        y.wait()
        os.kill(mortal.running["node1"].pid, signal.SIGSTOP)  # so that the value is under way for ever
        x = y.to_device("node0/sim:0") + 1
        mortal.kill("node1")
        with pytest.raises(td.NodeLost, match="node1"):
            x.wait()
        assert (session.asarray([1.0]) + 1).item() == 2.0


class Nodes:
    """A cluster of three members, in which node1's state is in question. `told`: each member's report of it."""

    class wanted:  # noqa: N801 - as the attribute
        keys = None

    def __init__(self, told):
        self.told = told

    def nodes(self):
        return ["node0", "node1", "node2"]

    def reached(self, node):
        return Member(node, address=f"tcp://127.0.0.1:{ord(node[-1])}", incarnation=4)


@each_case(
    ("told", "why"),
    [
        ({"node1": (4, "up")}, None),
        ({"node1": (5, "up")}, "started again"),
        ({"node1": (4, "up"), "node0": (4, "lost")}, None),
        ({"node0": (4, "up"), "node2": (4, "lost")}, "node2 says that it is lost"),
        ({"node0": (4, "left")}, "node0 says that it is left"),
        ({"node2": (5, "up")}, "started again"),
        ({"node0": (4, "up"), "node2": (4, "up")}, ""),
        ({}, ""),
    ],
)
def test_the_fate_of_a_node_is_what_it_or_another_member_says(told, why, monkeypatch):
    def ask(member, _keys):
        if member.node not in told:
            return None
        incarnation, state = told[member.node]
        return [Member("node1", incarnation=incarnation, state=state).row()]

    monkeypatch.setattr(watching, "ask", ask)
    nodes: Any = Nodes(told)
    found = reason_lost(nodes, nodes.reached("node1"), 4)
    assert (found == why) if not why else (why in str(found))


def test_only_a_port_without_a_listener_is_refused(keyed):
    assert is_refused(f"tcp://127.0.0.1:{free_port()}")
    assert not is_refused(keyed.members["node0"].address)
    assert not is_refused(keyed.running["node0"].address)
    assert not is_refused("tcp://nobody.invalid:7700")


def test_a_connection_that_was_only_interrupted_is_taken_up_again_and_nothing_is_lost(keyed):
    with keyed.connect() as session:
        x, y = on(session, "node0"), on(session, "node1")
        session.sync()
        for _ in range(2):
            cut(SimpleNamespace(_core=y._core))
            y = y + 1
        assert y.tolist() == [3.0, 4.0]
        assert (x + y.to_device("node0/sim:0")).tolist() == [4.0, 6.0]
        assert session.sync() == 0


def test_what_was_to_come_from_a_node_that_only_the_client_has_lost_fails_and_the_node_goes_on(mortal):
    address = mortal.members["node1"].address.removeprefix("tcp://")
    with Proxy(address) as proxy:
        mortal.members["node1"] = mortal.members["node1"]._replace(address=f"tcp://{proxy.address}")
        mortal.join("node0")
        with mortal.connect() as session:
            y, here = on(session, "node1"), on(session, "node0")
            session.sync()
            proxy.stall(on=True)
            x = y.to_device("node0/sim:0")  # its half does not reach node1
            there = here.to_device("node1/sim:0")
            (z, _) = all_reduce([here, y])
            proxy.close()  # and the daemon lives
            for lost in (x, z, there, y):
                with pytest.raises(td.NodeLost, match="node1"):
                    lost.wait(20)
            with pytest.raises(td.NodeLost):
                session.sync(20)
            assert session.sync(20) == 0  # nothing is left that waits
            assert (here + 1).tolist() == [2.0, 3.0]
    with mortal.running["node1"].connect() as alone:
        assert (alone.asarray([1.0]) + 1).item() == 2.0
