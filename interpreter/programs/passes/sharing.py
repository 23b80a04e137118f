"""Two steps that make the same, made one: the second one's results are the first one's from then on.

That needs variables that nobody overwrites, since a value can be read until its variable is written. A run returns
different tensors: of two steps whose results it returns, both stay, but for a move, in whose place comes a copy of what
the first has moved. A copy is a step by itself, for which a segment would be cut; computing twice is cheaper mostly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from ..facts import made_by, origin, overwritten
from ..program import MOVE, Program, Step

_Key: TypeAlias = tuple[Any, ...]


def shared(program: Program, given: Iterable[Step], same: dict[int, int], may_be: Callable[[Step], bool]) -> list[Step]:
    """The steps of those given, where those that `may_be` shared are. `same` learns which values stand for others."""
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
    """What two steps have in common that make the same: frozen attributes are equal if they mean the same.

    No two writes have it in common: each names the value that it overwrites.
    """
    operands = tuple([origin(operand, same) for operand in step.operands])
    return (step.op, operands, step.attributes, step.device, step.into)
