"""Runs of routines on the serial engine, which unfolds them and executes them op by op."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, repeat

from ...interpreter.concurrency.interrupts import SHIELD
from ...interpreter.errors import CancelledError, TensordError
from ...interpreter.schema.opdef import find
from ...interpreter.types.meta import Meta, Scalar
from ...interpreter.wire.messages import Message
from ...interpreter.wire.program_messages import Run
from ..model.linked import SessionProgram
from ..model.unfolding import Answer
from ..routines.op_by_op.run import RunIds, StepResults
from ..routines.op_by_op.unfolding import Unfolder, metas_of
from ..routines.programs import check_in_group, check_run, drop, routine_of, written_by
from .effects import SerialEffects
from .state import SerialState
from .values import Errors, SerialSession, SerialSignature, define, denial, refuse_cancelled, tensor_of


class SerialRoutines:
    """The handler of RUN messages, and the release of routines."""

    def __init__(
        self, state: SerialState, effects: SerialEffects, receive: Callable[[SerialSession, Iterable[Message]], None]
    ) -> None:
        self.state = state
        self.effects = effects
        self.receive = receive
        self.in_group = False  # whether a group is being executed

    def release(self, session: SerialSession, id_: int) -> None:
        """Release the program or routine with this id, if any."""
        routine = drop(session, id_)
        for template in routine.all_templates() if routine is not None else ():
            session.signatures.pop(template.signature, None)

    def run(self, session: SerialSession, message: Run) -> None:
        """Execute the ops of a routine, one by one."""
        try:
            refuse_cancelled(session)
            routine = routine_of(session, message.routine)
            metas = [tensor_of(session, id_).meta for id_ in message.inputs]
            check_run(routine, message, metas, session.newest)
            if self.in_group:
                check_in_group(routine)
        except TensordError as error:
            self.reject(session, message, error)
            return
        program, newest = routine.program, session.newest
        unfolder = Unfolder(SerialSessionRuns(self, session), message.effects, message.location, newest)
        ids = RunIds(program, (*message.inputs, *routine.captured), newest, unfolder.new)
        self.receive(session, unfolder.program(routine, ids, message.numbers))
        outputs = zip(program.returned, message.outputs, strict=True)
        rename(session, [(ids[variable], output) for variable, output in outputs])
        if program.is_data_dependent:  # the ids after those of the results are free again
            session.newest = message.outputs[-1] if message.outputs else newest + program.inner

    def reject(self, session: SerialSession, message: Run, error: TensordError) -> None:
        """Refuse a run: poison its results and the tensors that it writes, and refuse its side effects."""
        state, routine = self.state, session.routines.get(message.routine)
        error = state.rejected(session, error, message.location, "run")
        results: Sequence[tuple[Meta | None, str | None]] = []
        written: list[int] = []
        if isinstance(routine, SessionProgram):
            results, written = routine.results, written_by(routine, message)
        for id_, (meta, home) in zip(message.outputs, chain(results, repeat((None, None))), strict=False):
            state.poison(session, id_, (error,), meta, home)
        for id_ in written:
            if id_ in session.tensors:
                state.poison(session, id_, (error,), None, None)
        for number, _, request in message.effects:
            if number or request:
                self.effects.refuse(session, error, number, request, message.location)

    def sign(self, session: SerialSession, routine: SessionProgram, position: int, number: int) -> int:
        """Register the signature of a step's op as `number`, or as a new number if that is 0. Return the number."""
        step = routine.program.steps[position]
        operands, targets = metas_of(routine.program, position)
        if not number:
            session.signed = number = session.signed + 1
        device = routine.devices[step.device]
        try:
            self.state.check_kernel(step.op, device)
            session.signatures[number] = SerialSignature(find(step.op), step.attributes, operands, device, targets)
        except TensordError as error:
            session.signatures[number] = error.reraisable()
        return number


class SerialSessionRuns:
    """The engine of the runs of one session, as `op_by_op.run.RunEngine` requires it."""

    def __init__(self, routines: SerialRoutines, session: SerialSession) -> None:
        self.routines = routines
        self.session = session
        self.iterations = session.limits.iterations

    def prepare(self, routine: SessionProgram) -> Iterator[None]:
        """Do nothing: the serial engine compiles nothing."""
        del routine
        return iter(())

    def pieces(self, routine: SessionProgram) -> Sequence[range]:
        """One piece: all steps of a program."""
        return (range(len(routine.program.steps)),)

    def admit(
        self, routine: SessionProgram, piece: range, ids: RunIds, numbers: Sequence[Scalar], location: int
    ) -> bool:
        """Return False, since the serial engine runs only single ops."""
        del routine, piece, ids, numbers, location
        return False

    def sign(self, routine: SessionProgram, position: int, number: int) -> int:
        return self.routines.sign(self.session, routine, position, number)

    def ask(self, id_: int, label: str, location: int) -> Answer:
        """The answer to a request for a value: the value, or its errors."""
        answer, session = Answer(), self.session
        try:
            refuse_cancelled(session)
            value = tensor_of(session, id_).value
        except TensordError as error:
            value = denial(session, error, location, label)
        answer.errors = value.errors
        answer.set(value.array, value.first if value.array is None else None)
        return answer

    def stopped(self) -> TensordError | None:
        """The error that stops a loop before its next iteration; None if it continues.

        That is the session's cancellation, perhaps by another thread, or an exception from outside: from a signal
        handler, or thrown into this thread.
        """
        interrupt = SHIELD.breathe()
        self.routines.state.look_up()
        if interrupt is not None and self.session.cancelled is None:
            return CancelledError(f"{type(interrupt).__name__} has interrupted the loop")
        return self.session.cancelled

    def rename(self, pairs: Sequence[tuple[int, int]]) -> None:
        rename(self.session, pairs)

    def fail(
        self, error: TensordError | None, answer: Answer | None, results: StepResults, op: str, location: int
    ) -> None:
        """Poison the results of a step and the tensors that it writes."""
        state, session = self.routines.state, self.session
        if error is not None:
            errors: Errors = (state.rejected(session, error, location, op),)
        else:
            errors = () if answer is None else answer.errors
        for id_, meta, home in results.made:
            state.poison(session, id_, errors, meta, home)
        keeps_shared = session.cancelled is not None and not results.begun
        for tensor in filter(None, map(session.tensors.get, results.written)):
            if not (keeps_shared and tensor.holders > 1):
                state.poison_value(tensor, errors)


def rename(session: SerialSession, pairs: Sequence[tuple[int, int]]) -> None:
    """Change the ids of tensors, all at once. `pairs`: old id, new id."""
    for tensor, new in [(session.tensors.pop(old, None), new) for old, new in pairs]:
        if tensor is not None:
            define(session, new, tensor)
