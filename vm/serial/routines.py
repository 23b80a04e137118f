"""Runs in the serial engine: unfolded, and executed op by op."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...interpreter.errors import CancelledError, TensordError
from ...interpreter.schema.opdef import find
from ...interpreter.types.meta import SCALAR_TYPES
from ...interpreter.wire.messages import Run
from ..model.linked import Linked
from ..routines.programs import check_run, drop_program, routine_of
from ..routines.unfolding import Ids, unfold
from .effects import Effects
from .values import SerialSession, Signature, Value, define, refuse_cancelled, tensor_of

if TYPE_CHECKING:
    from .engine import SerialEngine


class Routines:
    """The handler of RUN messages, and the release of routines."""

    def __init__(self, engine: SerialEngine, effects: Effects) -> None:
        self.engine = engine
        self.effects = effects

    def release(self, session: SerialSession, id_: int) -> None:
        """Release a program or a routine, if there is one with that id."""
        if not drop_program(session, id_):
            routine = session.routines.pop(id_, None)
            if isinstance(routine, Linked):
                for template in routine.templates:
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

        def sign(linked: Linked, position: int) -> int:
            return self.sign(session, linked, position)

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
        metas: list[Any] = []
        written: list[int] = []
        home = None
        if isinstance(routine, Linked):
            program = routine.program
            metas = [program.metas[value] for value in program.results]
            home = routine.devices[program.homes[program.results[0]]] if metas else None
            if len(message.inputs) == len(program.parameters):
                written = [(*message.inputs, *routine.captured)[value] for value in program.written]
        engine.reject(session, error, message.outputs, message.location, "run", tuple(metas), home)
        for id_ in written:
            tensor = session.tensors.get(id_)
            if tensor is not None and (tensor.holders == 1 or not isinstance(error, CancelledError)):
                tensor.value = Value(None, (error, *tensor.meta_errors))
        for chain, _, request in message.effects:
            self.effects.refuse(session, error, chain, request, message.location)

    def sign(self, session: SerialSession, routine: Linked, position: int) -> int:
        """Make the signature of an op of a routine; its number."""
        program = routine.program
        step, metas = program.steps[position], program.metas
        session.signed = number = session.signed + 1
        operands = tuple([SCALAR_TYPES[program.numbers[~o].kind] if o < 0 else metas[o] for o in step.operands])
        targets = None if step.into is None else tuple([metas[value] for value in step.into])
        device = routine.devices[step.device]
        try:
            self.engine.tables.check_kernel(step.op, device)
            session.signatures[number] = Signature(find(step.op), step.attributes, operands, device, targets)
        except TensordError as error:
            session.signatures[number] = error.reraisable()
        return number
