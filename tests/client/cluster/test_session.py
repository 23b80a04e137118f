"""Functions that work on any node's device as on one machine, and calls that are refused."""

from __future__ import annotations

import gc
import os
from typing import Any
from weakref import ref

import numpy as np
import pytest

import tensord as td
from tensord.client.embedded import local
from tensord.client.session.handlers import DeviceHandler, Invocation
from tensord.interpreter.schema.opdef import find

from ...each_case import each_case
from ...puppet import eventually
from .nodes import joined

TWO = ["node0/cpu:0", "node1/sim:0"]
ALL = [f"{node}/{device}" for node in ("node0", "node1") for device in ("cpu:0", "sim:0", "sim:1")]


def test_it_has_the_devices_of_all_nodes_and_those_of_the_asked_one_first(cluster):
    assert cluster.devices == ALL
    assert cluster.nodes() == {"node0": "up", "node1": "up"}
    assert cluster.xp.__array_namespace_info__().devices() == tuple(ALL)
    with td.connect_cluster("local:node1") as other:
        assert other.devices[:3] == ALL[3:]
        assert other.asarray([1.0]).device == "node1/cpu:0"
    assert cluster.address == "local:node0"
    assert "node1/sim:0" in repr(cluster)


def test_a_tensor_has_its_nodes_core_so_an_op_looks_nothing_up(cluster):
    x, y = (cluster.asarray([1.0], device=device) for device in TWO)
    assert x._core is not y._core
    assert (y + y)._core is y._core
    with td.connect("local") as alone:
        assert type(y) is type(alone.asarray([1.0]))


@each_case("device", ALL)
def test_ops_methods_and_functions_run_where_their_tensors_are(device, cluster):
    x = cluster.asarray([[1.0, 2.0], [3.0, 4.0]], device=device)
    xp = cluster.xp
    made = [
        x + x,
        x.sum(),
        xp.add(x, 1.0),
        xp.concat([x, x]),
        xp.linalg.det(x),
        xp.fft.fft(xp.astype(x, xp.complex128)),
        cluster.nn.relu(x),
        cluster.call("matmul", [x, x])[0],
        cluster.call("add", (x, 1.0), out=[x.copy()])[0],
        xp.ones_like(x),
        xp.zeros(3, device=device),
        cluster.random.normal((2,), device=device),
        cluster.call("zeros", [], {"shape": (2,), "dtype": "float64"}, device=device)[0],
        x.__array_namespace__().exp(x),
        xp.asarray([x, x]),
        cluster.global_tensor([1.0, 2.0], td.placement([device])).to_device(device),
    ]
    assert {each.device for each in made} == {device}
    x[0] = 7.0
    assert x.numpy().tolist() == [[7.0, 7.0], [3.0, 4.0]]
    assert x.T[0].tolist() == [7.0, 3.0]
    np.testing.assert_array_equal(np.from_dlpack(x) if "cpu" in device else x.numpy(), x.numpy())


def test_a_device_without_a_node_is_one_of_the_node_at_hand(cluster):
    assert cluster.asarray([1.0], device="sim:1").device == "node0/sim:1"
    assert cluster.asarray([1.0], device="node1/cpu:0").to_device("sim:1").device == "node1/sim:1"


def both(cluster):
    return [cluster.asarray([1.0, 2.0], device=device) for device in TWO]


@each_case(
    "mix",
    [
        lambda _, x, y: x + y,
        lambda _, x, y: y.__iadd__(x),
        lambda s, x, y: s.xp.add(x, y),
        lambda s, x, y: s.xp.concat([x, y]),
        lambda s, x, y: s.call("add", [x, y]),
        lambda s, x, y: s.call("add", [x, x], out=[y]),
        lambda _, x, y: x.__setitem__(0, y[0]),
        lambda s, x, y: s.cond(x[0] > 0, lambda a: a + 1, lambda a: a, y),
        lambda s, x, y: s.routine(lambda a, b: a + b)(x, y),
    ],
    ids=lambda mix: str(mix.__code__.co_firstlineno),
)
def test_operands_on_two_nodes_are_refused_at_the_line_with_both_devices(mix, cluster):
    x, y = both(cluster)
    with pytest.raises(td.MetadataError, match="to_device") as caught:
        mix(cluster, x, y)
    assert "node0" in str(caught.value)
    assert "node1/sim:0" in str(caught.value) or "node1" in str(caught.value)
    assert caught.value.location is not None
    assert "test_session.py" in caught.value.location


