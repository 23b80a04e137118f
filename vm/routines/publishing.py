"""Routines under names, for both engines: publishing a routine, and describing a published one to another session.

The other session builds a routine of its own from the description, with the same messages as for any routine. So the
routine counts in that session's quotas, and ends with that session. The tensors that the routine captures are shared:
they get ids in the other session, like published tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

from ...interpreter.errors import MetadataError, ProtocolError
from ...interpreter.programs.convention import decode, weight_of
from ...interpreter.programs.program import CHARACTERS_PER_STEP, Program
from ...interpreter.programs.records import wire_records
from ...interpreter.types.meta import Meta
from ...interpreter.wire.fields import is_line
from ...interpreter.wire.program_messages import Convention
from ..model.directory import Published, PublishedRoutine
from ..model.linked import SessionProgram
from ..model.texts import SourceTexts
from .programs import RECORDS, ProgramSession, check_steps, routine_of


class WithMeta(Protocol):
    """A tensor of either engine."""

    @property
    def meta(self) -> Meta | None:
        """The tensor's meta; None if it is not known yet."""


Kind = TypeVar("Kind", bound=WithMeta)
ROUTINE = "routine"  # the first item of an answer about a routine


class Publisher(ProgramSession, Protocol):
    """A session of either engine, for publishing routines."""

    source: SourceTexts


def keep_convention(session: ProgramSession, message: Convention) -> None:
    """Store the calling convention of a routine. ProtocolError if it does not fit the program."""
    routine = routine_of(session, message.routine)
    decode(message.convention, routine.program)
    more = weight_of(message.convention) - routine.extra
    check_steps(session, more)
    session.steps += more
    routine.extra += more
    routine.convention = message.convention


def published(session: Publisher, id_: int, tensor_of: Callable[[Any, int], Kind]) -> Published[Kind]:
    """The value to publish for the id of a tensor or a routine. `tensor_of` returns the tensor of an id, or raises."""
    if id_ not in session.routines:
        return Published((tensor_of(session, id_),))
    routine = routine_of(session, id_)
    captured = [tensor_of(session, one) for one in routine.captured]
    return Published(captured, publish_routine(session, routine, [tensor.meta for tensor in captured]))


def publish_routine(session: Publisher, routine: SessionProgram, metas: Sequence[Meta | None]) -> PublishedRoutine:
    """The published form of a routine. `metas`: of the tensors that the routine captures.

    MetadataError if the routine calls functions of its publisher.
    """
    program = routine.program
    if program.callbacks:
        raise MetadataError(
            "the routine calls functions of its publisher (effect), which do not exist in other processes: return the "
            "values, or print them"
        )
    for meta, source in zip(metas, program.captured, strict=True):
        if meta is not None and meta is not source.meta:
            raise ProtocolError(f"the routine captures {meta}, but its program expects {source.meta}")
    lines = lines_of(session, program)
    found = PublishedRoutine(program, routine.devices, lines, routine.convention)
    found.weight += routine.extra + sum(len(text) for text in lines.values()) // CHARACTERS_PER_STEP
    return found


def lines_of(session: Publisher, program: Program) -> dict[Any, str]:
    """The texts of a program's location numbers, as far as the session knows them."""
    lines: dict[Any, str] = {}
    pending = [program]
    while pending:
        for step in pending.pop().steps:
            pending += step.blocks
            location = step.location
            if location and location not in lines and is_line(location):
                text = session.source.where(location)
                if text is not None:
                    lines[location] = text
    return lines


def snapshots(tensors: Sequence[Kind], snapshot_of: Callable[[Kind], Kind]) -> list[Kind]:
    """Snapshots of tensors, in order. A tensor that occurs several times gets one snapshot."""
    made = {tensor: snapshot_of(tensor) for tensor in dict.fromkeys(tensors)}
    return [made[tensor] for tensor in tensors]


def lookup_answer(
    publications: Sequence[Published[Any]], tensors: Sequence[Any], describe: Callable[[Any], tuple[Any, str]]
) -> Any:
    """The answer to a LOOKUP.

    For a tensor: its meta and home. For a routine: its devices, the metas and homes of the tensors that it captures
    (the next ones of `tensors`), and its convention. The records of the routines' programs follow, in slices.
    """
    heads: list[Any] = []
    rest = iter(tensors)
    for publication in publications:
        captured = [describe(next(rest)) for _ in publication.tensors]
        if publication.routine is None:
            heads += captured
        else:
            heads.append((ROUTINE, publication.routine.devices, captured, publication.routine.convention))
    routines = [one.routine for one in publications if one.routine is not None]
    return slices(heads, routines) if routines else heads


def slices(heads: list[Any], routines: Sequence[PublishedRoutine]) -> Iterator[list[Any]]:
    """The answer about routines, in slices."""
    yield heads
    for routine in routines:
        records = wire_records(routine.program, routine.lines.get)
        while some := list(islice(records, RECORDS)):
            yield some
