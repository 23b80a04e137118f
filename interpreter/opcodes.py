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
