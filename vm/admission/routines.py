"""Admission of programs, links and runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from typing import Any

from ...interpreter.errors import CancelledError, ProtocolError, QuotaError, TensordError
from ...interpreter.programs.builder import STEPS
from ...interpreter.programs.program import Program
from ...interpreter.schema.infer import InferCache
from ...interpreter.schema.opdef import find
from ...interpreter.types.meta import Meta, Scalar
from ...interpreter.wire.messages import Convention, Link, ProgramPart, Run
from ..model.device_state import DeviceState
from ..model.linked import SessionProgram
from ..model.plan import Plan
from ..model.session import VmSession
from ..model.unfolding import Answer, Unfolding
from ..placement.residency import Residency
from ..routines.compiling.segments import LONGEST
from ..routines.op_by_op.run import Ids, Results
from ..routines.op_by_op.unfolding import Unfolder, metas_of
from ..routines.programs import add_part, check_in_group, check_run, drop, link, routine_of, steps_of_runs, written_by
from ..routines.publishing import keep_convention
from ..scheduler.scheduler import Scheduler
from .accesses import Accesses
from .effects import Effects
from .lookup import enter, forget_plan, refuse_cancelled, tensor_of
from .quotas import check_operands
from .rejection import kept
from .segments import UNBOUNDED, Segments

PATIENCE = 1  # runs of a routine that are op by op, before it is compiled


class Routines:
    """The handlers of PROGRAM, LINK and RUN messages."""

    def __init__(
        self,
        scheduler: Scheduler,
        residency: Residency,
        infer: InferCache,
        accesses: Accesses,
        effects: Effects,
    ) -> None:
        self.scheduler = scheduler
        self.infer = infer
        self.accesses = accesses
        self.effects = effects
        self.rejection = effects.rejection
        self.segments = Segments(scheduler, residency)
        self.patience = PATIENCE
        self.in_group = False  # is a group being admitted, which is done without a pause?

    def program(self, session: VmSession, message: ProgramPart) -> None:
        """Add to a program."""
        add_part(session, message, self.infer)

    def link(self, session: VmSession, message: Link) -> None:
        """Link a program."""
        link(session, message, self.scheduler.devices)

    def convention(self, session: VmSession, message: Convention) -> None:
        """Note how a routine is called."""
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
        """A group is being admitted from now on, without a pause: little is compiled, and the rest runs op by op."""
        self.in_group = True
        self.segments.left = LONGEST

    def end_group(self) -> None:
        """The group has been admitted."""
        self.in_group = False
        self.segments.left = UNBOUNDED

    def check_group(self, session: VmSession, messages: Sequence[Any]) -> None:
        """QuotaError if the runs of a group have more steps together than one program may have: a group is admitted
        without a pause."""
        steps = steps_of_runs(session, messages)
        if steps > STEPS:
            raise QuotaError(f"runs of {steps} steps in one group; {STEPS} are allowed: make smaller groups")

    # -- runs ------------------------------------------------------------------------------------------------------

    def run(self, session: VmSession, message: Run) -> None:
        """Run a routine: its ops are admitted one by one, before the session's next message."""
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
        if better is not routine and are_apart(session, better.program, outside):
            routine = better
        unfolder = Unfolder(SessionRuns(self, session), message.effects, message.location, newest)
        ids = Ids(routine.program, outside, newest, unfolder.new)
        messages, trace = unfolder.program(routine, ids, message.numbers), self.trace(session, routine, message)
        finish = partial(self.finish, session, routine, ids, message, trace)
        session.unfolding = Unfolding(messages, finish, unfolder.stop, routine.program.asks, trace)

    def trace(self, session: VmSession, routine: SessionProgram, message: Run) -> tuple[int, ...]:
        """What a trace says of a run while it is admitted op by op."""
        scheduler = self.scheduler
        if not scheduler.ring.enabled:
            return ()
        known = scheduler.ring.routines.note(session.id, routine)
        known.tick = known.tick or scheduler.tick + 1
        return known.number, scheduler.ids + 1, 0, message.location

    def run_whole(self, session: VmSession, routine: SessionProgram, outside: Sequence[int], message: Run) -> bool:
        """Admit the run as one instruction, if its program is a single segment and may run now."""
        if routine.refused or len(routine.program.steps) > LONGEST:
            return False
        if routine.pieces is None and not self.segments.may_prepare(routine):
            return False
        pieces, program = self.segments.pieces(session, routine), routine.program
        if len(pieces) != 1 or len(pieces[0]) == 1:
            return False
        ids = Ids(program, outside, session.newest, results=message.outputs)
        return self.segments.admit(session, routine, pieces[0], ids, message.numbers, message.location)

    def finish(
        self, session: VmSession, routine: SessionProgram, ids: Ids, message: Run, trace: tuple[int, ...] = ()
    ) -> None:
        """Give the results their own ids."""
        self.scheduler.note_run(session, trace)
        program = routine.program
        pairs = zip(program.returned, message.outputs, strict=True)
        self.rename(session, [(ids[variable], output) for variable, output in pairs])
        if program.asks:  # ids beyond those of the results are new again
            session.newest = message.outputs[-1] if message.outputs else ids.newest + program.inner

    def rename(self, session: VmSession, pairs: Sequence[tuple[int, int]]) -> None:
        """Give tensors other ids, all at once: (old, new)."""
        for tensor, new in [(session.tensors.pop(old, None), new) for old, new in pairs]:
            if tensor is not None:  # else the session had no room for one more id, and has heard of it
                enter(session, new, tensor)

    def reject(self, session: VmSession, message: Run, error: TensordError) -> None:
        """Refuse a run: its results, and what it would have written, get the error, and so do its side effects."""
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
        """Make the signature of an op of a routine, under that number if it is not 0; its number."""
        step = routine.program.steps[position]
        operands, targets = metas_of(routine.program, position)
        if not number:
            session.signed = number = session.signed + 1
        device = self.scheduler.devices[routine.devices[step.device]]
        try:
            check_operands(session, len(operands))
            plan = Plan(find(step.op), step.attributes, operands, device, targets, self.infer, session.id)
        except Exception as error:  # as where a client sends a signature: nothing that it asks for may stop others
            damage = ProtocolError(f"{step.op} cannot be run: {type(error).__name__}: {error}")
            session.plans[number] = kept(error if isinstance(error, TensordError) else damage, step.op)
            routine.refused.add(position)
            return number
        routine.refused.discard(position)
        session.plans[number] = plan
        session.operands += plan.count
        if plan.immediate or plan.views:
            session.immediate[number] = plan
        return number


