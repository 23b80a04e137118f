"""Binding operands to memory at dispatch: copies become arrays of their devices.

The kernel's arguments are the inputs in order, then the outputs. A result whose size depends on data is not among them,
since the kernel makes it.
"""

from __future__ import annotations

from typing import Any

from ...interpreter.errors import TensordError
from ..model.instruction import Instruction
from ..model.tensor import Binding


def bind_arguments(instruction: Instruction) -> None:
    """Set the kernel's arguments: inputs in order, scalars unchanged, then the outputs that have memory."""
    arguments = [bind(value) if type(value) is Binding else value for value in instruction.inputs]
    if instruction.plan is None or not instruction.plan.op.dynamic:
        arguments.extend(bind(value) for value in instruction.outputs)
    instruction.arguments = arguments
    if instruction.bytes_moved < 0:
        instruction.bytes_moved = sum(b.tensor.meta.nbytes for b in instruction.outputs if b.tensor.meta is not None)
    if instruction.forwarded is not None:
        instruction.forwarded.buffer = None  # the result owns the buffer now


def bind(binding: Binding) -> Any:
    copy, tensor, offset, strides = binding
    buffer, meta, backend = copy.buffer, tensor.meta, copy.device.backend
    if buffer is None and copy.poison is not None:
        return None  # only instructions that accept poisoned operands bind this one
    if buffer is None or meta is None:
        raise TensordError("an operand has no memory")
    if strides is not None:
        return backend.bind_view(buffer, meta, offset, strides)
    return buffer.array if buffer.meta is meta else backend.bind(buffer, meta)
