"""Routines under names: the form in which one is published, and the routine made from a look-up.

A routine is published with its calling convention, without functions of this process; the tensors that it captures are
shared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...interpreter.errors import MetadataError, MetadataTypeError, ProtocolError, TensordError
from ...interpreter.programs.convention import CallingConvention, decode, encode
from ...interpreter.programs.program import EFFECT, Program, effects_of
from ...interpreter.programs.records import RecordsReader
from ..calls.checks import own
from ..core.core import Core
from ..core.scopes import hand_over
from ..linking.linked import Bindings, ProgramBinding
from ..linking.linked_routine import LinkedRoutine, portable
from ..linking.linking import LinkedProgram
from ..locations.locations import located
from ..routines.routine import BoundRoutine, Routine
from .names import Publishable


def publishable_routine(core: Core, value: Any) -> Publishable:
    """The publishable form of a routine; raises at the user's line if it cannot be published."""
    if isinstance(value, Routine | BoundRoutine):
        value = only_capture(core, value)
    if not isinstance(value, LinkedRoutine | LinkedProgram):
        kinds = "expected a tensor (asarray) or a routine (routine.link(*arguments), session.link(program))"
        raise located(MetadataTypeError(f"publish: {kinds}, got {type(value).__name__}"))
    if value._core.core is not core:
        raise located(MetadataError("publish: the routine belongs to another session"))
    linked = value._core.linked
    for step, _ in effects_of(linked.program):
        if step.op == EFFECT:
            at = f" at {step.location}" if step.location else ""
            message = f"publish: the routine calls a function of this process (session.effect{at}), which others lack"
            raise located(MetadataError(f"{message}: return the values, or print them (session.print)"))
    for tensor in linked.captured:
        own(core, tensor)
    convention = None if value._core.convention is None else wire_convention(value._core.convention, linked)
    return Publishable(linked._id, linked.captured, convention)


def wire_convention(convention: CallingConvention, linked: ProgramBinding) -> Any:
    """A routine's convention in wire form."""
    try:
        wire = encode(portable(convention, linked.captured))
        decode(wire, linked.program)
    except TensordError as error:
        raise located(type(error)(f"publish: {convention.name}: {error.message}")) from None
    return wire


def only_capture(core: Core, routine: Routine[..., Any] | BoundRoutine[..., Any]) -> LinkedRoutine:
    """The only capture of a routine; ProtocolError if there are several, or none."""
    instance = routine.__self__ if isinstance(routine, BoundRoutine) else None
    whole = routine._routine if isinstance(routine, BoundRoutine) else routine  # noqa: SLF001 - as a whole
    entries = whole._entries.of(core)  # noqa: SLF001 - what it has captured
    if instance is not None:
        entries = [entry for entry in entries if any(known() is instance for known in entry.objects)]
    if len(entries) != 1:
        name = getattr(whole, "__name__", "the routine")
        times = f"was captured for {len(entries)} kinds of arguments" if entries else "was not called yet"
        message = f"publish: {name} {times}: publish {name}.link(*arguments), which is for arguments of one kind"
        raise located(ProtocolError(message))
    linked = LinkedRoutine(entries[0].linked, entries[0].convention)
    return linked if instance is None else linked.bound()


# -- looked up ---------------------------------------------------------------------------------------------------------


def routine_from_answer(
    core: Core, name: str, bindings: Bindings, convention: Any, records: Iterator[Any]
) -> LinkedRoutine | LinkedProgram:
    """A routine of this session, made from the machine's answer, with its published name. The tensors that it captures
    are shared. Takes exactly the records of its program."""
    for tensor in bindings.captured:
        hand_over(tensor, None)  # they are released with the routine, not with the surrounding context
    try:
        program = program_of(records)
        how = None if convention is None else decode(convention, program)
    except TensordError as error:
        raise located(error) from None
    linked = ProgramBinding(core, program, bindings, name)
    return LinkedProgram(linked) if how is None else LinkedRoutine(linked, how)


def program_of(records: Iterator[Any]) -> Program:
    """The program that the next records describe."""
    reader = RecordsReader()
    for record in records:
        program = reader.add(record)
        if program is not None:
            return program
    raise ProtocolError("the records of the routine's program are not complete")
