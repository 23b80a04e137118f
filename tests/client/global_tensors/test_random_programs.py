"""Random programs on global tensors in changing layouts give the values of one device, and the trace is sound.

`TENSORD_PROGRAMS=100` runs so many of each.
"""

from __future__ import annotations

import os
import random

import numpy as np
import pytest

from tensord.interpreter.layouts.layout import BROADCAST, Partial, Split

from ...each_case import each_case
from .every import GRIDS

STEPS = 14
PROGRAMS = int(os.environ.get("TENSORD_PROGRAMS", "0"))
DEVICES = ["cpu:0", "sim:0", "sim:1", "sim:2", "sim:3"]


class Program:
    """A program on pairs of a global tensor and the same on one device: small whole numbers, whose sums are exact."""

    def __init__(self, session, seed):
        self.random = random.Random(seed)
        self.session, self.xp = session, session.xp
        self.where = self.random.choice(GRIDS)
        values = np.random.default_rng(seed).integers(-3, 4, size=(3, 5, 7)).astype(float)
        self.pairs = [
            (session.global_tensor(value, self.where, self.layout()), session.asarray(value)) for value in values
        ]

    def layout(self):
        atoms = [Split(0), Split(1), BROADCAST, Partial("sum")]
        return tuple(self.random.choice(atoms) for _ in self.where.grid)

    def step(self):
        name = self.random.choice(["binary", "reduce", "product", "view", "in place", "write", "move", "where", "copy"])
        (x, plain_x), (y, plain_y) = self.random.sample(self.pairs, 2)
        return {
            "binary": lambda x, y: x * 2 - y,
            "reduce": lambda x, _: self.xp.sum(x, axis=0, keepdims=True) + x,
            "product": lambda x, y: (x @ y.T % 5) @ y % 7,
            "view": lambda x, _: self.xp.flip(x[:, ::-1], axis=1),
            "in place": lambda x, y: x.__iadd__(y),
            "write": self.written,
            "move": lambda x, _: x.to_global(self.where, self.layout()) if x is not plain_x else x.copy(),
            "where": lambda x, y: self.xp.where(x > y, x, y),
            "copy": lambda x, _: x.copy(),
        }[name], x, y, plain_x, plain_y  # fmt: skip

    def written(self, x, y):
        x[1:3, 2:] = y[1:3, 2:]
        return x

    def run(self):
        for _ in range(STEPS):
            function, x, y, plain_x, plain_y = self.step()
            pair = function(x, y), function(plain_x, plain_y)
            if pair[0] is not x:
                self.pairs[self.random.randrange(3)] = pair


@pytest.fixture
def session(make_session):
    return make_session(devices=DEVICES)


@each_case("seed", range(PROGRAMS or 8))
def test_a_random_program_gives_the_same(session, seed):
    program = Program(session, seed)
    program.run()
    for x, plain in program.pairs:
        np.testing.assert_array_equal(x.numpy(), plain.numpy())
        np.testing.assert_array_equal(x.to_global(layout=program.layout()).numpy(), plain.numpy())


@each_case("seed", range(PROGRAMS or 1))
def test_a_random_program_gives_the_same_as_a_routine(session, seed):
    def run(pairs):
        program.pairs = list(pairs)
        program.random.seed(seed)
        program.run()
        return program.pairs

    program = Program(session, seed)
    for x, plain in session.routine(run, constants=["program"])([*program.pairs]):
        np.testing.assert_array_equal(x.numpy(), plain.numpy())
    session.sync()
    assert session.trace().verify() == []
