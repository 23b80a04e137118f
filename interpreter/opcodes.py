"""The opcodes: what an instruction can be."""

from __future__ import annotations

from enum import StrEnum


class Opcode(StrEnum):
    """Kinds of instructions. The names are OneFlow's where OneFlow has the instruction."""

    CALL = "LocalCallOpKernel"
    TRANSFER = "Transfer"
    COPY = "Copy"
    ACCESS = "AccessBlobByCallback"
    RELEASE = "ReleaseTensor"
    BARRIER = "Barrier"


# As records keep them: plain texts, which Python reads much faster than the value of an enum's member.
ACCESS_TEXT, RELEASE_TEXT, BARRIER_TEXT = (opcode.value for opcode in (Opcode.ACCESS, Opcode.RELEASE, Opcode.BARRIER))
