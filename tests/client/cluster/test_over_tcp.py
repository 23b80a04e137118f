"""Random programs on two nodes that are linked over TCP, whose connections may be cut."""

from __future__ import annotations

from ...each_case import each_case
from .over_tcp import check


@each_case("seed", range(3))
def test_the_bits_are_those_of_one_machine(seed):
    check(seed, cuts=False, tls=seed == 2)


def test_each_value_has_these_bits_or_has_failed_with_node_lost_however_connections_are_cut():
    assert sum(check(seed, cuts=True, tls=seed == 2) for seed in range(3)) > 0
