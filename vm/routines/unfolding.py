"""Unfolding: a run as the messages of its ops, one by one, as a client would have sent them.

It says what a run means, for both engines; and it is what a run falls back to that cannot be admitted as planned. Inner
values get the ids between the newest one of the session and the run's outputs. A value dies with the step that uses it
last, as if the client had dropped its handle there. Results get their own ids at the end, since ids have to rise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ...interpreter.programs.program import EFFECT, MOVE, PRINT, Program
from ...interpreter.types.meta import Meta, OperandMeta, Scalar
from ...interpreter.wire.fields import is_line
from ...interpreter.wire.locations import LINE
from ...interpreter.wire.messages import CALL, RELEASE, TO_DEVICE
from ...interpreter.wire.messages import EFFECT as SIDE_EFFECT
from ..model.linked import Linked, Template

RIDERS = 64  # operands that a call has bits for

# Makes the signature of an op, that step of the program, under this number, or a new one if it is 0; returns its
# number. Where it is refused, the step is among `refused`, and is asked for again by the next run.
Sign = Callable[[Linked, int, int], int]


def unfold(
    routine: Linked,
    steps: range,
    ids: Ids,
    numbers: Sequence[Scalar],
    effects: Iterator[Sequence[Any]],
    location: int,
    sign: Sign,
) -> Iterator[tuple[Any, ...]]:
    """The messages of these steps of a run. `ids`: of each variable, by the number of its first value."""
    program, templates, span = routine.program, routine.templates, location & ~LINE
    if program.constants:
        numbers = [program.constants.get(slot, value) for slot, value in enumerate(numbers)]
    for position in steps:
        step, template = program.steps[position], templates[position]
        if template is None or position in routine.refused:
            template = templates[position] = template_of(routine, position, sign)
        signature, operands, outputs, released, behind, line = template
        where = line | span
        given = tuple([ids[operand] if operand >= 0 else numbers[~operand] for operand in operands])
        if signature:
            yield (CALL, signature, given, tuple([ids[variable] for variable in outputs]), released, where)
        elif step.op == MOVE:
            yield (TO_DEVICE, given[0], ids[outputs[0]], routine.devices[step.device], where)
        else:
            chain, callback, request = next(effects)
            yield (SIDE_EFFECT, given, chain, callback, request, where, step.op == PRINT)
        if behind:
            yield (RELEASE, tuple([ids[variable] for variable in behind]))


def metas_of(program: Program, position: int) -> tuple[tuple[OperandMeta | None, ...], tuple[Meta | None, ...] | None]:
    """The metas of an op's operands, and of what it writes in place, as a signature has them."""
    step, metas = program.steps[position], program.metas
    operands = tuple([program.number_types[~o] if o < 0 else metas[o] for o in step.operands])
    return operands, None if step.into is None else tuple([metas[value] for value in step.into])


class Ids:
    """The id of each variable of a run, by the number of its first value: of what comes from outside, then new ones."""

    __slots__ = ("_newest", "_outside", "_ranks", "_results")

    def __init__(self, program: Program, outside: Sequence[int], newest: int) -> None:
        self._outside = outside
        self._newest = newest
        self._ranks = program.ranks
        self._results: dict[int, int] = {}

    def name(self, results: Iterable[tuple[int, int]]) -> None:
        """Give these variables these ids, those of the run's results."""
        self._results = dict(results)

    def __getitem__(self, variable: int) -> int:
        if self._results and variable in self._results:
            return self._results[variable]
        rank = self._ranks[variable]
        return self._outside[variable] if rank == 0 else self._newest + rank


def template_of(routine: Linked, position: int, sign: Sign) -> Template:
    """A step as a message to be."""
    program = routine.program
    step, variables = program.steps[position], program.variables
    operands = tuple([operand if operand < 0 else variables[operand] for operand in step.operands])
    made = range(step.first, step.first + len(step.results))
    outputs = tuple([variables[value] for value in made])
    is_op = step.op not in (MOVE, PRINT, EFFECT)
    places = (*operands, *outputs) if is_op else ()
    released, behind = 0, []
    for variable in program.last_uses[position]:
        place = places.index(variable) if is_op else RIDERS
        if place < RIDERS:
            released |= 1 << place
        else:
            behind.append(variable)
    line = step.location if is_line(step.location) else 0  # whatever a client says there
    old = routine.templates[position]
    number = sign(routine, position, 0 if old is None else old.signature) if is_op else 0
    return Template(number, operands, outputs, released, tuple(behind), line)
