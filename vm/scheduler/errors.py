"""Errors that follow RAW edges: a reader of a failed value is doomed with the same error, and no other instruction is.

The poison slot of a copy is set when the failed instruction retires or runs, in its place, never before: an earlier
reader must not see it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ...interpreter.errors import TensordError
from ..model.instruction import PENDING, UNDER_WAY, Instruction
from ..model.reason import Reason
from ..model.tensor import Copy

Errors: TypeAlias = tuple[TensordError, ...]


def inherit_poison(instruction: Instruction, copy: Copy) -> None:
    """Doom a reader at admission if the value is already known to be poisoned.

    Except if the writer was executed before its sources are done: if they fail, the error changes.
    """
    if instruction.error is None:
        writer = copy.writer
        if writer is None:
            instruction.error = copy.poison
        elif not (writer.soft and writer.status in UNDER_WAY):
            instruction.error = writer.failure_of(copy)


def doom(roots: Iterable[Instruction], error: TensordError) -> list[Instruction]:
    """Doom instructions that have not been dispatched, and all readers of their results.

    Returns those whose fate changed, in no particular order. A dispatched one has its stream, which re-checks its
    operands right before it runs. Where errors surface late it may have run already: it gets the error, too, and is not
    retired before its sources are. Had it failed with what it made of a bad operand, that is no error of its own, nor
    of those that were executed behind it and found it there.
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
    """A dispatched instruction fails with that error; those with which it has failed itself, if it has, count no more.

    What it left with one of them carries the present error: others may still find it there.
    """
    former = () if instruction.error is None else (instruction.error,)
    theirs = (*former, *(instruction.failures or {}).values())
    instruction.error, instruction.origin, instruction.failures = error, False, None
    for copy in instruction.writes:
        if copy.poison is not None and is_among(copy.poison, theirs):
            copy.poison = error
    return theirs


def is_among(error: TensordError, errors: Errors) -> bool:
    """Is it one of these errors, by identity?"""
    return any(error is other for other in errors)


def settle_late(instruction: Instruction) -> None:
    """It failed, maybe after later instructions were executed: poison what it wrote, but not what they wrote since."""
    for copy in instruction.writes:
        writer = copy.writer
        if writer is None or writer is instruction or writer.queue is None:
            copy.poison = instruction.error


def readers_of(instruction: Instruction, copies: set[int], overruled: Errors = ()) -> list[Instruction]:
    """Its dependents that read the value it leaves in one of those copies, and that are not doomed already.

    Without the latter a failed chain would be walked to its end once for each of its links. `overruled`: errors
    that were its own, and are not any more; who has one of them is not doomed yet.
    """
    return [
        dependent
        for dependent in instruction.dependents
        if (dependent.error is None or dependent.origin or is_among(dependent.error, overruled))
        and dependent.reads
        and any(s == instruction.id and r is Reason.RAW and c in copies for s, r, c, _ in dependent.edges)
    ]
