"""Moves of tensors from node to node."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

import tensord as td

from ...each_case import each_case

WAYS = [
    ("node0/cpu:0", "node1/cpu:0"),
    ("node0/sim:0", "node1/sim:1"),
    ("node1/sim:0", "node0/cpu:0"),
]


@each_case(("here", "there"), WAYS)
def test_a_value_is_the_same_on_the_other_node(here, there, cluster):
    values = np.arange(12.0).reshape(3, 4)
    x = cluster.asarray(values, device=here)
    y = x.to_device(there)
    assert (y.device, y.shape, y.dtype) == (there, (3, 4), np.float64)
    np.testing.assert_array_equal(y.numpy(), values)
    np.testing.assert_array_equal((y + y).to_device(here).numpy(), values * 2)
    assert cluster.sync() == 0


def test_a_large_value_a_view_and_an_empty_one_arrive(cluster):
    large = np.arange(1 << 18, dtype=np.float32)
    x = cluster.asarray(large)
    view = x[10:20]
    found = [each.to_device("node1/sim:0") for each in (x, view, x[:0], x[5].reshape(()))]
    for got, wanted in zip(found, (large, large[10:20], large[:0], large[5]), strict=True):
        np.testing.assert_array_equal(got.numpy(), wanted)


def test_the_value_is_that_of_its_place_in_program_order(cluster):
    x = cluster.asarray([1.0, 2.0])
    y = x.to_device("node1/cpu:0")
    x += 10
    z = x.to_device("node1/cpu:0")
    y *= 2
    assert [each.tolist() for each in (x, y, z)] == [[11.0, 12.0], [2.0, 4.0], [11.0, 12.0]]


def test_an_error_travels_with_its_line_and_the_rest_goes_on(cluster):
    bad = cluster.xp.take(cluster.asarray([1.0]), cluster.asarray([9]))
    moved = bad.to_device("node1/cpu:0") + 1
    with pytest.raises(td.KernelError) as caught:
        moved.numpy()
    assert "test_moving.py" in str(caught.value.location)
    assert (cluster.asarray([1.0]).to_device("node1/cpu:0") + 1).item() == 2.0


def test_a_shape_that_data_decide_is_waited_for(cluster):
    x = cluster.xp.unique_values(cluster.asarray([1, 2, 2]))
    assert x.to_device("node1/sim:0").tolist() == [1, 2]


def test_a_cancelled_send_and_a_released_one_leave_nothing_open(cluster):
    x = cluster.asarray([1.0])
    y = x.to_device("node1/cpu:0")
    del x
    assert y.item() == 1.0
    cluster.cancel()
    z = cluster.asarray([2.0]).to_device("node1/cpu:0")
    with pytest.raises(td.CancelledError):
        z.wait()
    cluster.restart()
    assert cluster.asarray([3.0]).to_device("node1/cpu:0").item() == 3.0
    cluster.sync()


def test_functions_that_name_a_device_of_another_node_move_their_result(cluster):
    x = cluster.asarray([1.0, 2.0])
    xp = cluster.xp
    made = [
        cluster.asarray(x, device="node1/sim:0"),
        xp.asarray(x, device="node1/sim:0"),
        xp.ones_like(x, device="node1/sim:0"),
        xp.full((2,), x[0], device="node1/sim:0"),
        cluster.random.permutation(x, device="node1/sim:0"),
    ]
    assert {each.device for each in made} == {"node1/sim:0"}
    assert made[1].tolist() == [1.0, 2.0]
    with pytest.raises(td.MetadataError, match="is not on node0"):
        cluster.call("add", [x, x], device="node1/sim:0")


def test_a_global_tensor_is_put_together_and_moved(cluster):
    g = cluster.global_tensor(np.arange(4.0), td.placement(["node0/sim:0", "node0/sim:1"]), td.split(0))
    assert g.to_device("node1/sim:0").tolist() == [0.0, 1.0, 2.0, 3.0]
    there = td.placement(["node1/sim:0", "node1/sim:1"])
    moved = g.to_device("node1/sim:0").to_global(there, td.split(0))
    assert moved.numpy().tolist() == [0.0, 1.0, 2.0, 3.0]


def test_side_effects_and_files_take_tensors_of_all_nodes_in_one_order(cluster, capsys, tmp_path):
    seen = []
    tensors = [cluster.asarray([float(n)], device=f"node{n % 2}/sim:0") for n in range(4)]
    for tensor in tensors:
        cluster.effect(lambda value: seen.append(value.item()), tensor)
    cluster.print(*tensors)
    cluster.check_chain()
    assert seen == [0.0, 1.0, 2.0, 3.0]
    assert capsys.readouterr().out == "[0.] [1.] [2.] [3.]\n"
    path = tmp_path / "all.safetensors"
    cluster.save(path, {str(n): tensor for n, tensor in enumerate(tensors)}).wait()
    assert {name: x.item() for name, x in cluster.load(path).items()} == {str(n): float(n) for n in range(4)}


def test_many_ways_at_once_in_an_event_loop(cluster):
    async def round_trip(n):
        x = cluster.asarray([float(n)], device="node0/sim:0")
        for node in ("node1", "node0", "node1"):
            x = x.to_device(f"{node}/cpu:0") + 1
        return (await x.numpy_async()).item()

    async def main():
        return await asyncio.gather(*map(round_trip, range(20)))

    assert asyncio.run(main()) == [n + 3.0 for n in range(20)]


def test_a_transfer_is_an_arrow_of_the_trace_and_why_follows_it(cluster):
    x = cluster.asarray(np.ones((64, 64)))
    y = (x @ x).to_device("node1/cpu:0") + 1
    y.wait()
    cluster.sync()
    trace = cluster.trace()
    (link,) = [(edge, record) for record in trace.records for edge in record.edges if edge.reason == "link"]
    edge, received = link
    assert trace.require(edge.source).op.startswith("send to node1")
    assert received.op.startswith("recv from node0")
    assert "send to node1" in trace.why(received)


def test_nothing_is_left_of_what_moved(cluster, machines_of_nodes):
    for _ in range(50):
        cluster.asarray(np.ones(100)).to_device("node1/cpu:0").to_device("node0/sim:0").wait()
    cluster.sync()
    for session in machines_of_nodes.values():
        assert session.stats()["live"] == 0 if "live" in session.stats() else True