def test_the_error_says_which_way_to_move(cluster):
    x, y = both(cluster)
    with pytest.raises(td.MetadataError, match=r'node1/sim:0.*node0/cpu:0.*x\.to_device\("node0/cpu:0"\)'):
        x + y


@each_case("device", ["node2/cpu:0", "node1/sim:7", "sim:9"])
def test_a_device_that_does_not_exist_is_refused(device, cluster):
    with pytest.raises(td.MetadataError, match="unknown device"):
        cluster.asarray([1.0], device=device)
    with pytest.raises(td.MetadataError, match="unknown device"):
        cluster.asarray([1.0]).to_device(device)


def test_random_bits_are_those_of_one_machine_with_as_many_devices(cluster):
    with td.connect("local", devices=["cpu:0", "sim:0"]) as alone:
        found = []
        for session, devices in ((cluster, TWO), (alone, ["cpu:0", "sim:0"])):
            session.random.seed(7)
            drawn = [session.random.normal((3,), device=device).numpy() for device in (*devices, None, devices[1])]
            found.append(np.stack(drawn))
    np.testing.assert_array_equal(found[0], found[1])


def test_a_context_holds_what_is_made_on_any_node(cluster):
    with cluster.context() as outer:
        with cluster.context() as inner:
            x, y = both(cluster)
            kept = inner.keep(y + 1)
            inner["x"] = x
            assert inner.stats()["tensors"] == 2
        assert x._id < 0 > y._id
        assert outer.stats()["tensors"] == 1
        assert kept.tolist() == [2.0, 3.0]
    with pytest.raises(td.ProtocolError, match="released when its context ended"):
        kept.numpy()


def test_routines_run_on_the_node_of_their_arguments(cluster):
    step = cluster.routine(lambda x: x * 2 + cluster.xp.ones(2))
    x, y = both(cluster)
    for _ in range(2):
        assert [step(each).device for each in (x, y)] == TWO
    assert step(y).tolist() == [3.0, 5.0]
    assert step.captures == 2


def test_a_routine_is_of_one_node(cluster):
    x, y = both(cluster)
    for function in (
        lambda a: (y * 2, a + 1)[1],
        lambda a: a + cluster.xp.ones(2, device=TWO[1]),
        lambda a: a.to_device(TWO[1]),
    ):
        with pytest.raises(td.TensordError, match="outside") as caught:
            cluster.routine(function)(x)
        assert "node1" in str(caught.value)
    program = cluster.routine(lambda a: (a + 1).to_device("sim:1") * 2).program(x)
    with pytest.raises(td.MetadataError, match=r"'node1/sim:0' is not on node0.*of one node"):
        cluster.link(program, devices={"d0": TWO[0], "d1": TWO[1]})


def test_control_flow_and_linked_programs_run_on_any_node(cluster):
    y = cluster.asarray([1.0, 2.0], device=TWO[1])
    assert cluster.cond(y[0] > 0, lambda a: a + 1, lambda a: a, y).device == TWO[1]
    assert cluster.repeat(3, lambda a: a + 1, y).tolist() == [4.0, 5.0]
    assert cluster.while_loop(lambda a: a[0] < 9, lambda a: a + 1, y).tolist() == [9.0, 10.0]
    program = cluster.routine(lambda a: a + 1).program(y)
    assert cluster.link(program, devices={"d0": TWO[1]})(y)[0].tolist() == [2.0, 3.0]
    g = cluster.global_tensor([1.0, 2.0], td.placement(["node1/sim:0", "node1/sim:1"]), td.split(0))
    assert len(cluster.explain(lambda a: a.to_global(layout=td.broadcast), g).rows) == 1


def test_a_placement_of_one_node_decides_where_things_are_made(cluster):
    one = td.placement(["node1/sim:0", "node1/sim:1"])
    g = cluster.global_tensor(np.arange(4.0), one, td.split(0))
    assert (g + g).numpy().tolist() == [0.0, 2.0, 4.0, 6.0]
    cluster.placement = one
    assert cluster.asarray([1.0, 2.0]).device == one
    assert cluster.xp.zeros(2).device == one
    cluster.placement = None
    assert cluster.xp.zeros(2).device == "node0/cpu:0"


