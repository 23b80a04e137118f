"""A machine with a node name: its devices carry the name everywhere, and its clients may leave the name out."""

from __future__ import annotations

import numpy as np
import pytest

import tensord as td
from tensord import collectives
from tensord.interpreter.errors import ConnectionLost, MetadataError, ProtocolError
from tensord.interpreter.wire.members import Member, member_of

from ..daemon import Daemon
from ..each_case import each_case
from ..ports import free_port

DEVICES = ["cpu:0", "sim:0", "sim:1"]
TOKEN = "s" * 40


@pytest.fixture(params=["vm", "serial"])
def node(request):
    with td.connect("local", devices=DEVICES, node="node0", engine=request.param) as session:
        yield session


def test_all_devices_have_the_nodes_name(node):
    assert node.devices == ["node0/cpu:0", "node0/sim:0", "node0/sim:1"]
    x = node.asarray([1.0, 2.0])
    assert x.device == "node0/cpu:0"
    assert set(node.stats()["devices"]) == set(node.devices)


@each_case("name", ["sim:0", "node0/sim:0"])
def test_clients_may_leave_the_name_out(name, node):
    x = node.asarray([1.0, 2.0], device=name)
    y = node.xp.ones(2, device=name)
    z = node.asarray([3.0, 4.0]).to_device(name)
    z.prefetch(name)
    assert {x.device, y.device, z.device, (x + y).device} == {"node0/sim:0"}
    assert (x + y + z).numpy().tolist() == [5.0, 7.0]


@each_case("names", [("sim:0", "sim:1"), ("node0/sim:0", "node0/sim:1")])
def test_placements_and_collectives_may_leave_the_name_out(names, node):
    g = node.global_tensor([1.0, 2.0, 3.0, 4.0], td.placement(names), td.split(0))
    assert g.device.names == ("node0/sim:0", "node0/sim:1")
    assert (g + g).numpy().tolist() == [2.0, 4.0, 6.0, 8.0]
    sent = collectives.broadcast(node.asarray([1.0], device=names[0]), list(names))
    assert [one.device for one in sent] == ["node0/sim:0", "node0/sim:1"]
    assert [one.numpy().tolist() for one in sent] == [[1.0], [1.0]]


def test_routines_run_on_a_node(node):
    step = node.routine(lambda x: (x @ x).to_device("sim:1") + 1)
    x = node.asarray(np.eye(3), device="sim:0")
    for _ in range(3):
        assert step(x).device == "node0/sim:1"
    np.testing.assert_array_equal(step(x).numpy(), np.eye(3) + 1)


@each_case("name", ["node1/sim:0", "sim:7", "node0/sim:7"])
def test_a_device_of_another_node_is_none(name, node):
    with pytest.raises(MetadataError, match=r"unknown device '.*sim:.'; devices: node0/cpu:0, node0/sim:0"):
        node.asarray([1.0], device=name)


@each_case("name", ["", "a/b", "a:b", 3])
def test_what_is_no_name_of_a_node_is_refused(name):
    with pytest.raises(MetadataError, match="node= must be letters, digits"):
        td.connect("local", node=name)


def test_a_machine_is_shared_under_one_name():
    with td.connect("local:named", node="node0"):
        td.connect("local:named").close()
        with pytest.raises(MetadataError, match="as node 'node0'"):
            td.connect("local:named", node="node1")


@each_case(
    ("first", "then", "moved"),
    [
        ("node0", "node0", {}),
        ("node0", "node1", {"w": "node0/sim:0"}),
        ("node0", None, {"w": "node0/sim:0"}),
        (None, "node0", {}),
    ],
)
def test_a_checkpoint_is_restored_on_the_same_device_of_any_node(first, then, moved, tmp_path):
    with td.connect("local", devices=DEVICES, node=first) as session:
        session.publish({"w": session.asarray([1.0, 2.0], device="sim:0")})
        session.checkpoint(tmp_path / "kept")
    with td.connect("local", devices=DEVICES, node=then) as session:
        report = session.restore(tmp_path / "kept")
        assert report["moved"] == moved
        w = session.lookup("w")
        assert w.device == (f"{then}/sim:0" if then else "sim:0")
        assert w.numpy().tolist() == [1.0, 2.0]


def ask(session, what, *arguments):
    found = session._core.answers.query(what, *arguments)
    return [member_of(row).row() for row in found] if what == "members" else found


def test_a_daemon_says_which_node_it_is_and_takes_members_from_its_own_user(tmp_path):
    tcp = f"tcp://127.0.0.1:{free_port()}"
    options = ("--node", "node0", "--incarnation", "3", "--device", "cpu:0", "--device", "sim:0", "--address", tcp)
    with Daemon.start(tmp_path, *options) as daemon, daemon.connect() as session, td.connect(tcp) as stranger:
        transport = session._core.outbox.transport
        assert (transport.node, transport.incarnation) == ("node0", 3)
        assert session.devices == ["node0/cpu:0", "node0/sim:0"]
        own = ask(stranger, "members")
        assert own == [Member("node0", tcp, incarnation=3, devices=("node0/cpu:0", "node0/sim:0")).row()]
        table = [*own, Member("node1", incarnation=1).row()]
        with pytest.raises(ProtocolError, match="may set the members"):
            ask(stranger, "join", table, TOKEN)
        with pytest.raises(ProtocolError, match="does not contain node0"):
            ask(session, "join", table[1:], TOKEN)
        assert ask(stranger, "members") == own
        assert ask(session, "join", table, TOKEN) == 2
        assert ask(stranger, "members") == table


def test_a_machine_on_its_own_has_no_members():
    with td.connect("local") as session:
        assert ask(session, "members") == []
        with pytest.raises(MetadataError, match="no node name"):
            ask(session, "join", [], TOKEN)
    assert issubclass(td.NodeLost, ConnectionLost)
