"""Global tensors with parts on several nodes: bits of one machine, moves, errors, and lost nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.streams.links.in_memory import InMemory

from ...each_case import each_case

WAIT = 60.0
NAMES = ("node0/sim:0", "node1/sim:0", "node1/sim:1", "node0/sim:1")
ALONE = tuple(f"sim:{number}" for number in range(len(NAMES)))
SHAPE = (7, 4)
ROWS = td.split(0)
LAYOUTS: dict[str, Any] = {"split 0": td.split(0), "split 1": td.split(1), "equal": td.broadcast}
PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "elementwise": lambda _, x: (x * 2 + x) / 3,
    "in place": lambda _, x: _in_place(x),
    "matmul": lambda _, x: x @ x.T,
    "a sum": lambda s, x: s.xp.sum(x),
    "sums of rows": lambda s, x: s.xp.sum(x, axis=0) + s.xp.max(x, axis=0),
    "argmax": lambda s, x: s.xp.argmax(x),
    "an index": lambda _, x: x[2:6, ::2],
    "a mean and a variance": lambda s, x: s.xp.mean(x) + s.xp.var(x),
    "a new layout": lambda _, x: (
        x.to_global(layout=tuple([td.broadcast] * len(x.layout))).to_global(layout=x.layout) + 1
    ),
    "beside a number of one device": lambda s, x: x + s.asarray(2.0, device=x.placement.names[-1]).astype(x.dtype),
    "random": lambda s, x: x + s.random.normal(shape=SHAPE, device=x.placement, seed=3).astype(x.dtype),
    "made beside it": lambda s, x: s.xp.ones(SHAPE, device=x.placement) + x,
    "stacked": lambda s, x: s.xp.concat([x, x + 1]),
}


def _there_and_back(x: Any) -> Any:
    equal = x.to_global(layout=tuple([td.broadcast] * len(x.layout)))
    return equal.to_global(layout=x.layout)


def _in_place(x: Any) -> Any:
    x += 1
    x[1:5] = 0
    x[2] = x[0]
    return x


class Two:
    """Two machines of this process, and a session on both."""

    def __init__(self, links: tuple[InMemory, InMemory], session: td.ClusterSession) -> None:
        self.links = links
        self.session = session

    def tensor(self, names: tuple[str, ...] = NAMES[:2], layout: Any = ROWS) -> Any:
        return self.session.global_tensor(VALUES, td.placement(names), layout)

    def lose(self) -> None:
        for links, node in zip(self.links, ("node1", "node0"), strict=True):
            links.lose(node, "a test took it away")


VALUES = np.random.default_rng(5).standard_normal(SHAPE).astype(np.float32)


@pytest.fixture
def two(links: dict[str, InMemory], cluster: td.ClusterSession) -> Two:
    return Two((links["node0"], links["node1"]), cluster)


def results(session: Any, names: tuple[str, ...], layout: Any, *, rows: bool) -> dict[str, bytes]:
    """The bytes of each program's result on these devices."""
    where = td.placement([names[:2], names[2:]] if rows else names)
    atoms = (layout, td.broadcast) if rows else layout
    found = {}
    for name, program in PROGRAMS.items():
        made = program(session, session.global_tensor(VALUES, where, atoms))
        found[name] = made.numpy().tobytes()
    return found


class TestValues:
    @each_case("layout", list(LAYOUTS))
    def test_have_the_bits_of_one_machine(self, two: Two, layout: str) -> None:
        for names, rows in ((2, False), (3, False), (4, True)):
            with td.connect("local", devices=["cpu:0", *ALONE]) as alone:
                expected = results(alone, ALONE[:names], LAYOUTS[layout], rows=rows)
            assert results(two.session, NAMES[:names], LAYOUTS[layout], rows=rows) == expected
        two.session.sync(WAIT)

    def test_lie_on_both_nodes(self, two: Two) -> None:
        x = two.tensor()
        assert [part.device for part in x.parts()] == list(NAMES[:2])
        assert [part.shape for part in x.parts()] == [(4, 4), (3, 4)]
        assert x.wait(WAIT).is_ready()
        assert x.error is None
        assert {device[:5] for device in x.residency()} == {"node0", "node1"}

    def test_move_to_other_nodes_and_back(self, two: Two) -> None:
        x = two.tensor()
        alone = x.to_device("node1/cpu:0")
        assert (alone.device, (alone.numpy() == VALUES).all()) == ("node1/cpu:0", True)
        there = x.to_global(td.placement(["node1/sim:0", "node1/sim:1"]), td.split(1))
        assert (there.to_global(x.placement, td.split(0)).numpy() == VALUES).all()
        assert (two.session.global_tensor(alone, x.placement).numpy() == VALUES).all()

    def test_are_fetched_with_others_at_once(self, two: Two) -> None:
        x, y = two.tensor(), two.session.asarray([1.0], device="node1/sim:0")
        found = two.session.fetch([y, x, x + 1])
        assert [array.shape for array in found] == [(1,), SHAPE, SHAPE]
        assert (found[2] == VALUES + 1).all()

    def test_are_awaited_in_an_event_loop(self, two: Two) -> None:
        x = two.tensor()

        async def both() -> Any:
            return await asyncio.gather(x.numpy_async(), (x + 1).numpy_async())

        assert (asyncio.run(both())[1] == VALUES + 1).all()

    def test_of_parts_on_both_nodes_are_one_tensor(self, two: Two) -> None:
        parts = [two.session.asarray(VALUES[n : n + 2], device=name) for n, name in ((0, NAMES[0]), (2, NAMES[1]))]
        x = two.session.global_tensor(parts=parts, placement=td.placement(NAMES[:2]), layout=td.split(0))
        assert (x.numpy() == VALUES[:4]).all()

    def test_of_a_session_with_a_placement_over_nodes_are_global(self, two: Two) -> None:
        session = two.session
        session.placement = td.placement(NAMES[:2])
        x = session.asarray(VALUES)
        assert x.device == session.placement
        assert (session.xp.zeros(SHAPE) + x).device == session.placement


class TestErrors:
    def test_of_a_part_name_its_device(self, two: Two) -> None:
        x, bad = two.tensor(), two.tensor(layout=td.broadcast)
        bad = bad[two.session.asarray(99, device=NAMES[0])]
        with pytest.raises(td.KernelError, match=r"the part on node./sim:0"):
            (x + bad).numpy()

    def test_what_is_about_one_node_refuses(self, two: Two) -> None:
        x = two.tensor()
        with pytest.raises(td.MetadataError, match=r"parts on node0, node1.*to_device"):
            two.session.publish("w", x)
        with pytest.raises(td.MetadataError, match="atomic block"), two.session.atomic():
            x += 1
        with pytest.raises(td.MetadataError, match="node1"):
            two.session.routine(lambda y: y + 1)(x)
        with pytest.raises(td.MetadataError, match="two placements"):
            x + two.tensor(NAMES[::3])

    def test_a_lost_node_fails_what_needs_it_and_equal_parts_are_read_elsewhere(self, two: Two) -> None:
        split, equal = two.tensor(), two.tensor(layout=td.broadcast)
        equal.wait(WAIT)
        split.wait(WAIT)
        two.lose()
        with pytest.raises(td.NodeLost, match="a test took it away"):
            split.to_global(layout=td.broadcast).wait(WAIT)
        assert ((equal + 1).numpy() == VALUES + 1).all()
