"""Programs and routines of a session, for both engines: built from its messages, stored by id, checked before a run.

An error in a program or a link is stored under the id, and each run gets that error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Any, Protocol

from ...interpreter.errors import MetadataError, ProtocolError, QuotaError, TensordError
from ...interpreter.programs.passes.table import chosen_names
from ...interpreter.programs.program import Program
from ...interpreter.programs.records import RecordsReader
from ...interpreter.schema.infer import InferCache
from ...interpreter.schema.promotion import describe
from ...interpreter.types.device_names import own_name
from ...interpreter.types.meta import Meta
from ...interpreter.wire.limits import Limits
from ...interpreter.wire.message_kinds import LINK, PROGRAM, RUN
from ...interpreter.wire.program_messages import Link, ProgramPart, Run
from ..model.linked import SessionProgram

RECORDS = 64  # the most in one message: they take some hundred microseconds, during which other sessions wait
REFUSED = 2  # a session may have this many times its quota of ids, refused programs and routines included


class ProgramSession(Protocol):
    """A session of either engine, as a holder of programs."""

    limits: Limits
    newest: int
    programs: dict[int, RecordsReader | Program | TensordError]
    routines: dict[int, SessionProgram | TensordError]
    steps: int


def add_part(session: ProgramSession, message: ProgramPart, infer: InferCache | None) -> None:
    """Add records to a program; the first message with an id creates the program."""
    id_, records = message
    if id_ not in session.programs:
        check_new_id(session, id_, session.programs)
        session.programs[id_] = RecordsReader(infer)
    reader = session.programs[id_]
    if isinstance(reader, TensordError):
        return
    try:
        check_count(session, session.programs, "programs")
        if isinstance(reader, Program):
            raise ProtocolError(f"program {id_} is complete: it takes no more records")
        if len(records) > RECORDS:
            raise ProtocolError(f"{len(records)} records in one message; {RECORDS} are allowed")
        session.programs[id_] = add_records(session, reader, records)
    except TensordError as error:
        session.steps -= weight_of(reader)
        session.programs[id_] = error.reraisable()


def add_records(session: ProgramSession, reader: RecordsReader, records: Sequence[Any]) -> RecordsReader | Program:
    """Add records to a reader; return the reader, or the program if these records complete it."""
    program = None
    for record in records:
        if program is not None:
            raise ProtocolError("records after the last record of a program, which lists its results")
        before = reader.weight()
        program = reader.add(record)
        session.steps += reader.weight() - before
        check_steps(session)
    return reader if program is None else program


def link(session: ProgramSession, message: Link, devices: Collection[str]) -> None:
    """Link a program to devices. `devices`: the names of all devices of the machine."""
    check_new_id(session, message.id, session.routines)
    try:
        check_count(session, session.routines, "routines", 1)
        session.routines[message.id] = linked(session, message, devices)
    except TensordError as error:
        session.routines[message.id] = error.reraisable()


def linked(session: ProgramSession, message: Link, devices: Collection[str]) -> SessionProgram:
    """The linked program. Raises the error if the program cannot be linked."""
    program = session.programs.get(message.program)
    if isinstance(program, TensordError):
        raise program.reraisable()
    if not isinstance(program, Program):
        state = "was never defined" if program is None else "is not complete"
        raise ProtocolError(f"program {message.program} {state}")
    given, wanted = (len(message.devices), len(message.captured)), (program.devices, len(program.captured))
    if given != wanted:
        raise ProtocolError(
            f"{given[0]} devices and {given[1]} captured tensors, but the program has {wanted[0]} and {wanted[1]}"
        )
    homes = tuple([own_name(name, devices) for name in message.devices])
    for name in homes:
        if name not in devices:
            raise MetadataError(f"unknown device {name!r}; devices: {', '.join(devices)}")
    passes = chosen_names(message.passes)
    check_steps(session, program.weight)
    session.steps += program.weight
    return SessionProgram(program, homes, tuple(message.captured), message.location, message.name, passes)


def check_new_id(session: ProgramSession, id_: int, known_ids: Collection[int]) -> None:
    """ProtocolError unless the id is new; QuotaError if there are too many ids, refused ones included."""
    if id_ <= session.newest:
        raise ProtocolError(f"id {id_} is not new: ids must increase, and the last one was {session.newest}")
    if len(known_ids) >= REFUSED * session.limits.programs:
        raise QuotaError(f"{len(known_ids)} programs or routines, including refused ones: release some")
    session.newest = id_


def check_count(session: ProgramSession, known_ids: Collection[int], what: str, more: int = 0) -> None:
    """QuotaError if the session has more programs or routines than its quota."""
    quota = session.limits.programs
    if len(known_ids) + more > quota:
        raise QuotaError(
            f"1 more: the session has {quota} {what} of {quota}; release some, or raise the quota (programs)"
        )


def check_steps(session: ProgramSession, more: int = 0) -> None:
    """QuotaError if the session's programs and routines have more steps than its quota."""
    quota = session.limits.steps
    if session.steps + more > quota:
        raise QuotaError(
            f"the session's programs and routines have more than {quota} steps; release some, or raise the quota "
            "(steps)"
        )