def are_apart(session: VmSession, program: Program, outside: Sequence[int]) -> bool:
    """May a run on these tensors be that of a program after its passes? They see to it for parameters and captured
    tensors as the program has them, none of which is written under one name and known by another."""
    tensors = [session.tensors.get(id_) for id_ in outside]
    for tensor, source in zip(tensors, chain(program.parameters, program.captured), strict=True):
        if tensor is None or tensor.meta is not source.meta:
            return False
    return all(sum(tensor is tensors[value] for tensor in tensors) == 1 for value in program.written)


class SessionRuns:
    """What the runs of one session ask of the engine: `unfolding.Engine`."""

    def __init__(self, routines: Routines, session: VmSession) -> None:
        self.routines = routines
        self.session = session
        self.iterations = session.limits.iterations

    def prepare(self, routine: SessionProgram) -> Iterator[None]:
        """Cut a program that has run often enough to be compiled, and find its fusions."""
        segments = self.routines.segments
        prepares = self.compiles(routine) and segments.may_prepare(routine)
        for _ in segments.prepare(self.session, routine) if prepares else ():
            self.rest()
            yield

    def rest(self) -> None:
        """Others have their turn before the run goes on."""
        if self.session.unfolding is not None:
            self.session.unfolding.rests = True

    def pieces(self, routine: SessionProgram) -> Sequence[range]:
        """The pieces of a program that has run often enough to be compiled; else all of it."""
        if self.compiles(routine) and routine.pieces is not None:
            return self.routines.segments.pieces(self.session, routine)
        return (range(len(routine.program.steps)),)

    def compiles(self, routine: SessionProgram) -> bool:
        """May its steps run as segments?"""
        if routine.compiled is None:  # a block of control flow
            self.routines.segments.adopt(self.session, routine, self.routines.patience)
        return routine.runs > self.routines.patience and not routine.refused and self.session.cancelled is None

    def admit(self, routine: SessionProgram, piece: range, ids: Ids, numbers: Sequence[Scalar], location: int) -> bool:
        """Admit a segment, if it can run as one."""
        segments = self.routines.segments
        if not self.compiles(routine):
            return False
        known = piece.start in routine.segments
        admitted = segments.admit(self.session, routine, piece, ids, numbers, location)
        if not known and piece.start in routine.segments:  # it was compiled
            self.rest()
        segment = routine.segments.get(piece.start)
        if segment is not None and not admitted:
            segment.note_op_by_op()
        return admitted

    def sign(self, routine: SessionProgram, position: int, number: int) -> int:
        """Make the signature of an op."""
        return self.routines.sign(self.session, routine, position, number)

    def ask(self, id_: int, label: str, location: int) -> Answer:
        """Read a value; the run goes on once it is there."""
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
            session.unfolding.asked = answer
        return answer

    def stopped(self) -> TensordError | None:
        """The cancellation of the session, if it was cancelled."""
        return self.session.cancelled

    def rename(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Give tensors other ids."""
        self.routines.rename(self.session, pairs)

    def fail(self, error: TensordError | None, answer: Answer | None, results: Results, op: str, location: int) -> None:
        """Poison what a step was to make and to write."""
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
        # A cancelled run spares what others hold, if no loop has begun to write it. A value that was cancelled before
        # does not, like any op's operand.
        spares = session.cancelled is not None and not results.begun
        poison = rejection.poison_existing if spares else rejection.poison_value
        for tensor in filter(None, map(session.tensors.get, results.written)):
            poison(session, tensor, error)
