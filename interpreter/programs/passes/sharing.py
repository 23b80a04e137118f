"""Merges two steps that make the same results: the second one's results are replaced by the first one's.

That requires variables that nobody overwrites, since a value can be read until its variable is written. A run returns
different tensors: if it returns the results of both steps, both stay, except a move, which becomes a copy of the first
one's result. A copy is a single step, for which a segment would be cut; computing twice is usually cheaper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ..facts import made_by, origin, overwritten
from ..program import MOVE, Program, Step

_Key: TypeAlias = tuple[Any, ...]


def shared(program: Program, given: Iterable[Step], same: dict[int, int], may_be: Callable[[Step], bool]) -> list[Step]:
    """The given steps, with those merged that `may_be` accepts. `same` gets the replaced values."""
    written, results = overwritten(program), frozenset(program.results)
    returned = set(results)
    firsts: dict[_Key, Step] = {}
    steps: list[Step] = []
    for step in given:
        first = step if not written.isdisjoint(made_by(step)) else firsts.setdefault(key_of(step, same), step)
        pairs = list(zip(made_by(step), made_by(first), step.results, strict=True))
        both = any(mine in results and its in returned for mine, its, _ in pairs)
        if first is step or not may_be(step) or (both and step.op != MOVE):
            steps.append(step)
            continue
        for mine, its, meta in pairs:
            same[mine] = its
            if both:
                steps.append(Step(MOVE, (its,), (), program.homes[its], None, mine, (meta,), step.location))
            elif mine in results:
                returned.add(its)
    return steps


def key_of(step: Step, same: dict[int, int]) -> _Key:
    """A key that is equal for two steps that make the same: frozen attributes are equal if they mean the same.

    No two writes have the same key: each names the value that it overwrites.
    """
    operands = tuple([origin(operand, same) for operand in step.operands])
    return (step.op, operands, step.attributes, step.device, step.into)