def routine_of(session: ProgramSession, id_: int) -> SessionProgram:
    """The routine behind an id, or the error of its program or link."""
    routine = session.routines.get(id_)
    if isinstance(routine, TensordError):
        raise routine.reraisable()
    if routine is None:
        state = "was released, or never was a routine" if 0 < id_ <= session.newest else "was never linked"
        raise ProtocolError(f"routine {id_} {state}")
    return routine


def check_run(routine: SessionProgram, message: Run, metas: Sequence[Meta | None], newest: int) -> None:
    """ProtocolError if a run does not fit its program. `metas`: of the inputs; None for one that is not known yet."""
    program = routine.program
    _, inputs, numbers, outputs, effects, _ = message
    given = (len(inputs), len(numbers), len(outputs), len(effects))
    if given != program.counts:
        raise ProtocolError(
            f"the run has {given} inputs, numbers, outputs and effects, but its program {program.counts}"
        )
    for meta, wanted in zip(metas, program.metas, strict=False):  # the inputs' metas come first in the program
        if meta is not wanted and meta is not None:
            raise ProtocolError(f"an input is {meta}, but the program's input is {wanted}")
    if tuple(map(type, numbers)) != program.number_types:
        given_types = ", ".join(type(value).__name__ for value in numbers)
        raise ProtocolError(f"the numbers are {given_types}, but those of the program {describe(program.number_types)}")
    newest += program.inner
    for id_ in outputs:
        if id_ <= newest:
            raise ProtocolError(f"the output {id_} is not new, or leaves no room for the run's inner values")
        newest = id_


def check_in_group(routine: SessionProgram) -> None:
    """MetadataError for a routine with control flow, which waits for values; a group cannot wait."""
    if routine.program.is_data_dependent:
        raise MetadataError("control flow waits for values, and a group cannot: run the routine outside of the group")


def drop(session: ProgramSession, id_: int) -> SessionProgram | None:
    """Release the program or routine with this id, if any; return the routine. A routine outlives its program."""
    program = session.programs.pop(id_, None)
    if isinstance(program, Program | RecordsReader):
        session.steps -= weight_of(program)
    routine = session.routines.pop(id_, None)
    if not isinstance(routine, SessionProgram):
        return None
    session.steps -= routine.program.weight + routine.extra
    return routine


def written_by(routine: SessionProgram, message: Run) -> list[int]:
    """The ids of the tensors that a run writes; none if its number of inputs is wrong."""
    program = routine.program
    if len(message.inputs) != len(program.parameters):
        return []
    outside = (*message.inputs, *routine.captured)
    return [outside[value] for value in program.written]


def steps_of_runs(session: ProgramSession, messages: Sequence[Any]) -> int:
    """The most steps that the runs in these messages may have, including runs of programs that the messages link."""
    records: Counter[int] = Counter()
    linked: dict[int, int] = {}
    steps = 0
    for kind, *fields in messages:
        if kind == PROGRAM:
            records[fields[0]] += len(fields[1])
        elif kind == LINK and fields[0] not in session.routines:
            linked[fields[0]] = records[fields[1]] + size_of(session.programs.get(fields[1]))
        elif kind == RUN:
            routine = session.routines.get(fields[0])
            steps += linked.get(fields[0], 0) + size_of(
                routine.program if isinstance(routine, SessionProgram) else None
            )
    return steps


def size_of(program: RecordsReader | Program | TensordError | None) -> int:
    """The number of steps of a program."""
    if isinstance(program, Program):
        return len(program.steps)
    return program.steps if isinstance(program, RecordsReader) else 0


def weight_of(program: RecordsReader | Program | TensordError) -> int:
    """The weight of a program in the quota of steps."""
    if isinstance(program, Program):
        return program.weight
    return program.weight() if isinstance(program, RecordsReader) else 0
