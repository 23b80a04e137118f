"""Edges between accesses of copies: built at admission, dropped at retirement.

A copy's access list has at most one leading write, then reads. A read waits for the leading write (RAW). A write waits
for every access in the list (WAW, WAR; RAW if it also reads) and replaces it. An instruction never waits for itself.
"""

from __future__ import annotations

from ..memory.release import end_uses
from ..model.instruction import Instruction
from ..model.reason import Reason
from ..model.tensor import Copy
from .errors import inherit_poison


def consume(instruction: Instruction) -> None:
    """Build the instruction's edges and enter its accesses into the lists."""
    writes = instruction.writes
    for copy in instruction.reads:
        writer = copy.writer
        if writer is not None:
            add_edge(writer, instruction, Reason.RAW, copy.id)
        if not instruction.traits.tolerant:
            inherit_poison(instruction, copy)
        if copy not in writes:
            if copy.readers is None:
                copy.readers = {}
            copy.readers[instruction] = None
            if instruction.traits.holds_memory:
                copy.uses += 1
    for copy in writes:
        if copy.writer is not None and copy not in instruction.reads:
            add_edge(copy.writer, instruction, Reason.WAW, copy.id)
        for reader in copy.readers or ():
            add_edge(reader, instruction, Reason.WAR, copy.id)
        copy.writer = instruction
        copy.readers = None
        if instruction.traits.holds_memory:
            copy.uses += 1


def add_edge(source: Instruction, target: Instruction, reason: Reason, copy: int) -> None:
    """Make `target` wait for `source`. Several edges between two instructions count once for scheduling."""
    target.edges.append((source.id, reason, copy, False))
    hard = is_hard(source, target)
    if source.remote:
        target.remote = True
    before = source.dependents.get(target)
    if before is None:
        source.dependents[target] = hard
        if hard:
            target.hard += 1
        else:
            target.soft[source] = None


def release_successors(source: Instruction) -> dict[Instruction, bool]:
    """Satisfy its outgoing edges for good; the successors."""
    successors, source.dependents = source.dependents, {}
    for successor, hard in successors.items():
        if hard:
            successor.hard -= 1
        else:
            del successor.soft[source]
    return successors


def is_hard(source: Instruction, target: Instruction) -> bool:
    """Whether the source must be done before the target may be dispatched."""
    here, there = target.traits, source.traits
    if here.host_visible or target.pending or there.host_visible or here.exchanges or there.exchanges:
        return True
    if target.traits.tolerant and target.device.late_errors and target.device.launches is None:
        return True  # the target reads its operands' poison, which must be final; launches are told later
    return source.plan is not None and (source.plan.op.dynamic or source.pending > 0)


def release_accesses(instruction: Instruction) -> None:
    """Drop an instruction's accesses; the last use of a stale copy frees its buffer."""
    for copy in instruction.reads:
        if copy.readers is not None:
            copy.readers.pop(instruction, None)
    for copy in instruction.writes:
        if copy.writer is instruction:
            copy.writer = None
    if instruction.traits.holds_memory:
        end_uses(instruction)


def touched_copies(instruction: Instruction) -> tuple[Copy, ...]:
    """Each copy that the instruction accesses, once."""
    reads = instruction.reads
    return (*reads, *(copy for copy in instruction.writes if copy not in reads))
