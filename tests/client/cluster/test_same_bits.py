"""Random programs give the same bits on two nodes as on one machine with as many devices."""

from __future__ import annotations

import random

import numpy as np

import tensord as td

from ...each_case import each_case

NODES = ("node0/cpu:0", "node0/sim:0", "node1/cpu:0", "node1/sim:0")
ALONE = ("cpu:0", "sim:0", "cpu:1", "sim:1")
STEPS = 60


def run(session, devices, seed):
    """A program of that seed on these devices, which stand for those of two nodes; the final values."""
    choose = random.Random(seed)
    session.random.seed(seed)
    step = session.routine(lambda a: session.xp.tanh(a @ a) + a)
    tensors = [session.random.normal((4, 4), device=device) for device in devices]

    def near(x):
        """Another tensor, on the device of the first."""
        return choose.choice(tensors).to_device(x.device)

    for n in range(STEPS):
        x = choose.choice(tensors)
        what = choose.randrange(8)
        if what == 0:
            made = x + near(x)
        elif what == 1:
            made = session.xp.concat([x, near(x)])[1:5]
        elif what == 2:
            made = step(x)
        elif what == 3:
            made = x.to_device(choose.choice(devices))
        elif what == 4:
            x[choose.randrange(4)] = 0.5
            made = x.T
        elif what == 5:
            made = session.random.uniform((4, 4), device=choose.choice(devices))
        elif what == 6:
            session.publish(f"name{n}", x)
            made = session.lookup(f"name{n}", snapshot=True)
            session.unpublish(f"name{n}")
        else:
            made = session.call("multiply", [x, 0.5])[0]
        tensors[choose.randrange(len(tensors))] = made
    return session.fetch(tensors)


@each_case("seed", range(8))
def test_the_bits_are_those_of_one_machine(seed, cluster):
    with td.connect("local", devices=list(ALONE)) as alone:
        wanted = run(alone, ALONE, seed)
    for got, expected in zip(run(cluster, NODES, seed), wanted, strict=True):
        np.testing.assert_array_equal(got, expected)
    assert cluster.sync() == 0
