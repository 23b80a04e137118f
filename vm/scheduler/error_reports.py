"""Which session is told of an instruction's own error."""

from __future__ import annotations

from ..model.instruction import Instruction
from ..model.reason import MAKES_ROOM, Reason
from ..model.session import VmSession


def session_to_tell(instruction: Instruction) -> VmSession | None:
    """The session to which an instruction's own error is reported: the instruction's author.

    An eviction is different: its author only needs room, and gets other room if the eviction fails. Such a failure is
    reported only if it fails readers of the evicted value: to the author if it has one of these readers, else to the
    author of the first reader. None if no reader fails, since the value has not moved yet.
    """
    author = instruction.author
    if not makes_room(instruction):
        return author
    theirs = failed_by(instruction)
    return author if author in theirs else next(iter(theirs), None)


def makes_room(instruction: Instruction) -> bool:
    """Whether the instruction is an eviction: a transfer that was planned only to make room."""
    return instruction.traits.copies and instruction.label.startswith(MAKES_ROOM)


def failed_by(transfer: Instruction) -> dict[VmSession, None]:
    """The authors of the readers of a failed eviction's copy, also after further evictions of the same value."""
    authors: dict[VmSession, None] = {}
    stack = [transfer]
    while stack:
        failed = stack.pop()
        for dependent in failed.dependents:
            if not any(s == failed.id and r is Reason.RAW for s, r, _, _ in dependent.edges):
                continue
            if makes_room(dependent):
                stack.append(dependent)
            else:
                authors[dependent.author] = None
    return authors
