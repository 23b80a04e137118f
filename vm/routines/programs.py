"""Programs and routines of a session: made from its messages, kept by their ids, checked before a run.

For both engines. Whatever is wrong with a program or a link is kept under its id, as an error that each run gets.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Protocol

from ...interpreter.errors import MetadataError, ProtocolError, QuotaError, TensordError
from ...interpreter.programs.builder import Builder
from ...interpreter.programs.program import Program
from ...interpreter.programs.records import add_record
from ...interpreter.schema.infer import InferCache
from ...interpreter.schema.promotion import describe
from ...interpreter.types.meta import Meta
from ...interpreter.wire.limits import Limits
from ...interpreter.wire.messages import Link, ProgramPart, Run
from ..model.linked import Linked

RECORDS = 64  # in one message: some hundred microseconds, during which no other session is served


class Holder(Protocol):
    """What a session of either engine has for programs."""

    limits: Limits
    newest: int
    programs: dict[int, Builder | Program | TensordError]
    routines: dict[int, Linked | TensordError]
    steps: int


def add_part(session: Holder, message: ProgramPart, infer: InferCache | None) -> None:
    """Add records to a program, which the first of them defines."""
    id_, records = message
    if id_ not in session.programs:
        check_new_id(session, id_, session.programs, "programs")
        session.programs[id_] = Builder(infer)
    builder = session.programs[id_]
    if isinstance(builder, TensordError):
        return
    try:
        if isinstance(builder, Program):
            raise ProtocolError(f"program {id_} is complete: it takes no more records")
        if len(records) > RECORDS:
            raise ProtocolError(f"{len(records)} records in one message; {RECORDS} are allowed")
        session.programs[id_] = add_records(session, builder, records)
    except TensordError as error:
        session.steps -= len(builder.steps)
        session.programs[id_] = error.reraisable()


def add_records(session: Holder, builder: Builder, records: Sequence[Any]) -> Builder | Program:
    """The builder with these records added, or the program that they end."""
    program = None
    for record in records:
        if program is not None:
            raise ProtocolError("records behind the one that says what the program returns")
        before = len(builder.steps)
        program = add_record(builder, record)
        session.steps += len(builder.steps) - before
        if session.steps > session.limits.steps:
            raise QuotaError(
                f"the session's programs have more than {session.limits.steps} steps; release some, or raise the quota "
                "(steps)"
            )
    return builder if program is None else program


def link(session: Holder, message: Link, devices: Collection[str]) -> None:
    """Link a program to devices, which have these names."""
    check_new_id(session, message.id, session.routines, "routines")
    try:
        session.routines[message.id] = linked(session, message, devices)
    except TensordError as error:
        session.routines[message.id] = error.reraisable()


def linked(session: Holder, message: Link, devices: Collection[str]) -> Linked:
    """The linked program; or the error, if it cannot be linked."""
    program = session.programs.get(message.program)
    if isinstance(program, TensordError):
        raise program.reraisable()
    if not isinstance(program, Program):
        state = "was never defined" if program is None else "is not complete"
        raise ProtocolError(f"program {message.program} {state}")
    given, wanted = (len(message.devices), len(message.captured)), (program.devices, len(program.captured))
    if given != wanted:
        raise ProtocolError(f"{given} devices and captured tensors, but the program has {wanted}")
    for name in message.devices:
        if name not in devices:
            raise MetadataError(f"there is no device {name!r}; there are {', '.join(devices)}")
    return Linked(program, tuple(message.devices), tuple(message.captured), message.location)


def check_new_id(session: Holder, id_: int, there: Collection[int], what: str) -> None:
    """ProtocolError unless the id is new; QuotaError if the session has as many of these as it may."""
    if id_ <= session.newest:
        raise ProtocolError(f"id {id_} is not new: ids rise, the last one was {session.newest}")
    quota = session.limits.programs
    if len(there) >= quota:
        raise QuotaError(
            f"1 more: the session has {quota} {what} of {quota}; release some, or raise the quota (programs)"
        )
    session.newest = id_


def routine_of(session: Holder, id_: int) -> Linked:
    """The routine behind an id, or the error of its program or link."""
    routine = session.routines.get(id_)
    if isinstance(routine, TensordError):
        raise routine.reraisable()
    if routine is None:
        state = "was released, or is none" if 0 < id_ <= session.newest else "was never linked"
        raise ProtocolError(f"routine {id_} {state}")
    return routine


def check_run(routine: Linked, message: Run, metas: Sequence[Meta | None], newest: int) -> None:
    """ProtocolError unless a run has what its program takes. `metas`: of the inputs, None for one not known yet."""
    program = routine.program
    given = (len(message.inputs), len(message.numbers), len(message.outputs), len(message.effects))
    wanted = (len(program.parameters), len(program.numbers), len(program.results), program.effects)
    if given != wanted:
        raise ProtocolError(f"{given} inputs, numbers, outputs and effects, but its program has {wanted}")
    for meta, source in zip(metas, program.parameters, strict=True):
        if meta is not source.meta and meta is not None:
            raise ProtocolError(f"an input is {meta}, but its program's {source.meta}")
    if tuple(map(type, message.numbers)) != program.number_types:
        given_types = ", ".join(type(value).__name__ for value in message.numbers)
        raise ProtocolError(f"the numbers are {given_types}, but the program's {describe(program.number_types)}")
    newest += program.inner
    for id_ in message.outputs:
        if id_ <= newest:
            raise ProtocolError(f"the output {id_} is not new, or leaves no room for the run's inner values")
        newest = id_


def drop_program(session: Holder, id_: int) -> bool:
    """Release a program; False if there is none with that id. Routines that are linked to it go on."""
    program = session.programs.pop(id_, None)
    if isinstance(program, Program | Builder):
        session.steps -= len(program.steps)
    return program is not None
