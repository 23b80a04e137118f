"""Three layers on four devices: the losses are those of one device, and the moves are those in the figure."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pytest

import tensord as td

ROOT = Path(__file__).parents[2]
DEVICES = ["cpu:0", "sim:0", "sim:1", "sim:2", "sim:3"]


@pytest.fixture
def example(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "examples")
    import parallel_mlp

    return parallel_mlp


def placements_of(example, names):
    return example.Placements(td.placement(names[:2]), td.placement(names[2:]))


def test_what_moves_in_a_step_follows_from_where_the_arrays_lie(example, make_session):
    session = make_session(devices=DEVICES)
    placements = placements_of(example, DEVICES[1:])
    network = example.Network(session, placements, 0)
    explanation = session.explain(network.step, *example.samples(session, placements, 0))
    moves = [(row["op"], [move["what"] for move in row["moves"]]) for row in explanation.rows if row["bytes"]]
    assert moves == [
        ("to_global", ["send", "all_gather"]),
        ("to_global", ["reduce_scatter", "send"]),
        ("subtract", ["all_reduce"]),
        ("subtract", ["all_reduce"]),
    ]


def test_the_losses_are_those_of_one_device_and_the_graph_shows_the_collectives(example, make_session, tmp_path):
    session = make_session(devices=DEVICES)
    options = argparse.Namespace(seed=3, steps=10)
    alone = example.Placements(td.placement(["sim:0"]), td.placement(["sim:0"]))
    losses, network = example.train(session, placements_of(example, DEVICES[1:]), options)
    again, _ = example.train(session, placements_of(example, DEVICES[1:]), options)
    expected, _ = example.train(session, alone, options)
    assert losses == again
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    assert losses[-1] < 0.8 * losses[0]
    example.save_graph(network, tmp_path, 3)
    drawn = (tmp_path / "parallel_mlp.dot").read_text()
    assert all(name in drawn for name in ("all_gather", "reduce_scatter", "all_reduce"))
    assert session.trace().verify() == []
