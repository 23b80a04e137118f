"""Loops over random bodies on sessions that find periods, against the serial engine: equal to the last bit.

A body is drawn from a seed and repeated with other tensors and numbers, with occasional interruptions: a question, a
print, a release, another op. Handles live on at random, so that runs have results of all sorts.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import numpy as np
import pytest

import tensord as td
from tensord.client.periods import history
from tensord.client.session.session import Session

from ..routines.test_random_functions import STEP_KINDS, Given

DEVICES = ["cpu:0", "sim:0", "sim:1"]
ROUNDS = 20
KINDS = STEP_KINDS[:-2]  # without those of numbers
CALLS = [*KINDS[:6], *KINDS[7:10]]  # those that are calls alone, and break no period


class Loop:
    """The loop of a seed in a session; `read` collects the values that it has read."""

    def __init__(self, session: Session, seed: int) -> None:
        self.session = session
        self.body = Random(seed)  # draws the same in each round
        self.between = Random(seed + 1)  # draws anew in each
        self.seed = seed
        self.read: list[Any] = []
        values = np.random.default_rng(seed)
        self.pool = [session.asarray(values.normal(size=(3, 3)), DEVICES[n % 3]) for n in range(4)]
        session.random.seed(seed)

    def run(self) -> list[Any]:
        """All rounds; the values read, and those of the tensors at the end."""
        for number in range(ROUNDS):
            self.round(number)
            if self.between.random() < 0.4:
                self.disturb()
        self.read += [self.value(each) for each in self.pool]
        return self.read

    def round(self, number: int, *, asks: bool = True) -> None:
        """Run the body once; some of its results replace the loop's tensors."""
        body, pool = Random(self.seed), list(self.pool)
        kinds = KINDS if self.seed % 3 == 0 else CALLS
        size, cut = body.randrange(9, 24), body.choice([0, 0, 7])
        for position in range(size):
            step = body.choice(kinds)
            operands = body.choice(pool), body.choice(pool), 0.25 * body.choice([1, number])
            pool.append(step(Given(self.session, body, *operands)))
            if asks and cut and position == cut:
                self.read.append(self.value(pool[-1]))
        for kept in range(body.randrange(4)):
            self.pool[kept] = pool[-1 - kept]

    def disturb(self) -> None:
        """Something between two rounds."""
        choice = self.between
        tensor = choice.choice(self.pool)
        what = choice.randrange(7)
        if what == 0:
            self.read.append(self.value(tensor))
        elif what == 1:
            self.session.sync()
        elif what == 2:
            self.pool[choice.randrange(4)] = tensor + 1.0
        elif what == 3:
            with self.session.atomic():
                self.round(1, asks=False)
        elif what == 4:
            with self.session.span(f"round {choice.randrange(3)}"):
                self.round(2)
        elif what == 5:
            self.session.effect(partial(self.note, self.session), tensor)
        else:
            self.pool[choice.randrange(4)] = tensor.copy()

    def note(self, _session: Session, array: Any) -> None:
        self.read.append(array.copy())

    def value(self, tensor: td.Tensor) -> Any:
        self.session.check_chain()  # values read by effects come first
        return tensor.numpy().copy()


def compare(make_session: Callable[..., Session], seed: int) -> int:
    """Run a loop on both; how many calls were sent in runs."""
    with td.connect("local", devices=DEVICES, engine="serial") as oracle, np.errstate(all="ignore"):
        expected = Loop(oracle, seed).run()
    session = make_session(devices=DEVICES, routines="auto")
    with np.errstate(all="ignore"):
        found = Loop(session, seed).run()
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.tobytes() == other.tobytes()
    ops: int = session.stats()["periods"]["ops"]
    return ops


def test_loops_give_what_serial_execution_gives(make_session: Callable[..., Session]) -> None:
    assert sum([compare(make_session, seed) for seed in range(6)]) > 100


@pytest.mark.parametrize("machines", ["daemon"], indirect=True)
def test_loops_on_a_daemon_do_too(make_session: Callable[..., Session]) -> None:
    assert sum([compare(make_session, seed) for seed in range(40, 42)]) > 100


def test_loops_do_with_the_shortest_of_periods(
    make_session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With two calls being worth a run, runs begin and end nearly everywhere."""
    monkeypatch.setattr(history, "MIN_RUN", 2)
    monkeypatch.setattr(history, "SHORT_ROUND", 1)
    assert sum([compare(make_session, seed) for seed in range(100, 106)]) > 100
