"""Admission of programs, links and runs of routines.

A run is admitted as one instruction if its program is a single compiled segment; otherwise its steps and segments are
admitted one after the other (`Unfolding`), before the session's next message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any

from ...interpreter.errors import CancelledError, ProtocolError, QuotaError, TensordError
from ...interpreter.programs.builder import MAX_STEPS
from ...interpreter.programs.program import Program
from ...interpreter.schema.infer import InferCache
from ...interpreter.schema.opdef import find
from ...interpreter.types.meta import Meta, Scalar
from ...interpreter.wire.program_messages import Convention, Link, ProgramPart, Run
from ..model.device_state import DeviceState
from ..model.linked import SessionProgram
from ..model.plan import Plan
from ..model.session import VmSession
from ..model.unfolding import Answer, Unfolding
from ..placement.residency import Residency
from ..routines.compiling.segments import MAX_SEGMENT_STEPS
from ..routines.op_by_op.run import RunIds, StepResults
from ..routines.op_by_op.unfolding import Unfolder, metas_of
from ..routines.programs import add_part, check_in_group, check_run, drop, link, routine_of, steps_of_runs, written_by
from ..routines.publishing import keep_convention
from ..scheduler.scheduler import Scheduler
from .accesses import Accesses
from .effects import EffectHandlers
from .lookup import enter, forget_plan, refuse_cancelled, tensor_of
from .quotas import check_operands
from .rejection import stored_error
from .segments import UNBOUNDED, Segments

RUNS_BEFORE_COMPILING = 1  # runs of a routine op by op before it is compiled


class RoutineHandlers:
    """The handlers of PROGRAM, LINK and RUN messages."""

    def __init__(
        self,
        scheduler: Scheduler,
        residency: Residency,
        infer: InferCache,
        accesses: Accesses,
        effects: EffectHandlers,
    ) -> None:
        self.scheduler = scheduler
        self.infer = infer
        self.accesses = accesses
        self.effects = effects
        self.rejection = effects.rejection
        self.segments = Segments(scheduler, residency)
        self.patience = RUNS_BEFORE_COMPILING
        self.in_group = False  # a group is admitted without a pause

    def program(self, session: VmSession, message: ProgramPart) -> None:
        """Add to a program."""
        add_part(session, message, self.infer)

    def link(self, session: VmSession, message: Link) -> None:
        """Link a program."""
        link(session, message, self.scheduler.devices)

    def convention(self, session: VmSession, message: Convention) -> None:
        """Store the calling convention of a routine."""
        try:
            keep_convention(session, message)
        except TensordError as error:
            self.rejection.deny(session, error, 0, 0, "convention")

    def release(self, session: VmSession, id_: int) -> None:
        """Release a program or a routine, if there is one with that id."""
        routine = drop(session, id_)
        if routine is not None:
            self.scheduler.ring.routines.released(routine)
        for template in routine.all_templates() if routine is not None else ():
            if template.signature:
                forget_plan(session, template.signature)

    def begin_group(self) -> None:
        """Begin the admission of a group, which has no pause: only a few steps are compiled, the rest runs op by op."""
        self.in_group = True
        self.segments.steps_left = MAX_SEGMENT_STEPS

    def end_group(self) -> None:
        """End the admission of a group."""
        self.in_group = False
        self.segments.steps_left = UNBOUNDED

    def check_group(self, session: VmSession, messages: Sequence[Any]) -> None:
        """QuotaError if the runs of a group together have more steps than one program may have.

        The limit is that of a program because a group is admitted without a pause.
        """
        steps = steps_of_runs(session, messages)
        if steps > MAX_STEPS:
            raise QuotaError(f"runs of {steps} steps in one group; {MAX_STEPS} are allowed: make smaller groups")

    # -- runs ------------------------------------------------------------------------------------------------------

    def run(self, session: VmSession, message: Run) -> None:
        """Admit a run as one instruction, or begin its unfolding."""
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
        newest, outside = session.newest, (*message.inputs, *routine.captured)
        if routine.compiled is None:
            self.segments.adopt(session, routine, self.patience)
        better = routine.improved or routine
        if better.runs >= self.patience and self.run_whole(session, better, outside, message):
            return
        if better is not routine and passes_apply(session, better.program, outside):
            routine = better
        unfolder = Unfolder(SessionRuns(self, session), message.effects, message.location, newest)
        ids = RunIds(routine.program, outside, newest, unfolder.new)
        messages, trace = unfolder.program(routine, ids, message.numbers), self.trace(session, routine, message)
        finish = partial(self.finish, session, routine, ids, message, trace)
        session.unfolding = Unfolding(messages, finish, unfolder.stop, routine.program.is_data_dependent, trace)

    def trace(self, session: VmSession, routine: SessionProgram, message: Run) -> tuple[int, ...]:
        """The entry of a trace for a run that is admitted op by op."""
        scheduler = self.scheduler
        if not scheduler.ring.enabled:
            return ()
        known = scheduler.ring.routines.note(session.id, routine)
        known.tick = known.tick or scheduler.tick + 1
        return known.number, scheduler.ids + 1, 0, message.location

    def run_whole(self, session: VmSession, routine: SessionProgram, outside: Sequence[int], message: Run) -> bool:
        """Admit the run as one instruction, if its program is a single segment and may run now."""
        if routine.refused or len(routine.program.steps) > MAX_SEGMENT_STEPS:
            return False
        if routine.pieces is None and not self.segments.may_prepare(routine):
            return False
        pieces, program = self.segments.pieces(session, routine), routine.program
        if len(pieces) != 1 or len(pieces[0]) == 1:
            return False
        ids = RunIds(program, outside, session.newest, results=message.outputs)
        return self.segments.admit(session, routine, pieces[0], ids, message.numbers, message.location)

    def finish(
        self, session: VmSession, routine: SessionProgram, ids: RunIds, message: Run, trace: tuple[int, ...] = ()
    ) -> None:
        """Give the results the ids that the message names, after the last step."""
        self.scheduler.note_run(session, trace)
        program = routine.program
        pairs = zip(program.returned, message.outputs, strict=True)
        self.rename(session, [(ids[variable], output) for variable, output in pairs])
        if program.is_data_dependent:  # ids beyond those of the results are new again
            session.newest = message.outputs[-1] if message.outputs else ids.newest + program.inner

    def rename(self, session: VmSession, pairs: Sequence[tuple[int, int]]) -> None:
        """Give tensors other ids, all at once: (old, new)."""
        for tensor, new in [(session.tensors.pop(old, None), new) for old, new in pairs]:
            if tensor is not None:  # otherwise the step was refused for want of an id, and reported
                enter(session, new, tensor)

    def reject(self, session: VmSession, message: Run, error: TensordError) -> None:
        """Refuse a run: poison its results and the tensors that it would have written, and refuse its side effects."""
        rejection, routine = self.rejection, session.routines.get(message.routine)
        error = rejection.rejected(session, error, message.location, "run")
        results: list[tuple[Meta | None, DeviceState | None]] = []
        written: list[int] = []
        if isinstance(routine, SessionProgram):
            results = [(meta, self.scheduler.devices[home]) for meta, home in routine.results]
            written = written_by(routine, message)
        for id_, (meta, home) in zip(message.outputs, chain(results, repeat((None, None))), strict=False):
            rejection.poison(session, id_, error, meta, home)
        for tensor in filter(None, map(session.tensors.get, written)):
            rejection.poison_existing(session, tensor, error)
        if not isinstance(error, CancelledError):
            self.scheduler.tell(session, error)
        for number, _, request in message.effects:
            if number or request:
                self.effects.refuse_effect(session, error, number, request, message.location)

    def sign(self, session: VmSession, routine: SessionProgram, position: int, number: int) -> int:
        """Make the signature of a routine's op, and return its number. `number`: the number to reuse; 0 for none."""
        step = routine.program.steps[position]
        operands, targets = metas_of(routine.program, position)
        if not number:
            session.signed = number = session.signed + 1
        device = self.scheduler.devices[routine.devices[step.device]]
        try:
            check_operands(session, len(operands))
            plan = Plan(find(step.op), step.attributes, operands, device, targets, self.infer, session.id)
        except Exception as error:  # as for a client's signature: no program may stop other sessions
            damage = ProtocolError(f"{step.op} cannot be run: {type(error).__name__}: {error}")
            session.plans[number] = stored_error(error if isinstance(error, TensordError) else damage, step.op)
            routine.refused.add(position)
            return number
        routine.refused.discard(position)
        session.plans[number] = plan
        session.operands += plan.operand_count
        if plan.immediate or plan.returns_view:
            session.immediate[number] = plan
        return number


