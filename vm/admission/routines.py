"""Admission of programs, links and runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from typing import Any

from ...interpreter.errors import CancelledError, ProtocolError, QuotaError, TensordError
from ...interpreter.programs.builder import STEPS
from ...interpreter.schema.infer import InferCache
from ...interpreter.schema.opdef import find
from ...interpreter.types.meta import Meta
from ...interpreter.wire.messages import RELEASE, Convention, Link, ProgramPart, Run
from ..model.device_state import DeviceState
from ..model.linked import Linked
from ..model.plan import Plan
from ..model.published import Published
from ..model.session import VmSession
from ..model.tensor import Tensor
from ..model.unfolding import Unfolding
from ..placement.residency import Residency
from ..routines.programs import add_part, check_run, drop, link, routine_of, steps_of_runs, written_by
from ..routines.publishing import keep_convention, publish_routine
from ..routines.unfolding import Ids, metas_of, unfold
from ..scheduler.scheduler import Scheduler
from .accesses import Accesses
from .lookup import enter, forget_plan, refuse_cancelled, tensor_of
from .quotas import check_operands
from .rejection import Rejection, kept
from .segments import Segments

PATIENCE = 1  # runs of a routine that are op by op, before it is compiled


class Routines:
    """The handlers of PROGRAM, LINK and RUN messages."""

    def __init__(
        self,
        scheduler: Scheduler,
        residency: Residency,
        infer: InferCache,
        accesses: Accesses,
        rejection: Rejection,
    ) -> None:
        self.scheduler = scheduler
        self.infer = infer
        self.accesses = accesses
        self.rejection = rejection
        self.segments = Segments(scheduler, residency)
        self.patience = PATIENCE

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

    def published(self, session: VmSession, id_: int) -> Published[Tensor]:
        """What a name of that tensor or routine stands for."""
        if id_ not in session.routines:
            return Published((tensor_of(session, id_),))
        routine = publish_routine(session, id_, lambda captured: tensor_of(session, captured).meta)
        return Published([tensor_of(session, captured) for captured in routine_of(session, id_).captured], routine)

    def release(self, session: VmSession, id_: int) -> None:
        """Release a program or a routine, if there is one with that id."""
        routine = drop(session, id_)
        for template in routine.templates if routine is not None else ():
            if template is not None and template.signature:
                forget_plan(session, template.signature)

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
        except TensordError as error:
            self.reject(session, message, error)
            return
        ids = Ids(routine.program, (*message.inputs, *routine.captured), session.newest)
        if routine.runs >= self.patience and self.run_whole(session, routine, ids, message):
            return
        messages = self.unfold(session, routine, ids, message)
        session.unfolding = Unfolding(messages, lambda: self.finish(session, routine, ids, message))

    def run_whole(self, session: VmSession, routine: Linked, ids: Ids, message: Run) -> bool:
        """Admit the run as one instruction, if its program is a single segment and may run now."""
        if routine.refused:
            return False
        pieces, program = self.segments.pieces(session, routine), routine.program
        if len(pieces) != 1 or len(pieces[0]) == 1:
            return False
        ids.name(zip([program.variables[value] for value in program.results], message.outputs, strict=True))
        if self.segments.admit(session, routine, pieces[0], ids, message.numbers, message.location):
            return True
        ids.name(())
        return False

    def unfold(self, session: VmSession, routine: Linked, ids: Ids, message: Run) -> Iterator[tuple[Any, ...]]:
        """Admit the segments of a run; the messages of what runs op by op."""

        def sign(linked: Linked, position: int, number: int) -> int:
            return self.sign(session, linked, position, number)

        effects, numbers, location = iter(message.effects), message.numbers, message.location
        routine.runs += 1
        whole = range(len(routine.program.steps))
        compiled = routine.runs > self.patience and not routine.refused
        for piece in self.segments.pieces(session, routine) if compiled else (whole,):
            segment = compiled and len(piece) > 1 and session.cancelled is None
            if segment and self.segments.admit(session, routine, piece, ids, numbers, location):
                dying = routine.segments[piece.start].recipe.dying
                yield (RELEASE, tuple([ids[variable] for variable in dying]))  # none, perhaps: a turn may end here
            else:
                yield from unfold(routine, piece, ids, numbers, effects, location, sign)

    def finish(self, session: VmSession, routine: Linked, ids: Ids, message: Run) -> None:
        """Give the results their own ids."""
        program = routine.program
        for value, output in zip(program.results, message.outputs, strict=True):
            tensor = session.tensors.pop(ids[program.variables[value]], None)
            if tensor is not None:  # else the session had no room for one more id, and has heard of it
                enter(session, output, tensor)

    def reject(self, session: VmSession, message: Run, error: TensordError) -> None:
        """Refuse a run: its results, and what it would have written, get the error, and so do its side effects."""
        rejection, routine = self.rejection, session.routines.get(message.routine)
        error = rejection.rejected(session, error, message.location, "run")
        results: list[tuple[Meta | None, DeviceState | None]] = []
        written: list[int] = []
        if isinstance(routine, Linked):
            results = [(meta, self.scheduler.devices[home]) for meta, home in routine.results]
            written = written_by(routine, message)
        for id_, (meta, home) in zip(message.outputs, chain(results, repeat((None, None))), strict=False):
            rejection.poison(session, id_, error, meta, home)
        for tensor in filter(None, map(session.tensors.get, written)):
            rejection.poison_existing(session, tensor, error)
        if not isinstance(error, CancelledError):
            self.scheduler.tell(session, error)
        for number, _, request in message.effects:
            self.accesses.refuse_effect(session, error, number, request, message.location)

    def sign(self, session: VmSession, routine: Linked, position: int, number: int) -> int:
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
