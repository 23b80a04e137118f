"""Collectives on tensors of several nodes: values, errors that reach all nodes, and nodes that are lost meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import pytest

import tensord as td
from tensord.collectives import all_gather, all_reduce, all_to_all, broadcast, reduce_scatter
from tensord.interpreter.collectives.over_nodes import transfer_of
from tensord.streams.links.in_memory import InMemory

from ...each_case import each_case

Tensors: TypeAlias = list[td.Tensor]

NAMES = ("node0/sim:0", "node1/sim:0", "node1/sim:1", "node0/sim:1")
SMALL, LARGE = (3, 4), (64, 2200)  # direct; around a ring
WAIT = 60.0
KINDS: dict[str, Callable[[Tensors, list[str]], Tensors]] = {
    "all_reduce": lambda tensors, _: all_reduce(tensors),
    "all_reduce max": lambda tensors, _: all_reduce(tensors, "max", merge="stream"),
    "all_gather": lambda tensors, _: all_gather(tensors),
    "all_gather along the last axis": lambda tensors, _: all_gather(tensors, -1),
    "reduce_scatter": lambda tensors, _: reduce_scatter(tensors),
    "reduce_scatter along the last axis": lambda tensors, _: reduce_scatter(tensors, axis=-1),
    "broadcast": lambda tensors, names: broadcast(tensors[1], [*names[2:], names[0]]),
    "all_to_all": lambda tensors, _: all_to_all(tensors, 0, 1),
}


class Two:
    """Two machines of this process, and a session on both."""

    def __init__(self, links: tuple[InMemory, InMemory], session: td.ClusterSession) -> None:
        self.links = links
        self.session = session

    def tensors(self, shape: tuple[int, ...], names: tuple[str, ...] = NAMES) -> Tensors:
        return [self.session.asarray(value, device=name) for value, name in zip(values(shape), names, strict=False)]


@pytest.fixture
def two(links: dict[str, InMemory], cluster: td.ClusterSession) -> Two:
    return Two((links["node0"], links["node1"]), cluster)


def values(shape: tuple[int, ...]) -> list[Any]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(shape).astype(np.float32) for _ in NAMES]


def on_one_machine(kind: str, shape: tuple[int, ...]) -> list[bytes]:
    """The bytes of the results with all devices on one machine."""
    names = [f"sim:{number}" for number in range(len(NAMES))]
    with td.connect("local", devices=["cpu:0", *names]) as session:
        tensors = [session.asarray(value, device=name) for value, name in zip(values(shape), names, strict=True)]
        return [each.numpy().tobytes() for each in KINDS[kind](tensors, names)]


class TestValues:
    @each_case("kind", list(KINDS))
    @each_case("shape", [SMALL, LARGE])
    def test_have_the_bits_of_one_machine(self, two: Two, kind: str, shape: tuple[int, ...]) -> None:
        results = KINDS[kind](two.tensors(shape), list(NAMES))
        assert [each.numpy().tobytes() for each in results] == on_one_machine(kind, shape)
        if kind != "broadcast":
            assert tuple(each.device for each in results) == NAMES
        two.session.sync(WAIT)

    def test_of_a_view_are_those_of_its_elements(self, two: Two) -> None:
        first, second = two.tensors((40, 40), NAMES[:2])
        (found, _), expected = all_gather([first.T, second.T]), [one.T for one in values((40, 40))[:2]]
        assert (found.numpy() == np.concatenate(expected)).all()

    def test_go_on_through_the_host_where_links_do_not_reach(self, two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
        machines = [core.transport.machine for core in two.session._cluster.cores()]
        for machine in machines:
            monkeypatch.setattr(machine.devices[f"{machine.node}/sim:0"], "linked", False)
        results = all_reduce(two.tensors(LARGE, NAMES[:2]))
        one, other = values(LARGE)[:2]
        assert all(np.allclose(each.numpy(), one + other, atol=1e-5) for each in results)

    def test_a_broadcast_reaches_a_node_that_has_nothing_of_it(self, two: Two) -> None:
        (x,) = two.tensors(SMALL, ("node0/sim:0",))
        (found,) = broadcast(x, ["node1/sim:1"])
        assert found.device == "node1/sim:1"
        assert (found.numpy() == values(SMALL)[0]).all()


class TestErrors:
    @each_case("shape", [SMALL, LARGE])
    def test_of_a_tensor_reach_the_results_on_both_nodes(self, two: Two, shape: tuple[int, ...]) -> None:
        first, second = two.tensors(shape, NAMES[:2])
        failed = second[two.session.asarray(np.full(shape[0], 99), device=NAMES[1])]
        for each in all_reduce([first, failed]):
            with pytest.raises(td.KernelError, match="99"):
                each.wait(WAIT)
        assert all_reduce([first, second])[1].wait(WAIT).shape == shape

    def test_what_does_not_fit_raises_at_the_call(self, two: Two) -> None:
        x, y, z, _ = two.tensors(SMALL)
        session = two.session
        with pytest.raises(td.MetadataError, match="they must be equal"):
            all_reduce([x, y[:2]])
        with pytest.raises(td.MetadataError, match="twice"):
            all_reduce([x, y, z, z])
        with pytest.raises(td.MetadataError, match="unknown device"):
            broadcast(x, ["node7/sim:0"])
        with pytest.raises(td.ProtocolError, match="atomic block"), session.atomic():
            all_reduce([x, y])

    def test_a_node_that_is_lost_fails_the_results_on_the_other(self, two: Two) -> None:
        first, second = two.tensors(LARGE, NAMES[:2])
        slow = second[two.session.asarray(np.arange(64), device=NAMES[1])]
        for links, node in zip(two.links, ("node1", "node0"), strict=True):
            links.lose(node, "a test took it away")
        for each in all_reduce([first, slow]):
            with pytest.raises(td.NodeLost, match="a test took it away"):
                each.wait(WAIT)
        assert (first.numpy() == values(LARGE)[0]).all()

    def test_a_node_that_never_offers_is_named_within_the_timeout(self, two: Two) -> None:
        (x,) = two.tensors(LARGE, NAMES[:1])
        two.links[1].cut_off("node0")
        (y,) = two.tensors(LARGE, NAMES[1:2])
        results = all_reduce([x, y], timeout=0.5)
        for each in results:
            with pytest.raises(td.KernelError, match=r"(recv from|send to) node. .* within [\d.]+ s"):
                each.wait(WAIT)

    def test_a_cancelled_session_leaves_nothing_behind(self, two: Two) -> None:
        held = two.links[0].exchanges["node1"]
        two.links[1].cut_off("node0")
        first, second = two.tensors(LARGE, NAMES[:2])
        results = all_reduce([first, second])
        two.session.cancel()
        two.session.restart()
        for each in results:
            with pytest.raises(td.CancelledError):
                each.wait(WAIT)
        two.session.sync(WAIT)
        assert held.pending() == 0


def test_the_transfers_of_steps_are_numbered_on() -> None:
    assert transfer_of(bytes(16), 258) == bytes(14) + b"\x01\x02"
    assert transfer_of(b"\xff" * 16, 2) == bytes(15) + b"\x01"
