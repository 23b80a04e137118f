"""Unfolding: a run as the messages of its ops, one by one, as if the client had sent them.

Unfolding defines the meaning of a run for both engines, and is the fallback for a run that cannot be admitted as
segments. Inner values get ids between the session's newest id and the run's outputs; a run with control flow, which may
need any number of ids, uses ids beyond its outputs until it ends. A value is released by the step of its last use, as
if the client had dropped its handle there. Results get their own ids at the end, since ids have to rise.

`control_flow` unfolds the steps with blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ....interpreter.errors import TensordError
from ....interpreter.programs.program import COLLECTIVES, MOVE, NON_OP_STEPS, PRINT, Program, Step
from ....interpreter.types.meta import Meta, OperandMeta, Scalar
from ....interpreter.wire.fields import is_line
from ....interpreter.wire.locations import LINE_MASK
from ....interpreter.wire.message_kinds import CALL, COLLECTIVE, EFFECT, RELEASE, TO_DEVICE
from ....interpreter.wire.messages import Message
from ....interpreter.wire.node_messages import Collective
from ...model.linked import SessionProgram, Template
from .control_flow import PAUSE, RunningConstruct
from .run import NewIds, RunEngine, RunIds

RIDERS = 64  # bits of a call for operands and outputs to release


class Unfolder:
    """One run, while it is unfolded: see `UnfoldedRun`."""

    def __init__(self, engine: RunEngine, effects: Sequence[Sequence[Any]], location: int, newest: int) -> None:
        self.engine = engine
        self.effects = effects
        self.location = location
        self.new = NewIds(newest)
        self.open: list[RunningConstruct] = []
        self.drawn = 0
        self.iterations = 0

    def stop(self, why: TensordError) -> None:
        """End the open steps when the session ends in the middle of the run."""
        for construct in reversed(self.open):
            construct.stop(why)

    def program(
        self, routine: SessionProgram, ids: RunIds, numbers: Sequence[Scalar], effects: int = 0
    ) -> Iterator[Message]:
        """Admit the pieces that run as one instruction, and yield the messages of all other steps.

        `numbers`: of the program, with any value for constants. `effects`: the index of its first side effect.
        """
        engine = self.engine
        routine.runs += 1
        for _ in engine.prepare(routine):
            yield PAUSE
        for piece in engine.pieces(routine):
            if len(piece) > 1 and engine.admit(routine, piece, ids, numbers, self.location):
                dying = routine.segments[piece.start].recipe.dying
                yield (RELEASE, tuple([ids[variable] for variable in dying]))  # also without ids: a turn may end here
            else:
                yield from self.steps(routine, piece, ids, numbers, effects)

    def steps(
        self, routine: SessionProgram, steps: range, ids: RunIds, numbers: Sequence[Scalar], effects: int
    ) -> Iterator[Message]:
        program, templates, span = routine.program, routine.templates, self.location & ~LINE_MASK
        if program.constants:
            numbers = [program.constants.get(slot, value) for slot, value in enumerate(numbers)]
        for position in steps:
            step, template = program.steps[position], templates[position]
            if template is None or position in routine.refused:
                template = templates[position] = template_of(routine, position, self.engine)
            signature, operands, outputs, released, behind, line = template
            where = line | span
            given = tuple([ids[operand] if operand >= 0 else numbers[~operand] for operand in operands])
            if signature:
                yield (CALL, signature, given, tuple([ids[variable] for variable in outputs]), released, where)
            elif step.op == MOVE:
                yield (TO_DEVICE, given[0], ids[outputs[0]], routine.devices[step.device], where)
            elif step.op in COLLECTIVES:
                read, made = (tuple([ids[variable] for variable in each]) for each in (operands, outputs))
                yield (COLLECTIVE, *Collective(step.op, read, made, (), step.attributes, where))
            elif step.blocks:
                first = effects + program.effects[position]
                construct = RunningConstruct(self, routine, position, given, first, where)
                yield from construct.unfold(ids, outputs)
            else:
                effect = self.effects[effects + program.effects[position]]
                made = tuple([ids[variable] for variable in outputs])
                yield self.effect(routine, step, given, made, effect, where)
            if behind:
                yield (RELEASE, tuple([ids[variable] for variable in behind]))

    def effect(
        self,
        routine: SessionProgram,
        step: Step,
        given: Sequence[Any],
        made: Sequence[int],
        effect: Sequence[Any],
        where: int,
    ) -> Message:
        """The message of a side effect or a host call.

        A side effect in a block may occur any number of times. If the client runs the callback, the request stays open
        meanwhile, and is answered at the end (`RunningConstruct.end_effects`).
        """
        chain, callback, request = effect
        again = bool(self.open)
        if again and callback is not None:
            request = 0
        metas = tuple([meta.plain for meta in step.results if meta is not None])
        device = routine.devices[step.device] if made else ""
        return (EFFECT, given, chain, callback, request, where, step.op == PRINT, again, made, metas, device)


def metas_of(program: Program, position: int) -> tuple[tuple[OperandMeta | None, ...], tuple[Meta | None, ...] | None]:
    """The metas of an op's operands, and of the tensors that it writes in place, in the form of a signature."""
    step, metas = program.steps[position], program.metas
    operands = tuple([program.number_types[~o] if o < 0 else metas[o] for o in step.operands])
    return operands, None if step.into is None else tuple([metas[value] for value in step.into])


def template_of(routine: SessionProgram, position: int, engine: RunEngine) -> Template:
    """The template of a step's message, and the signature of its op."""
    program = routine.program
    step, variables = program.steps[position], program.variables
    operands = tuple([operand if operand < 0 else variables[operand] for operand in step.operands])
    made = range(step.first, step.first + len(step.results))
    outputs = tuple([variables[value] for value in made])
    is_op = step.op not in NON_OP_STEPS
    arguments = (*operands, *outputs) if is_op else ()
    released, behind = 0, []
    for variable in program.last_uses[position]:
        index = arguments.index(variable) if is_op else RIDERS
        if index < RIDERS:
            released |= 1 << index
        else:
            behind.append(variable)
    line = step.location if is_line(step.location) else 0  # a client may send anything
    old = routine.templates[position]
    number = engine.sign(routine, position, 0 if old is None else old.signature) if is_op else 0
    return Template(number, operands, outputs, released, tuple(behind), line)
