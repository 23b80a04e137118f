"""Merges two steps that make the same results: the second one's results are replaced by the first one's.

Both results must be of variables that no step overwrites, since a value can be read only until its variable is written.
A run returns different tensors: if it returns the results of both steps, both stay, except a move, which becomes a copy
of the first one's result. A copy is a single step, for which a segment would be cut; computing twice is usually
cheaper.
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
        both = any(value in results and shared_value in returned for value, shared_value, _ in pairs)
        if first is step or not may_be(step) or (both and step.op != MOVE):
            steps.append(step)
            continue
        for value, shared_value, meta in pairs:
            same[value] = shared_value
            if both:
                home = program.homes[shared_value]
                steps.append(Step(MOVE, (shared_value,), (), home, None, value, (meta,), step.location))
            elif value in results:
                returned.add(shared_value)
    return steps


def key_of(step: Step, same: dict[int, int]) -> _Key:
    """A key that is equal for two steps that make the same: frozen attributes are equal if they mean the same.

    No two writes have the same key: each names the value that it overwrites.
    """
    operands = tuple([origin(operand, same) for operand in step.operands])
    return (step.op, operands, step.attributes, step.device, step.into)
