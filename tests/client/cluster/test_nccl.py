"""Collectives by NCCL on GPUs of several nodes, over the fake: machines of one process that share a fake's GPUs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.embedded import local
from tensord.collectives import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter
from tensord.interpreter.errors import CancelledError, KernelError
from tensord.streams.cuda import nccl_library
from tensord.streams.links.in_memory import InMemory, mesh
from tensord.vm.machine import VirtualMachine

from ...behaviours.looking_inside import device_of, machine_of, until
from ...each_case import each_case
from ...streams.fake_cuda.gpu import CUDARuntimeError, Gpu
from ...streams.fake_cuda.module import installed
from .nodes import joined

WAIT = 20.0
GPUS = {"node0": (0, 1), "node1": (2,), "node2": (3,)}
ALL = ["node0/cuda:0", "node0/cuda:1", "node1/cuda:2", "node2/cuda:3"]


class Nodes:
    """Three machines, the sessions on each, and one on all."""

    def __init__(self, gpu: Gpu, links: dict[str, InMemory], sessions: dict[str, td.Session]) -> None:
        self.gpu = gpu
        self.links = links
        self.sessions = sessions
        self.session: td.ClusterSession = td.connect_cluster("local:node0")

    @property
    def nccl(self) -> Any:
        """The fake of NCCL's module."""
        import cupy

        return cupy.cuda.nccl

    def library(self, node: str) -> Any:
        return device_of(self.sessions[node], f"{node}/cuda:{GPUS[node][0]}").library

    def spread(self, names: list[str], values: list[Any], session: Any = None) -> list[td.Tensor]:
        return [(session or self.session).asarray(x, device=name) for x, name in zip(values, names, strict=True)]

    def ones(self, names: list[str], session: Any = None) -> list[td.Tensor]:
        return self.spread(names, [np.ones(4)] * len(names), session)

    def ways(self, node: str) -> list[str]:
        """The ways in which the collectives were carried out on a node."""
        records = self.sessions[node].trace().records
        return [one.op.split(" of ")[0].split()[-1] for one in records if one.opcode == "CompleteCollective"]

    def stuck(self, names: list[str], node: str, **options: Any) -> list[td.Tensor]:
        """A collective that all nodes have launched, and whose kernel on a node's GPU cannot start yet."""
        tensors = self.ones(names)
        for each in all_reduce(tensors):
            each.wait(timeout=WAIT)  # makes the communicator and its streams
        queues = {name: self.library(name[:5])._streams[name].queue for name in names}
        before = {name: queue.launched for name, queue in queues.items()}
        own = next(name for name in names if name.startswith(node))
        self.gpu.enqueue(queues[own], lambda: None, self.gpu.hold("it"))
        results = all_reduce(tensors, **options)
        self.session.flush()
        for name, queue in queues.items():
            awaited = before[name] + 2 + (name == own)  # the launch, its event; the hold
            until(self.sessions[name[:5]], lambda queue=queue, awaited=awaited: queue.launched >= awaited)
        return results


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nodes]:
    with ExitStack() as stack:
        gpu = stack.enter_context(installed(Gpu(seed=3, devices=4, memory=1 << 30, nccl=True)))
        links = dict(zip(GPUS, mesh(list(GPUS)), strict=True))

        def machine(asked: local.MachineRequest) -> VirtualMachine:
            node = asked.node or ""
            return VirtualMachine(asked.devices or (), tracing=asked.tracing, node=node, links=links.get(node))

        monkeypatch.setattr(local, "new_machine", machine)
        sessions = {}
        for node, gpus in GPUS.items():
            devices: list[Any] = ["cpu:0", *({"name": f"cuda:{n}", "memory": "4MiB"} for n in gpus)]
            sessions[node] = stack.enter_context(td.connect(f"local:{node}", node=node, devices=devices))
        found = Nodes(gpu, links, joined(sessions))
        with found.session:
            yield found