def passes_apply(session: VmSession, program: Program, outside: Sequence[int]) -> bool:
    """Whether a run on these tensors may use the program after its passes.

    The passes assume the metas in the program, and that no tensor that is written appears twice among the parameters
    and captured tensors.
    """
    tensors = [session.tensors.get(id_) for id_ in outside]
    for tensor, source in zip(tensors, chain(program.parameters, program.captured), strict=True):
        if tensor is None or tensor.meta is not source.meta:
            return False
    return all(sum(tensor is tensors[value] for tensor in tensors) == 1 for value in program.written)


class SessionRuns:
    """The requests of one session's runs to the engine: the implementation of `op_by_op.run.RunEngine`."""

    def __init__(self, routines: RoutineHandlers, session: VmSession) -> None:
        self.routines = routines
        self.session = session
        self.iterations = session.limits.iterations

    def prepare(self, routine: SessionProgram) -> Iterator[None]:
        """Cut a program that has run often enough into pieces, and find its fusions, in slices."""
        segments = self.routines.segments
        prepares = self.compiles(routine) and segments.may_prepare(routine)
        for _ in segments.prepare(self.session, routine) if prepares else ():
            self.end_turn()
            yield

    def end_turn(self) -> None:
        """Let other sessions have a turn before the run goes on."""
        if self.session.unfolding is not None:
            self.session.unfolding.ends_turn = True

    def pieces(self, routine: SessionProgram) -> Sequence[range]:
        """The pieces of a program; one piece with all steps if the program is not to be compiled yet."""
        if self.compiles(routine) and routine.pieces is not None:
            return self.routines.segments.pieces(self.session, routine)
        return (range(len(routine.program.steps)),)

    def compiles(self, routine: SessionProgram) -> bool:
        """Whether the program's steps may run as segments."""
        if routine.compiled is None:  # a block of control flow
            self.routines.segments.adopt(self.session, routine, self.routines.patience)
        return routine.runs > self.routines.patience and not routine.refused and self.session.cancelled is None

    def admit(
        self, routine: SessionProgram, piece: range, ids: RunIds, numbers: Sequence[Scalar], location: int
    ) -> bool:
        """Admit a piece as a segment; False if it must run op by op."""
        segments = self.routines.segments
        if not self.compiles(routine):
            return False
        known = piece.start in routine.segments
        admitted = segments.admit(self.session, routine, piece, ids, numbers, location)
        if not known and piece.start in routine.segments:  # it was compiled
            self.end_turn()
        segment = routine.segments.get(piece.start)
        if segment is not None and not admitted:
            segment.note_op_by_op()
        return admitted

    def sign(self, routine: SessionProgram, position: int, number: int) -> int:
        """Make the signature of an op, and return its number (`RoutineHandlers.sign`)."""
        return self.routines.sign(self.session, routine, position, number)

    def ask(self, id_: int, label: str, location: int) -> Answer:
        """Read a value, for which the run waits."""
        session, routines = self.session, self.routines
        try:
            refuse_cancelled(session)
            tensor = tensor_of(session, id_)
            if session.moves:
                routines.segments.residency.begin_moves(session)
            answer = routines.accesses.ask(session, tensor, label, location)
        except TensordError as error:
            answer = Answer()
            answer.set(None, error)
        if session.unfolding is not None:
            session.unfolding.answer = answer
        return answer

    def stopped(self) -> TensordError | None:
        """The cancellation of the session, if it was cancelled."""
        return self.session.cancelled

    def rename(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Give tensors other ids."""
        self.routines.rename(self.session, pairs)

    def fail(
        self, error: TensordError | None, answer: Answer | None, results: StepResults, op: str, location: int
    ) -> None:
        """Poison the results and targets of a step, with `error`, or with the error of `answer`."""
        session, routines = self.session, self.routines
        rejection = routines.rejection
        if error is None and answer is not None:
            error = answer.error
        elif error is not None:
            error = rejection.rejected(session, error, location, op)
            if not isinstance(error, CancelledError):
                routines.scheduler.tell(session, error)
        if error is None:
            return
        for id_, meta, home in results.made:
            rejection.poison(session, id_, error, meta, routines.scheduler.devices[home])
        # A cancelled run spares the targets that others hold, unless a loop has begun to write them. A run that failed
        # because of a cancelled operand does not spare them, as no op does.
        spares = session.cancelled is not None and not results.begun
        poison = rejection.poison_existing if spares else rejection.poison_value
        for tensor in filter(None, map(session.tensors.get, results.written)):
            poison(session, tensor, error)
