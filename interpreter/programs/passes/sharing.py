"""Two steps that make the same, made one: the second one's results are the first one's from then on.

That needs variables that nobody overwrites, since a value can be read until its variable is written. A run returns
different tensors: where it returns both results, the second one is a copy of the first, which costs nothing until one
of the two is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ..program import MOVE, Program, Step
from .facts import made_by, origin, overwritten

_Key: TypeAlias = tuple[Any, ...]


def shared(program: Program, given: Iterable[Step], same: dict[int, int], may_be: Callable[[Step], bool]) -> list[Step]:
    """The steps of those given, where those that `may_be` shared are. `same` learns which values stand for others."""
    written, results = overwritten(program), frozenset(program.results)
    returned = set(results)
    firsts: dict[_Key, Step] = {}
    steps: list[Step] = []
    for step in given:
        first = step if not written.isdisjoint(made_by(step)) else firsts.setdefault(key_of(step, same), step)
        if first is step or not may_be(step):
            steps.append(step)
            continue
        for mine, its, meta in zip(made_by(step), made_by(first), step.results, strict=True):
            same[mine] = its
            if mine in results and its in returned:
                steps.append(Step(MOVE, (its,), (), program.homes[its], None, mine, (meta,), step.location))
            elif mine in results:
                returned.add(its)
    return steps


def key_of(step: Step, same: dict[int, int]) -> _Key:
    """What two steps have in common that make the same: frozen attributes are equal if they mean the same.

    No two writes have it in common: each names the value that it overwrites.
    """
    operands = tuple([origin(operand, same) for operand in step.operands])
    return (step.op, operands, step.attributes, step.device, step.into)
