"""The simulation of many nodes agrees with the known costs of rings and trees."""

from __future__ import annotations

import pytest

from bench.scaling import Costs, control, ring, tree

EVEN = Costs(jitter=0.0)


def test_without_jitter_a_ring_takes_its_steps():
    step = EVEN.latency + (64 << 20) / 4 / EVEN.bandwidth
    assert ring(4, 64 << 20, EVEN) == pytest.approx(6 * step)


def test_slow_steps_make_everything_later_and_a_seed_repeats_them():
    assert ring(64, 1 << 20, Costs()) > ring(64, 1 << 20, EVEN)
    assert tree(64, 1 << 20, Costs(), seed=3) == tree(64, 1 << 20, Costs(), seed=3)


def test_rings_are_better_for_many_bytes_and_trees_for_many_nodes():
    assert ring(8, 64 << 20, EVEN) < tree(8, 64 << 20, EVEN)
    assert ring(1024, 1 << 20, EVEN) > tree(1024, 1 << 20, EVEN)


def test_what_each_node_has_grows_with_the_nodes():
    assert control(64, EVEN)["connections of a daemon"] == 126
    assert control(64, EVEN)["questions between supervisors"] == 64 * 63
