"""Errors follow RAW edges: an instruction that reads a failed value is doomed with the same error; no other one is.

A copy is poisoned when the failed instruction runs or retires, which is its place in program order. It is never
poisoned before: an earlier reader must not see the error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ...interpreter.errors import CancelledError, TensordError
from ..model.instruction import PENDING, UNDER_WAY, Instruction
from ..model.reason import MAKES_ROOM, Reason
from ..model.session import VmSession
from ..model.tensor import Copy

Errors: TypeAlias = tuple[TensordError, ...]


def inherit_poison(instruction: Instruction, copy: Copy) -> None:
    """Doom a reader at admission if the value is already known to be poisoned.

    A writer that is under way before its sources are done is left out: if a source fails, the writer's error changes.
    A cancellation stays, whatever the sources do.
    """
    if instruction.error is None:
        writer = copy.writer
        if writer is None:
            instruction.error = copy.poison
        elif not (writer.soft and writer.status in UNDER_WAY) or isinstance(writer.error, CancelledError):
            instruction.error = writer.failure_of(copy)


def doom(roots: Iterable[Instruction], error: TensordError) -> list[Instruction]:
    """Doom instructions that have not been dispatched, and all readers of their results.

    Returns the doomed instructions, in no particular order; dispatched ones are not among them.

    A dispatched instruction is left to its stream, which checks the operands again right before the kernel runs. On a
    device with late errors the kernel may have run already. So the instruction gets the error, too; it does not retire
    before its sources do. If it has failed by itself meanwhile, the bad operand was the cause: the present error
    replaces that failure, also in later instructions that were executed and found the failure in their operands.
    """
    doomed = []
    seen = set(roots)
    stack: list[tuple[Instruction, Errors]] = [(root, ()) for root in seen]
    while stack:
        instruction, overruled = stack.pop()
        yields = instruction.error is None or is_among(instruction.error, overruled)
        theirs: Errors = ()
        if instruction.status in PENDING:
            if yields:
                instruction.error = error
            doomed.append(instruction)
        elif instruction.status in UNDER_WAY and (yields or instruction.origin):
            theirs = overrule(instruction, error)
        for reader in readers_of(instruction, {copy.id for copy in instruction.writes}, theirs):
            if reader not in seen:
                seen.add(reader)
                stack.append((reader, theirs))
    return doomed


def overrule(instruction: Instruction, error: TensordError) -> Errors:
    """Fail a dispatched instruction with `error`, in place of its former errors. Returns the former errors.

    A copy that was poisoned with a former error gets `error`: other instructions may still read the copy.
    """
    former = () if instruction.error is None else (instruction.error,)
    theirs = (*former, *(instruction.failures or {}).values())
    instruction.error, instruction.origin, instruction.failures = error, False, None
    for copy in instruction.writes:
        if copy.poison is not None and is_among(copy.poison, theirs):
            copy.poison = error
    return theirs


def tell_dispatched(instruction: Instruction, copies: set[int], error: TensordError) -> None:
    """Tell tolerant readers that were dispatched: what they have read of these copies (ids) is poisoned."""
    for dependent in instruction.dependents:
        if dependent.traits.tolerant and dependent.status not in PENDING:
            for source, reason, copy, _ in dependent.edges:
                if source == instruction.id and reason is Reason.RAW and copy in copies:
                    dependent.hear_of(copy, error)


def is_among(error: TensordError, errors: Errors) -> bool:
    """Is `error` one of `errors`, by identity?"""
    return any(error is other for other in errors)


def whose(instruction: Instruction) -> VmSession | None:
    """The session whose failure an instruction's own error is: its author's.

    Who needs room has not asked for a transfer that makes some, and finds other room if that fails. So its failure is
    of a session only if it fails an instruction that reads what was evicted: the author's, if one of them is, else that
    of the first. None if it fails nothing: the value is where it was.
    """
    author = instruction.author
    if not makes_room(instruction):
        return author
    theirs = failed_by(instruction)
    return author if author in theirs else next(iter(theirs), None)


def makes_room(instruction: Instruction) -> bool:
    """Is it a transfer that nobody needs for its value?"""
    return instruction.traits.copies and instruction.label.startswith(MAKES_ROOM)


def failed_by(transfer: Instruction) -> dict[VmSession, None]:
    """The authors of what reads the copy that a failed transfer was to make, also where that is evicted further."""
    found: dict[VmSession, None] = {}
    stack = [transfer]
    while stack:
        failed = stack.pop()
        for dependent in failed.dependents:
            if not any(s == failed.id and r is Reason.RAW for s, r, _, _ in dependent.edges):
                continue
            if makes_room(dependent):
                stack.append(dependent)
            else:
                found[dependent.author] = None
    return found


def settle_late(instruction: Instruction) -> None:
    """Poison what a failed instruction wrote, except where a later writer has been dispatched already."""
    for copy in instruction.writes:
        error = instruction.failure_of(copy)
        if error is not None and copy.poison is not error and not is_overwritten(instruction, copy):
            copy.poison = error


def is_overwritten(instruction: Instruction, copy: Copy) -> bool:
    """Has a later writer of the copy been dispatched? The poison slot is that writer's then.

    The next writer is found along the readers between the two. The writers behind it are not dispatched before it.
    """
    stack = [instruction]
    seen = {instruction}  # readers may depend on each other in many ways
    while stack:
        for dependent in stack.pop().dependents:
            if copy in dependent.writes:
                if dependent.status not in PENDING:
                    return True
            elif copy in dependent.reads and dependent not in seen:
                seen.add(dependent)
                stack.append(dependent)
    return False


def readers_of(instruction: Instruction, copies: set[int], overruled: Errors = ()) -> list[Instruction]:
    """The dependents that read the instruction's value of one of `copies` (ids), and that are not doomed yet.

    Without the second condition a failed chain would be walked to its end once for each of its links. `overruled`:
    former errors of the instruction; a dependent with one of them does not count as doomed.
    """
    return [
        dependent
        for dependent in instruction.dependents
        if (dependent.error is None or dependent.origin or is_among(dependent.error, overruled))
        and dependent.reads
        and not dependent.traits.tolerant
        and any(s == instruction.id and r is Reason.RAW and c in copies for s, r, c, _ in dependent.edges)
    ]
