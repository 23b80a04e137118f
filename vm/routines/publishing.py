"""Routines under names: what a session publishes of one, and what another one is told of it. For both engines.

Another session makes a routine of its own of what it is told, by the same messages as any routine; so its quotas count
it, and it goes with that session. The tensors that the routine captures are shared: they get ids there, as published
tensors do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

from ...interpreter.errors import MetadataError, ProtocolError
from ...interpreter.programs.convention import decode, weight_of
from ...interpreter.programs.records import wire_records
from ...interpreter.types.meta import Meta
from ...interpreter.wire.fields import is_line
from ...interpreter.wire.messages import Convention
from ..model.published import Published, PublishedRoutine
from .programs import RECORDS, Holder, check_steps, routine_of

ROUTINE = "routine"  # what an answer about one begins with


class Publisher(Holder, Protocol):
    """What a session of either engine has for publishing routines."""

    def where(self, location: int) -> str | None:
        """The text behind a location number."""


def keep_convention(session: Holder, message: Convention) -> None:
    """Note how a routine is called. ProtocolError for what is no convention for its program."""
    routine = routine_of(session, message.routine)
    decode(message.convention, routine.program)
    more = weight_of(message.convention) - routine.extra
    check_steps(session, more)
    session.steps += more
    routine.extra += more
    routine.convention = message.convention


def publish_routine(session: Publisher, id_: int, metas: Callable[[int], Meta | None]) -> PublishedRoutine:
    """What others get of a routine. `metas`: of the session's tensors, by id; it raises for one that is none.

    MetadataError if the routine calls functions of its publisher.
    """
    routine = routine_of(session, id_)
    program = routine.program
    if program.callbacks:
        raise MetadataError(
            "the routine calls functions of its publisher (effect), which do not exist in other processes: return the "
            "values, or print them"
        )
    for tensor, source in zip(routine.captured, program.captured, strict=True):
        meta = metas(tensor)
        if meta is not None and meta is not source.meta:
            raise ProtocolError(f"the routine captures {meta} for {source.meta}")
    lines = Lines(session)
    records = tuple(wire_records(program, lines.text))
    found = PublishedRoutine(program, routine.devices, records, routine.convention)
    found.add_weight(lines.characters, routine.extra)
    return found


class Lines:
    """The texts behind a session's locations, each once. `characters`: of all of them."""

    def __init__(self, session: Publisher) -> None:
        self.characters = 0
        self._session = session
        self._texts: dict[int, str | None] = {}

    def text(self, location: Any) -> str | None:
        """The text behind a number; None if it is none, or was forgotten."""
        if not is_line(location) or not location:
            return None
        if location not in self._texts:
            self._texts[location] = found = self._session.where(location)
            self.characters += len(found or "")
        return self._texts[location]


def told(found: Sequence[Published[Any]], tensors: Sequence[Any], describe: Callable[[Any], tuple[Any, str]]) -> Any:
    """The answer to a LOOKUP: of a tensor its meta and home; of a routine its devices, metas and homes of the
    `tensors` it captures, its convention, and the number of its records. The records are behind all that, in slices.
    """
    heads: list[Any] = []
    rest = iter(tensors)
    for one in found:
        captured = [describe(next(rest)) for _ in one.tensors]
        routine = one.routine
        if routine is None:
            heads += captured
        else:
            heads.append((ROUTINE, routine.devices, captured, routine.convention, len(routine.records)))
    routines = [one.routine for one in found if one.routine is not None]
    return slices(heads, routines) if routines else heads


def slices(heads: list[Any], routines: Sequence[PublishedRoutine]) -> Iterator[list[Any]]:
    """What is told of routines, piece by piece."""
    yield heads
    for routine in routines:
        for start in range(0, len(routine.records), RECORDS):
            yield list(routine.records[start : start + RECORDS])