def values_of(shape: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(7)
    return [(rng.standard_normal(shape) * 9).astype("float32") for _ in ALL]


class TestValues:
    @each_case("shape", [(8, 3), (7, 2), (3,), (1, 5)])
    def test_are_numpys(self, nodes: Nodes, shape: tuple[int, ...]) -> None:
        """For shapes whose parts are even, uneven, and empty."""
        values = values_of(shape)
        tensors = nodes.spread(ALL, values)
        for each in all_reduce(tensors):
            np.testing.assert_allclose(each.numpy(), sum(values), rtol=1e-5, atol=1e-5)
        for each in all_gather(tensors):
            assert np.array_equal(each.numpy(), np.concatenate(values))
        for each, part in zip(reduce_scatter(tensors), np.array_split(sum(values), 4), strict=True):
            np.testing.assert_allclose(each.numpy(), part, rtol=1e-5, atol=1e-5)
        for each in broadcast(tensors[2], ALL):
            assert np.array_equal(each.numpy(), values[2])
        cut = [np.array_split(value, 4) for value in values]
        for rank, each in enumerate(all_to_all(tensors, 0, 0)):
            assert np.array_equal(each.numpy(), np.concatenate([parts[rank] for parts in cut]))
        assert {*nodes.ways("node0"), *nodes.ways("node1"), *nodes.ways("node2")} == {"nccl"}
        assert nodes.session.trace().verify() == []
        assert len(nodes.nccl._alive) == 1

    def test_what_nccl_has_not_goes_by_chunks_on_all_nodes(self, nodes: Nodes) -> None:
        values = [np.array([np.nan, 1.0]), np.array([2.0, 3.0])]
        found = all_reduce(nodes.spread([ALL[0], ALL[2]], values), "max")
        assert str(found[1].tolist()) == "[nan, 3.0]"
        (lone,) = broadcast(nodes.ones([ALL[0]])[0], [ALL[3]])
        assert lone.tolist() == [1.0] * 4
        assert "nccl" not in nodes.ways("node0") + nodes.ways("node2")

    def test_go_by_chunks_if_one_node_has_another_version(self, nodes: Nodes) -> None:
        nodes.library("node1").version = "nccl 1"
        with td.connect_cluster("local:node0") as session:
            found = all_reduce(nodes.ones([ALL[0], ALL[2]], session))
            assert [each.tolist() for each in found] == [[2.0] * 4] * 2
        assert nodes.ways("node0") == nodes.ways("node1") == ["direct"]

    def test_operands_that_come_late_on_a_node_hold_up_no_other_collective(self, nodes: Nodes) -> None:
        """One node needs a later collective of the program for one that comes first on the other node."""
        one, other = nodes.ones([ALL[0], ALL[2]]), nodes.ones([ALL[0], ALL[2]])
        first = all_reduce(one)
        second = all_reduce([other[0], first[1] + other[1]])
        third = all_reduce([second[0] * 0, other[1]])
        assert [each.tolist() for each in third] == [[1.0] * 4] * 2


class TestOrder:
    def test_is_one_for_clients_with_overlapping_nodes_in_a_circle(self, nodes: Nodes) -> None:
        """Each client begins with another pair of the three nodes, and names its GPUs in another order."""
        pairs = [[ALL[0], ALL[2]], [ALL[2], ALL[3]], [ALL[3], ALL[0]]]
        with ExitStack() as stack:
            clients = [stack.enter_context(td.connect_cluster("local:node0")) for _ in pairs]
            tensors = [[nodes.ones(pair, client) for pair in pairs] for client in clients]
            found = []
            for turn in range(6):
                for n, own in enumerate(tensors):
                    found += all_reduce(own[(turn + n) % 3]) + all_reduce(own[(turn - n) % 3][::-1])
            assert all(each.tolist() == [2.0] * 4 for each in found)
        assert len(nodes.nccl._alive) == 6
        assert nodes.session.trace().verify() == []

    def test_holds_with_collectives_of_one_node_between(self, nodes: Nodes) -> None:
        wide, narrow = nodes.ones(ALL), nodes.ones(ALL[:2])
        found = []
        for _ in range(6):
            found += all_reduce(narrow) + all_reduce(wide)
        assert [each.tolist()[0] for each in found] == [2.0] * 2 + [4.0] * 4 + [2.0, 2.0, 4.0, 4.0, 4.0, 4.0] * 5

    def test_of_communicators_is_bounded_alike_on_all_nodes(
        self, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A communicator that one node alone has ended is made anew on all."""
        monkeypatch.setattr(nccl_library, "MAX_COMMUNICATORS", 2)
        x, y = nodes.ones([ALL[0], ALL[2]]), nodes.ones([ALL[0], ALL[3]])
        for _ in range(3):
            for pair in (x, y, x[::-1]):
                assert all_reduce(pair)[1].tolist() == [2.0] * 4
        assert len(nodes.library("node0")._made) == len(nodes.library("node1")._made) == 2
        assert len(nodes.library("node2")._made) == 1


class TestErrors:
    def test_of_a_tensor_reach_all_nodes_and_nothing_is_launched(self, nodes: Nodes) -> None:
        good, bad, other = nodes.spread([ALL[0], ALL[2], ALL[3]], [np.ones((2, 2)), np.zeros((2, 2)), np.ones((2, 2))])
        bad = nodes.session.xp.linalg.inv(bad)
        for each in all_reduce([good, bad, other]):
            with pytest.raises(KernelError, match="inv"):
                each.wait(timeout=WAIT)
        assert nodes.nccl._cliques == {}

    @pytest.mark.parametrize("refusing", ["node0", "node1"])
    def test_a_node_that_refuses_its_part_tells_all_others(self, nodes: Nodes, refusing: str) -> None:
        tensors = nodes.ones([ALL[0], ALL[2], ALL[3]])
        nodes.library(refusing).version = "nccl 1"
        for each in all_reduce(tensors):
            with pytest.raises(td.MetadataError, match=f"nccl 22707 is not there for {refusing}"):
                each.wait(timeout=WAIT)
        nodes.session.sync(WAIT)

    def test_a_session_that_is_lost_on_a_node_has_the_others_give_up(self, nodes: Nodes) -> None:
        nodes.links["node1"].cut_off("node0")
        results = all_reduce(nodes.ones([ALL[0], ALL[2]]))
        nodes.session.flush()
        cores = {core.node: core for core in nodes.session._cluster.cores()}
        assert cores["node0"].answers.query("withdraw", "node7") == 0
        assert cores["node0"].answers.query("withdraw", "node1") == 1
        with pytest.raises(td.NodeLost, match="the session there has ended before it took part"):
            results[0].wait(timeout=WAIT)
        nodes.session.cancel()

    @pytest.mark.parametrize("lost", ["node0", "node1"])
    def test_a_node_that_is_lost_during_a_launch_ends_it_on_all_others(self, nodes: Nodes, lost: str) -> None:
        names = [ALL[0], ALL[2], ALL[3]]
        results = nodes.stuck(names, "node1")
        lose(nodes, lost)
        nodes.gpu.release("it")
        for each in results:
            with pytest.raises(td.NodeLost, match="the cable is cut"):
                each.wait(timeout=WAIT)
        left = [name for name in names if not name.startswith(lost)]
        assert all(each.tolist() == [2.0] * 4 for each in all_reduce(nodes.ones(left)))

    def test_a_node_that_is_lost_before_it_is_ready_ends_the_wait(self, nodes: Nodes) -> None:
        nodes.links["node2"].cut_off("node0")  # node2 takes part, and its reports reach no node
        results = all_reduce(nodes.ones([ALL[0], ALL[2], ALL[3]]))
        nodes.session.flush()
        exchange = nodes.links["node0"].exchanges["node2"]
        until(nodes.sessions["node0"], lambda: exchange.pending() > 0)
        lose(nodes, "node2")
        for each in results[:2]:
            with pytest.raises(td.NodeLost, match="node2 is lost"):
                each.wait(timeout=WAIT)

    def test_a_lost_gpu_aborts_the_communicator_on_all_nodes(self, nodes: Nodes) -> None:
        results = nodes.stuck([ALL[0], ALL[2], ALL[3]], "node1")
        (clique,) = nodes.nccl._alive
        nodes.gpu.broken[2] = CUDARuntimeError(700, "cudaErrorIllegalAddress", "an illegal memory access")
        with nodes.gpu.changed:
            for queue in nodes.gpu.queues.values():
                if queue.device == 2:
                    queue.items.clear()
        nodes.gpu.release("it")
        for each in results:
            with pytest.raises(KernelError, match="cuda:2 is lost"):
                each.wait(timeout=WAIT)
        assert len(clique.gone) == 3
        assert all_reduce(nodes.ones([ALL[0], ALL[3]]))[0].tolist() == [2.0] * 4

    def test_a_timeout_names_whom_it_waits_for(self, nodes: Nodes) -> None:
        nodes.links["node1"].cut_off("node0")
        results = all_reduce(nodes.ones([ALL[0], ALL[2]]), timeout=0.5)
        waits = "it waits for operands and results on other nodes: node1 "
        with pytest.raises(KernelError, match=rf"within 0\.5 s: {waits}"):
            results[0].wait(timeout=WAIT)
        for each in results[1:]:
            with pytest.raises(KernelError, match=r"within 0\.5 s"):
                each.wait(timeout=WAIT)

    def test_a_timeout_during_a_launch_ends_it_everywhere_and_the_next_one_works(self, nodes: Nodes) -> None:
        names = [ALL[0], ALL[2]]
        results = nodes.stuck(names, "node1", timeout=0.5)
        for each in results:
            with pytest.raises(KernelError, match=r"within 0\.5 s"):
                each.wait(timeout=WAIT)
        nodes.gpu.release("it")
        assert all_reduce(nodes.ones(names))[1].tolist() == [2.0] * 4
        assert len(nodes.nccl._cliques) == 2

    def test_a_launch_that_hangs_without_a_timeout_is_reported_where_it_hangs(self, nodes: Nodes) -> None:
        """A collective that waits for operands of another node does not count as hanging."""
        nodes.links["node2"].cut_off("node0")
        all_reduce(nodes.ones([ALL[1], ALL[3]]))
        results = nodes.stuck([ALL[0], ALL[2]], "node1")
        for node, session in nodes.sessions.items():
            machine_of(session).hang_after = 0.0
            machine_of(session).watch()
            found = [str(hang["op"]) for hang in machine_of(session).hung.values() if "nccl" in str(hang["op"])]
            assert len(found) == (node != "node2")
            assert all("nccl of 2" in one and "it waits for the GPUs of this node" in one for one in found)
        nodes.gpu.release("it")
        assert results[1].wait(timeout=WAIT).shape == (4,)
        nodes.session.cancel()

    def test_a_trace_says_with_which_nodes_it_was_launched(self, nodes: Nodes) -> None:
        all_reduce(nodes.ones([ALL[0], ALL[2], ALL[3]]))[2].wait(timeout=WAIT)
        trace = nodes.sessions["node1"].trace()
        (launch,) = [record for record in trace.records if record.opcode == "LaunchCollective"]
        assert "one launch by nccl on all 3 devices, together with node0, node2\n" in trace.why(launch)

    def test_a_cancelled_launch_goes_to_its_end_and_its_communicator_is_kept(self, nodes: Nodes) -> None:
        names = [ALL[0], ALL[2]]
        results = nodes.stuck(names, "node1")
        nodes.session.cancel()
        nodes.gpu.release("it")
        with pytest.raises(CancelledError):
            results[0].wait(timeout=WAIT)
        nodes.session.restart()
        assert all_reduce(nodes.ones(names))[1].tolist() == [2.0] * 4
        assert len(nodes.nccl._cliques) == 1

    def test_a_cancellation_on_one_node_before_the_launch_reaches_the_others(self, nodes: Nodes) -> None:
        nodes.links["node1"].cut_off("node0")
        results = all_reduce(nodes.ones([ALL[0], ALL[2], ALL[3]]))
        nodes.session.flush()
        nodes.session.cancel()
        for each in results:
            with pytest.raises(CancelledError):
                each.wait(timeout=WAIT)
        nodes.session.restart()
        nodes.session.sync(WAIT)
        assert nodes.links["node0"].exchanges["node2"].pending() == 0


class TestMaking:
    def test_that_waits_for_a_rank_for_ever_is_given_up_and_the_next_collective_works(
        self, nodes: Nodes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """node1 never joins: it makes the communicator of another id."""
        spoil(nodes, monkeypatch, "node1")
        results = all_reduce(nodes.ones([ALL[0], ALL[2]]))
        nodes.session.flush()
        until(nodes.sessions["node0"], lambda: nodes.nccl._waiting == 2)
        lose(nodes, "node1")
        with pytest.raises(td.NodeLost):
            results[0].wait(timeout=WAIT)
        assert all_reduce(nodes.ones([ALL[0], ALL[3]]))[0].tolist() == [2.0] * 4
        nodes.nccl.dissolve()

    def test_is_bounded_in_time_and_in_what_is_left(self, nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(nccl_library, "JOIN_TIMEOUT", 0.0)
        monkeypatch.setattr(nccl_library, "CHECK_INTERVAL", 0.001)
        spoil(nodes, monkeypatch, "node1")
        tensors = nodes.ones([ALL[0], ALL[2]])
        whys = ["have not come within"] * nccl_library.MAX_ABANDONED + ["communicators still wait"]
        for why in whys:
            for result in all_reduce(tensors):
                with pytest.raises(KernelError, match=why):
                    result.wait(timeout=WAIT)
        until(nodes.sessions["node0"], lambda: nodes.nccl._waiting == number_of_makers())
        assert nodes.nccl._waiting >= nccl_library.MAX_ABANDONED  # node1 may hear of the error before it makes one
        nodes.nccl.dissolve()


def number_of_makers() -> int:
    """The number of threads that make a communicator."""
    return sum(thread.name == "tensord nccl maker" for thread in threading.enumerate())


def lose(nodes: Nodes, node: str) -> None:
    """Mark a node as lost on all others, and all others as lost there."""
    for other, links in nodes.links.items():
        if other != node:
            links.lose(node, "the cable is cut")
            nodes.links[node].lose(other, "the cable is cut")


def spoil(nodes: Nodes, monkeypatch: pytest.MonkeyPatch, node: str) -> None:
    """Let a node make communicators with an id that no other node has."""
    library = nodes.library(node)
    make: Callable[..., Any] = library._new_communicator
    monkeypatch.setattr(library, "_new_communicator", lambda job, id_: make(job, id_[::-1]))
