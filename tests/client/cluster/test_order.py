"""Waiting, fetching and cancelling on all nodes; atomic blocks, spans and side effects."""

from __future__ import annotations

import asyncio
import random
import threading

import pytest

import tensord as td

from ...each_case import each_case

TWO = ["node0/cpu:0", "node1/cpu:0"]


def both(cluster):
    return [cluster.asarray([1.0, 2.0], device=device) for device in TWO]


def test_sync_waits_for_all_nodes_and_adds_up_their_failures(cluster):
    x, y = both(cluster)
    wrong = [cluster.xp.take(each, cluster.xp.asarray([9], device=each.device)) for each in (x, y, y)]
    assert cluster.sync() == 3
    assert cluster.sync() == 0
    assert all(isinstance(each.error, td.KernelError) for each in wrong)


def test_values_of_several_nodes_are_fetched_in_their_order(cluster):
    x, y = both(cluster)
    found = cluster.fetch([y, x * 2, y + 1])
    assert [each.tolist() for each in found] == [[1.0, 2.0], [2.0, 4.0], [2.0, 3.0]]
    assert cluster.fetch([]) == []
    with td.connect("local") as other, pytest.raises(td.MetadataError, match="another session"):
        cluster.fetch([x, other.asarray([1.0])])
    with pytest.raises(td.MetadataError, match="use asarray"):
        cluster.fetch([x, 1.0])


def test_cancel_and_restart_concern_all_nodes(cluster):
    tensors = both(cluster)
    cluster.cancel()
    later = [each + 1 for each in tensors]
    for each in later:
        with pytest.raises(td.CancelledError):
            each.numpy()
    cluster.restart()
    assert [(cluster.asarray([1.0], device=device) + 1).item() for device in TWO] == [2.0, 2.0]


def test_an_event_loop_waits_for_all_nodes(cluster):
    async def main():
        x, y = both(cluster)
        assert [each.tolist() for each in await cluster.fetch_async([y, x])] == [[1.0, 2.0]] * 2
        await cluster.publish_async("w", y)
        assert await cluster.names_async() == ["node1/w"]
        assert (await cluster.lookup_async("w")).device == TWO[1]
        await cluster.unpublish_async("w")
        await cluster.flush_async()
        assert await cluster.sync_async() == 0
        assert set(await cluster.stats_async()) == {"node0", "node1"}
        return await asyncio.gather(*(cluster.sync_async() for _ in range(5)))

    assert asyncio.run(main()) == [0] * 5


def test_devices_are_listed_by_node_and_nodes_are_waited_for_by_name_or_number(cluster):
    assert cluster.devices_of("node1") == ["node1/cpu:0", "node1/sim:0", "node1/sim:1"]
    with pytest.raises(td.MetadataError, match="unknown node 'node7'; nodes: node0, node1"):
        cluster.devices_of("node7")
    assert cluster.wait_for_nodes() == ["node0", "node1"]
    assert asyncio.run(awaited(cluster.wait_for_nodes_async(["node1"]))) == ["node1"]
    with pytest.raises(TimeoutError, match=r"^after 0\.01 s node0, node1 serve$"):
        cluster.wait_for_nodes(3, timeout=0.01)
    with pytest.raises(TimeoutError, match=r"^after 0 s no node serves; node node7 is lost: it has left the cluster$"):
        cluster.wait_for_nodes(["node7"], timeout=0)
    for wrong in (0, True, 1.5, [], [1]):
        with pytest.raises(td.MetadataError, match="names of nodes, or how many"):
            cluster.wait_for_nodes(wrong)


async def awaited(promise):
    return await promise


@pytest.mark.usefixtures("machines_of_nodes")
def test_an_event_loop_opens_and_closes_a_session():
    async def main():
        async with td.connect_cluster_async("local:node0") as session:
            y = session.asarray([1.0], device=TWO[1])
            assert (await y.numpy_async()).tolist() == [1.0]
        return session

    assert asyncio.run(main()).closed


def test_a_wait_that_was_given_up_leaves_nothing_behind(cluster):
    async def main():
        waiting = asyncio.ensure_future(cluster.lookup_async("nobody", wait=None))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    assert cluster.names() == []


def test_an_atomic_block_is_one_group_on_the_node_of_its_first_op(cluster):
    x, y = both(cluster)
    for mine, others in ((x, y), (y, x)):
        with cluster.atomic():
            made = mine + 1
            with pytest.raises(td.MetadataError, match="two blocks") as caught:
                others + 1
            assert "test_order.py" in str(caught.value.location)
            with cluster.atomic():
                more = made * 2
        assert more.tolist() == [4.0, 6.0]
        assert (others + 1).tolist() == [2.0, 3.0]


