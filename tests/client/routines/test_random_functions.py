"""Random functions from seeds, op by op and captured: views, writes in place, captured tensors, moves, numbers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

import tensord as td
from tensord.client.session.session import Session

from .compared import equal, read

STEPS = 14
CALLS = 4
DEVICES = ["cpu:0", "sim:0", "sim:1"]


class Given(NamedTuple):
    """The variables of a step."""

    session: Session
    choice: Random
    x: Any
    y: Any
    n: Any


def random_function(session: Session, seed: int, outer: list[Any]) -> Callable[..., Any]:
    """A function of two tensors and two numbers that does the same at each call, with `outer` tensors besides."""

    def function(tensors: dict[str, Any], rate: float, count: int) -> Any:
        choice = Random(seed)
        pool = [*tensors.values(), *outer]
        numbers: list[Any] = [rate, count]
        for _ in range(STEPS):
            x, y, n = choice.choice(pool), choice.choice(pool), choice.choice(numbers)
            step = choice.choice(STEP_KINDS)
            made = step(Given(session, choice, x, y, n))
            (pool if isinstance(made, td.Tensor) else numbers).append(made)
        return {"made": pool[-3:], "number": numbers[-1], "first": (pool[0],)}

    return function


def in_place(g: Given) -> Any:
    """A write to the whole, by another tensor or a number."""
    x = g.x
    x += g.choice.choice([g.y, g.n])
    return x


def in_part(g: Given) -> Any:
    """A write to a part."""
    position = g.choice.randrange(3)
    g.x[position] = g.choice.choice([g.y[0], g.n])
    return g.x


def into(g: Given) -> Any:
    """An op with `out=`."""
    return g.session.call("maximum", [g.x, g.y], out=[g.x])[0]


def moved(g: Given) -> Any:
    """A move, or a copy."""
    return g.x.to_device(g.choice.choice(DEVICES))


def drawn(g: Given) -> Any:
    """A random tensor."""
    return g.session.random.uniform((3, 3), device=g.choice.choice(DEVICES)) + g.x * 0


def calculated(g: Given) -> Any:
    """Arithmetic among numbers."""
    n = g.n
    return g.choice.choice([lambda: n * 0.5, lambda: n - 3, lambda: -n, lambda: abs(n) + 1, lambda: (n + 1) / 4])()


def asked(g: Given) -> Any:
    """A choice by a number's value."""
    return g.x - 1 if g.n > 1 else g.session.xp.abs(g.x)


STEP_KINDS: list[Callable[[Given], Any]] = [
    lambda g: g.x + g.y,
    lambda g: g.x * g.n - g.y,
    lambda g: g.session.xp.tanh(g.x @ g.y),
    lambda g: g.x.T,
    lambda g: g.session.xp.broadcast_to(g.x[g.choice.randrange(3)], (3, 3)),
    lambda g: g.session.xp.where(g.x > g.y, g.x, g.n),
    lambda g: g.x[::-1] + g.session.asarray(np.full(3, g.choice.random())),
    in_place,
    in_part,
    into,
    moved,
    drawn,
    calculated,
    asked,
]


@pytest.mark.parametrize(
    ("machines", "seed"),
    [
        *(("here", n) for n in range(8)),
        *(("serial", n) for n in range(20, 22)),
        *(("daemon", n) for n in range(26, 28)),
    ],
    indirect=["machines"],
)
def test_a_random_function_captured_does_what_it_does_op_by_op(sim_session, seed):
    s = sim_session
    outer = [s.asarray(np.zeros((3, 3))) for _ in range(2)]
    function = random_function(s, seed, outer)
    found = []
    with np.errstate(all="ignore"):
        for called in (function, s.routine(function)):
            values = np.random.default_rng(seed)
            s.random.seed(seed)
            for each in outer:
                each[...] = s.asarray(values.normal(size=(3, 3)))
            tensors = {name: s.asarray(values.normal(size=(3, 3)), DEVICES[n]) for n, name in enumerate("ab")}
            for call in range(CALLS):
                result = called(tensors, 0.25 * call, call % 3)
                found.append([read(result), read(tensors), read(outer), result["first"][0] is tensors["a"]])
    assert equal(found[:CALLS], found[CALLS:])
