"""Edges between accesses of copies: built at admission, dropped at retirement, followed by errors.

A copy's access list has at most one leading write, then reads. A read waits for the leading write (RAW). A write waits
for every access in the list (WAW, WAR; RAW if it also reads) and replaces it. An instruction never waits for itself.

Errors follow RAW edges only: what reads a failed value is doomed with the same error. The poison slot of a copy is
set when the failed instruction retires or runs, in its place, never before: an earlier reader must not see it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ...interpreter.errors import TensordError
from ...interpreter.opcodes import Opcode
from ..model.instruction import Instruction, Status
from ..model.reason import Reason
from ..model.tensor import Copy

Errors: TypeAlias = tuple[TensordError, ...]
# What the host can see waits until its sources are done, whatever stream they are on.
HOST_VISIBLE = frozenset({Opcode.ACCESS, Opcode.BARRIER, Opcode.RELEASE})


def consume(instruction: Instruction) -> None:
    """Build the instruction's edges and enter its accesses into the lists."""
    writes = instruction.writes
    for copy in instruction.reads:
        writer = copy.writer
        if writer is not None:
            add_edge(writer, instruction, Reason.RAW, copy.id)
        inherit_poison(instruction, copy)
        if copy not in writes:
            if copy.readers is None:
                copy.readers = {}
            copy.readers[instruction] = None
            if touches_memory(instruction):
                copy.uses += 1
    for copy in writes:
        if copy.writer is not None and copy not in instruction.reads:
            add_edge(copy.writer, instruction, Reason.WAW, copy.id)
        for reader in copy.readers or ():
            add_edge(reader, instruction, Reason.WAR, copy.id)
        copy.writer = instruction
        copy.readers = None
        if touches_memory(instruction):
            copy.uses += 1


def touches_memory(instruction: Instruction) -> bool:
    """Does its access keep the buffer? A barrier only waits; a release must not keep what it frees."""
    return instruction.opcode is not Opcode.RELEASE and instruction.opcode is not Opcode.BARRIER


def add_edge(source: Instruction, target: Instruction, reason: Reason, copy: int) -> None:
    """`target` waits for `source`. Several edges between two instructions count once for scheduling."""
    target.edges.append((source.id, reason, copy, False))
    hard = is_hard(source, target)
    before = source.dependents.get(target)
    if before is None:
        source.dependents[target] = hard
        if hard:
            target.hard += 1
        else:
            target.soft[source] = None
            if not source.handed:
                target.unlaunched += 1


def is_hard(source: Instruction, target: Instruction) -> bool:
    """Must the source be done before the target may even be dispatched?"""
    if target.opcode in HOST_VISIBLE or target.pending or source.opcode in HOST_VISIBLE:
        return True
    return source.plan is not None and (source.plan.op.dynamic or source.pending > 0)


def inherit_poison(instruction: Instruction, copy: Copy) -> None:
    """A value that is already known to be bad dooms its reader at admission.

    Not if its writer was executed before its sources are done: they may have failed, and with that the reason changes.
    """
    if instruction.error is None:
        writer = copy.writer
        if writer is None:
            instruction.error = copy.poison
        elif not (writer.soft and writer.status is Status.DISPATCHED):
            instruction.error = writer.failure_of(copy)


def release_accesses(instruction: Instruction) -> None:
    """Drop its accesses; the last use of a dead copy frees its buffer."""
    queued = 1 if instruction.handed else 0
    for copy in instruction.reads:
        if copy.readers is not None:
            copy.readers.pop(instruction, None)
        if copy not in instruction.writes and touches_memory(instruction):
            drop_use(copy, queued)
    for copy in instruction.writes:
        if copy.writer is instruction:
            copy.writer = None
        if touches_memory(instruction):
            drop_use(copy, queued)


def drop_use(copy: Copy, queued: int) -> None:
    """One live access less."""
    copy.uses -= 1
    copy.queued -= queued
    if copy.poison is not None and not copy.queued:
        copy.device.give_up(copy)
    elif not copy.current:
        copy.device.retire_buffer(copy)


def is_maker(instruction: Instruction, copy: Copy) -> bool:
    """Is it the first live one to write the copy, so that the memory is its business?"""
    return copy.uses == 1 or not any(c == copy.id and r is not Reason.WAR for _, r, c, _ in instruction.edges)


def touched_copies(instruction: Instruction) -> tuple[Copy, ...]:
    """Each copy it accesses, once."""
    reads = instruction.reads
    return (*reads, *(copy for copy in instruction.writes if copy not in reads))


def doom(roots: Iterable[Instruction], error: TensordError) -> list[Instruction]:
    """Doom instructions that have not been dispatched, and all that read what they were to write.

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
        if instruction.status in (Status.WAITING, Status.READY):
            if yields:
                instruction.error = error
            doomed.append(instruction)
        elif instruction.status is Status.DISPATCHED and (yields or instruction.origin):
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
    """Is it one of these very errors?"""
    return any(error is other for other in errors)


def settle_late(instruction: Instruction) -> None:
    """It failed, maybe after later instructions were executed: poison what it wrote, but not what they wrote since."""
    for copy in instruction.writes:
        writer = copy.writer
        if writer is None or writer is instruction or not writer.handed:
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