@pytest.mark.usefixtures("machines_of_nodes")
def test_an_atomic_block_is_atomic_on_a_node_that_is_first_used_inside():
    with td.connect_cluster("local:node0") as session:
        x = session.asarray([1.0])
        with session.atomic():
            y = session.asarray([1.0], device=TWO[1])
            assert y._core.outbox.depth == 1
            with pytest.raises(td.MetadataError, match="two blocks"):
                x + 1
        assert y.item() == 1.0


@each_case("what", ["numpy", "names", "sync", "move"])
def test_nothing_waits_or_moves_inside_an_atomic_block(what, cluster):
    x, y = both(cluster)
    uses = {"numpy": x.numpy, "names": cluster.names, "sync": cluster.sync, "move": lambda: x.to_device(TWO[1])}
    with cluster.atomic():
        made = y + 1
        with pytest.raises(td.ProtocolError, match="atomic"):
            uses[what]()
    assert made.tolist() == [2.0, 3.0]


def test_an_error_inside_an_atomic_block_sends_what_was_issued(cluster):
    y = both(cluster)[1]
    made = []

    def issue_and_fail():
        with cluster.atomic():
            made.append(y + 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        issue_and_fail()
    assert made[0].tolist() == [2.0, 3.0]
    assert cluster.sync() == 0


def test_a_span_is_open_on_each_node_also_on_one_that_is_opened_inside(machines_of_nodes):
    with td.connect_cluster("local:node0") as session:
        with session.span("step"), session.span("inner"):
            y = session.asarray([1.0, 2.0], device=TWO[1])
            y * 3
        y - 1
        session.sync()
    found = {}
    for record in machines_of_nodes["node1"].trace().records:
        found[record.op] = record.span
    assert found["multiply"] == ("step", "inner")
    assert not found["subtract"]


def test_stats_are_by_node(cluster):
    both(cluster)
    found = cluster.stats()
    assert {node: set(each["devices"]) for node, each in found.items()} == {
        node: {f"{node}/{device}" for device in ("cpu:0", "sim:0", "sim:1")} for node in ("node0", "node1")
    }
    assert cluster.stats(by="device")["node1"]["memory"]["rows"] is not None


def test_side_effects_of_tensors_of_the_first_node_come_in_order(cluster, capsys):
    x, seen = both(cluster)[0], []
    cluster.effect(lambda value: seen.append(value.tolist()), x)
    cluster.print("x is", x)
    chain = cluster.chain()
    cluster.effect(lambda: seen.append("on a chain"), chain=chain)
    cluster.check_chain()
    cluster.check_chain(chain)
    assert seen == [[1.0, 2.0], "on a chain"]
    assert capsys.readouterr().out == "x is [1. 2.]\n"


def test_threads_on_all_nodes_wait_for_no_two_of_each_other(cluster):
    failed: list[BaseException] = []

    def work(seed):
        choose = random.Random(seed)
        try:
            for _ in range(30):
                x = cluster.asarray([1.0, 2.0], device=TWO[choose.randrange(2)])
                what = choose.randrange(5)
                if what == 0:
                    with cluster.atomic():
                        x += 1
                        cluster.publish(f"name{seed}", x)
                elif what == 1:
                    cluster.names()
                elif what == 2:
                    assert x.to_device(TWO[choose.randrange(2)]).tolist() == [1.0, 2.0]
                elif what == 3:
                    cluster.sync()
                else:
                    assert [each.tolist() for each in cluster.fetch([x, x + 1])] == [[1.0, 2.0], [2.0, 3.0]]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed


def test_a_host_call_is_of_the_node_of_its_first_tensor(cluster):
    x, y = both(cluster)
    z = cluster.host_call(lambda a, b: a + 10 * b, y, x, result=x)
    assert (z.device, z.tolist()) == (TWO[1], [11.0, 22.0])
    one, two = cluster.host_call(lambda a: [a, a + 1], x, result=[x, x], device=TWO[1])
    assert (one.device, two.tolist()) == (TWO[1], [2.0, 3.0])
    made = cluster.host_call(lambda: 3, result=((), "int64"), device=TWO[1])
    assert (made.device, made.item()) == (TWO[1], 3)
    with pytest.raises(td.KernelError, match="ZeroDivisionError"):
        cluster.host_call(lambda _: 1 // 0, y, result=y).numpy()