def test_handlers_see_ops_of_all_nodes(cluster):
    x, seen = cluster.asarray([1.0]), []

    def handler(invocation):
        assert invocation.session is cluster
        seen.append((invocation.op.name, cluster.place(invocation)))
        return cluster.execute(invocation)

    before, cluster.handler = cluster.handler, handler
    y = cluster.asarray([1.0], device=TWO[1])
    assert (x + 1).tolist() == (y + 1).tolist() == [2.0]
    assert cluster.handler is handler
    assert seen == [("add", "node0/cpu:0"), ("add", TWO[1])]
    cluster.handler = before
    assert cluster.supports(find("add"), TWO[1])
    assert cluster.place(Invocation(cluster, find("ones"), (), (), None, TWO[1])) == TWO[1]


def test_counters_cannot_be_asked_for_in_an_atomic_block(cluster):
    with cluster.atomic(), pytest.raises(td.ProtocolError, match="nothing can be asked"):
        cluster.stats()
    assert set(cluster.stats()) == {"node0", "node1"}


@pytest.mark.usefixtures("machines_of_nodes")
def test_a_strict_session_is_strict_on_each_node():
    with td.connect_cluster("local:node0", strict=True) as session:
        x, y = (session.asarray([1.0], device=f"node1/{device}") for device in ("cpu:0", "sim:0"))
        with pytest.raises(td.MetadataError):
            (x + y).wait()


@pytest.mark.usefixtures("machines_of_nodes")
def test_what_is_closed_refuses_and_closing_twice_is_fine():
    session = td.connect_cluster("local:node0")
    x, y = both(session)
    session.close()
    session.close()
    assert session.closed
    for use in (x.numpy, y.numpy, lambda: session.asarray([1.0]), session.sync, session.names, session.nodes):
        with pytest.raises(td.ConnectionLost, match="closed"):
            use()


@pytest.mark.usefixtures("machines_of_nodes")
def test_a_dropped_session_ends_with_its_last_tensor():
    session = td.connect_cluster("local:node0")
    x, y = both(session)
    cores = [ref(each._core) for each in (x, y)]
    del session, x
    assert cores[0]() is None
    assert y.__array_namespace__().add(y, y).tolist() == [2.0, 4.0]
    del y
    gc.collect()
    assert cores[1]() is None
    eventually(lambda: [machine.sessions for machine in local._shared.values()] == [1, 1])


@pytest.mark.usefixtures("machines_of_nodes")
def test_connecting_asks_for_a_node():
    with td.connect("local:alone"), pytest.raises(td.MetadataError, match="does not belong to a cluster"):
        td.connect_cluster("local:alone")
    with pytest.raises(td.ConnectionLost, match="no daemon is running"):
        td.connect_cluster()
    for connect in (td.connect, td.connect_cluster):
        with pytest.raises(td.MetadataError, match="connect_cluster"):
            connect("ray://head:10001")


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_none_of_the_sessions(cluster):
    x, y = both(cluster)
    child = os.fork()
    if not child:
        uses = (lambda: x + 1, y.numpy, lambda: cluster.asarray([1.0], device=TWO[1]), cluster.sync, cluster.names)
        os._exit(sum(is_refused(use) for use in uses))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
    assert (y + 1).tolist() == [2.0, 3.0]


def is_refused(use):
    """Is it refused because the session belongs to another process?"""
    try:
        use()
    except td.ConnectionLost as error:
        return "another process" in error.message
    return False


def test_an_op_without_a_kernel_falls_back_to_the_cpu_of_its_node():
    lacking: list[Any] = ["cpu:0", {"name": "sim:0", "missing": ["tanh"]}]
    with (
        td.connect("local:node0", node="node0") as first,
        td.connect("local:node1", node="node1", devices=lacking) as second,
    ):
        joined({"node0": first, "node1": second})
        with td.connect_cluster("local:node0") as session:
            x = session.asarray([0.0, 1.0], device="node1/sim:0")
            y = session.xp.tanh(x)
            assert y.device == "node1/sim:0"
            np.testing.assert_allclose(y.numpy(), np.tanh([0.0, 1.0]))
            session.handler = DeviceHandler()
            with pytest.raises(td.MetadataError, match=r"tanh.* node1/sim:0"):
                session.xp.tanh(x)
