"""Runs in the serial engine: unfolded, and executed op by op."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, repeat
from typing import TYPE_CHECKING

from ...interpreter.errors import TensordError
from ...interpreter.schema.opdef import find
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import Run
from ..model.linked import Linked
from ..routines.programs import check_run, drop, routine_of, written_by
from ..routines.unfolding import Ids, metas_of, unfold
from .effects import Effects
from .values import SerialSession, Signature, define, refuse_cancelled, tensor_of

if TYPE_CHECKING:
    from .engine import SerialEngine


class Routines:
    """The handler of RUN messages, and the release of routines."""

    def __init__(self, engine: SerialEngine, effects: Effects) -> None:
        self.engine = engine
        self.effects = effects

    def release(self, session: SerialSession, id_: int) -> None:
        """Release a program or a routine, if there is one with that id."""
        routine = drop(session, id_)
        for template in routine.templates if routine is not None else ():
            if template is not None:
                session.signatures.pop(template.signature, None)

    def run(self, session: SerialSession, message: Run) -> None:
        """Execute the ops of a routine, one by one."""
        try:
            refuse_cancelled(session)
            routine = routine_of(session, message.routine)
            metas = [tensor_of(session, id_).meta for id_ in message.inputs]
            check_run(routine, message, metas, session.newest)
        except TensordError as error:
            self.reject(session, message, error)
            return
        program = routine.program
        ids = Ids(program, (*message.inputs, *routine.captured), session.newest)

        def sign(linked: Linked, position: int, number: int) -> int:
            return self.sign(session, linked, position, number)

        whole = range(len(program.steps))
        steps = unfold(routine, whole, ids, message.numbers, iter(message.effects), message.location, sign)
        self.engine.receive(session, steps)
        for value, output in zip(program.results, message.outputs, strict=True):
            tensor = session.tensors.pop(ids[program.variables[value]], None)
            if tensor is not None:
                define(session, output, tensor)

    def reject(self, session: SerialSession, message: Run, error: TensordError) -> None:
        """Refuse a run: its results, what it would have written and its side effects get the error."""
        engine, routine = self.engine, session.routines.get(message.routine)
        error = engine.rejected(session, error, message.location, "run")
        results: Sequence[tuple[Meta | None, str | None]] = []
        written: list[int] = []
        if isinstance(routine, Linked):
            results, written = routine.results, written_by(routine, message)
        for id_, (meta, home) in zip(message.outputs, chain(results, repeat((None, None))), strict=False):
            engine.poison(session, id_, error, meta, home)
        for id_ in written:
            if id_ in session.tensors:
                engine.poison(session, id_, error, None, None)
        for number, _, request in message.effects:
            self.effects.refuse(session, error, number, request, message.location)

    def sign(self, session: SerialSession, routine: Linked, position: int, number: int) -> int:
        """Make the signature of an op of a routine, under that number if it is not 0; its number."""
        step = routine.program.steps[position]
        operands, targets = metas_of(routine.program, position)
        if not number:
            session.signed = number = session.signed + 1
        device = routine.devices[step.device]
        try:
            self.engine.tables.check_kernel(step.op, device)
            session.signatures[number] = Signature(find(step.op), step.attributes, operands, device, targets)
        except TensordError as error:
            session.signatures[number] = error.reraisable()
        return number
