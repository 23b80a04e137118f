"""The layout of a graph in layers."""

from __future__ import annotations

import random
from itertools import pairwise

from tensord.vm.tracing.analysis.graphs.layered_layout import node_positions, spread
from tensord.vm.tracing.analysis.graphs.pictures import picture_of
from tensord.vm.tracing.analysis.trace import Trace

from .....each_case import each_case
from ..trace_programs import record
from .test_pictures import fan


class TestPositions:
    @each_case(
        ("wanted", "found"),
        [
            ([], []),
            ([3, 7], [3, 7]),
            ([1, 1], [0.5, 1.5]),
            ([5, 5, 5], [4, 5, 6]),
            ([0, 0, 9], [-0.5, 0.5, 9]),
            ([4, 2, 3], [2, 3, 4]),
        ],
    )
    def test_nodes_are_apart_and_near_to_where_they_are_wanted(self, wanted, found):
        assert spread(wanted) == found

    @each_case("seed", range(10))
    def test_random_ones_are_spread(self, seed):
        rng = random.Random(seed)
        found = spread([rng.uniform(0, 20) for _ in range(30)])
        assert all(after - before > 1 - 1e-9 for before, after in pairwise(found))

    def test_what_joins_many_lies_in_their_middle(self):
        at = node_positions(picture_of(fan(16).graph()))
        assert at[99] == (1, 7.5)

    def test_what_has_no_neighbour_lies_beside_the_others(self):
        alone = record(50, (50, "mut"), ticks=(1, 2), status="DONE")
        at = node_positions(picture_of(Trace([*fan(16).records, alone]).graph()))
        assert sorted(position for layer, position in at.values() if layer == 0) == list(range(17))
