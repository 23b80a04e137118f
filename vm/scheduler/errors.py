"""How errors spread: along RAW edges. An instruction is doomed if, and only if, it reads a failed value, and gets the
same error object; `error_reports` says which session is told.

Each copy has one slot for its poison. The slot is set when the failed instruction runs or retires, at its position in
program order, and not earlier: an earlier reader must not see the error. So an error is passed on in two ways: a reader
that is admitted later finds the poison, or the error that the writer already has (`inherit_poison`); readers that were
admitted before are doomed when the writer fails (`doom`).

An instruction's `error` is that of all its results, `failures` has the errors of single results, and `origin` tells
whether `error` arose in this instruction. A *tolerant* instruction (a routine's RUN, a SEND) is not doomed by a
poisoned operand: it fails only the results that depend on the operand. A *soft* source is one for which dispatch order
may be enough, so a writer may be under way before its soft sources are done, and then its error may still change.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from ...interpreter.errors import CancelledError, TensordError
from ..model.instruction import Instruction
from ..model.lifecycle import PENDING, UNDER_WAY, Event, Status
from ..model.reason import Reason
from ..model.tensor import Copy

Errors: TypeAlias = tuple[TensordError, ...]


def inherit_poison(instruction: Instruction, copy: Copy) -> None:
    """Doom a reader at admission if the value is already known to be poisoned.

    A writer that was dispatched before its sources are done does not count, since its error changes if a source fails;
    but a cancellation is final.
    """
    if instruction.error is None:
        writer = copy.writer
        if writer is None:
            instruction.error = copy.poison
        elif (writer.error or writer.failures) and (
            not (writer.soft and writer.status in UNDER_WAY) or isinstance(writer.error, CancelledError)
        ):
            instruction.error = writer.failure_of(copy)


def doom(roots: Iterable[Instruction], error: TensordError) -> list[Instruction]:
    """Doom instructions that are not dispatched yet, and all readers of their results.

    Return the doomed instructions, in no particular order, without dispatched ones.

    A dispatched reader is left to its stream, which checks the operands again right before the kernel runs. On a device
    with late errors the kernel may have run already, so the reader gets the error as well; it retires only after its
    sources. If the reader has failed by itself meanwhile, the bad operand was the cause: `error` replaces that failure,
    also in later instructions that were executed and inherited it.
    """
    doomed = []
    seen = set(roots)
    stack: list[tuple[Instruction, Errors]] = [(root, ()) for root in seen]
    while stack:
        instruction, overruled = stack.pop()
        yields = instruction.error is None or is_among(instruction.error, overruled)
        former: Errors = ()
        if instruction.status in PENDING:
            if yields:
                instruction.error = error
            if instruction.status is not Status.DOOMED:
                instruction.move(Event.DOOMED)
                doomed.append(instruction)
        elif instruction.status in UNDER_WAY and (yields or instruction.origin):
            former = overrule(instruction, error)
        for reader in readers_of(instruction, {copy.id for copy in instruction.writes}, former):
            if reader not in seen:
                seen.add(reader)
                stack.append((reader, former))
    return doomed


def overrule(instruction: Instruction, error: TensordError) -> Errors:
    """Fail a dispatched instruction with `error` in place of its former errors, and return the former errors.

    A copy that was poisoned with a former error gets `error`, since other instructions may still read the copy.
    """
    own = () if instruction.error is None else (instruction.error,)
    former = (*own, *(instruction.failures or {}).values())
    instruction.error, instruction.origin, instruction.failures = error, False, None
    for copy in instruction.writes:
        if copy.poison is not None and is_among(copy.poison, former):
            copy.poison = error
    return former


def tell_dispatched(instruction: Instruction, copies: set[int], error: TensordError) -> None:
    """Tell dispatched tolerant readers that the values they have read of these copies (ids) are poisoned."""
    for dependent in instruction.dependents:
        if dependent.traits.tolerant and dependent.status not in PENDING:
            for source, reason, copy, _ in dependent.edges:
                if source == instruction.id and reason is Reason.RAW and copy in copies:
                    dependent.hear_of(copy, error)


def is_among(error: TensordError, errors: Errors) -> bool:
    """Whether `error` is one of `errors`, by identity."""
    return any(error is other for other in errors)


def settle_late(instruction: Instruction) -> None:
    """Poison the copies that an instruction wrote, if it failed after it had run, unless a later writer has been
    dispatched already."""
    for copy in instruction.writes:
        error = instruction.failure_of(copy)
        if error is not None and copy.poison is not error and not is_overwritten(instruction, copy):
            copy.poison = error


def is_overwritten(instruction: Instruction, copy: Copy) -> bool:
    """Whether a later writer of the copy has been dispatched: then the copy's slot is for that writer's error.

    The search follows the readers between the two writers. Writers after the next one are not dispatched before it.
    """
    stack = [instruction]
    seen = {instruction}  # there may be many paths to a reader
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
    """The dependents that read the instruction's value of one of `copies` (ids), and are not doomed yet.

    Without the second condition, a failed chain of n instructions would be walked n times. `overruled`: former errors
    of the instruction; a dependent with one of these errors does not count as doomed.
    """
    return [
        dependent
        for dependent in instruction.dependents
        if (dependent.error is None or dependent.origin or is_among(dependent.error, overruled))
        and dependent.reads
        and not dependent.traits.tolerant
        and any(s == instruction.id and r is Reason.RAW and c in copies for s, r, c, _ in dependent.edges)
    ]
