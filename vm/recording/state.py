"""The state of a session as messages that would produce it: lines, spans, signatures, programs, routines.

Tensors are not included, since their values are read by FETCHes (`Tapped.waiting`). If the program of a routine was
released, it gets the id just below that of the routine, which was the program's id in most cases. If that id is taken,
the routine is left out, and a note says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from ...interpreter.errors import TensordError
from ...interpreter.programs.program import Program
from ...interpreter.programs.records import wire_records
from ...interpreter.wire.messages import Chain, Location, Message, Signature, Span, encode_message
from ...interpreter.wire.metas import encode_meta
from ...interpreter.wire.program_messages import Link, ProgramPart
from ..model.linked import SessionProgram
from ..model.plan import Plan
from ..model.session import PRIVATE, VmSession
from ..routines.programs import RECORDS


def state_of(session: VmSession) -> Iterator[Message | str]:
    """The messages, and a note as text for each part of the state that cannot be a message."""
    for number, line in session.source.lines.items():
        yield encode_message(Location(number, line))
    for number, path in session.source.spans.items():
        yield encode_message(Span(number, path))
    for number, plan in session.plans.items():
        if number < PRIVATE and isinstance(plan, Plan):
            yield encode_message(signature_of(number, plan))
    for chain in sorted(session.chains):
        yield encode_message(Chain(chain))
    yield from programs_of(session)


def signature_of(number: int, plan: Plan) -> Signature:
    """The message from which a plan was made."""
    metas = [encode_meta(meta) for meta in plan.metas]
    targets = [encode_meta(meta) for meta in plan.outputs] if plan.in_place else None
    return Signature(number, plan.op.name, plan.attributes, metas, plan.device.name, targets)


def programs_of(session: VmSession) -> Iterator[Message | str]:
    """Programs and routines, in the order of their ids."""
    known: dict[int, int] = {}
    for id_ in sorted({*session.programs, *session.routines}):
        program, routine = session.programs.get(id_), session.routines.get(id_)
        if isinstance(program, Program):
            known[id(program)] = id_
            yield from parts_of(id_, program)
        elif isinstance(routine, SessionProgram):
            yield from routine_of(session, id_, routine, known)
        elif not isinstance(program or routine, TensordError):
            yield f"program {id_} of session {session.id} was being sent"


def parts_of(id_: int, program: Program) -> Iterator[Message]:
    records = wire_records(program)
    while some := list(islice(records, RECORDS)):
        yield encode_message(ProgramPart(id_, some))


def routine_of(session: VmSession, id_: int, routine: SessionProgram, known: dict[int, int]) -> Iterator[Message | str]:
    program = known.get(id(routine.source))
    if program is None:
        program = id_ - 1
        taken: Any = (session.tensors, session.programs, session.routines, session.chains)
        if program < 1 or any(program in there for there in taken):
            yield f"routine {routine.name or id_} of session {session.id} is missing: its program was released"
            return
        known[id(routine.source)] = program
        yield from parts_of(program, routine.source)
    passes = sorted(routine.passes) or ("none",)
    yield encode_message(Link(id_, program, routine.devices, routine.captured, routine.location, routine.name, passes))
