"""Binding operands to memory at dispatch, and taking over what kernels return."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...interpreter.errors import DeviceMemoryError, QuotaError, TensordError
from ...interpreter.types.meta import Meta
from ..model.account import check_bytes
from ..model.instruction import Instruction
from ..model.operand import Binding
from ..scheduler.pending_metas import resolve_meta
from .reservation import is_stuck

if TYPE_CHECKING:
    from ..engine import Engine


def bind_arguments(instruction: Instruction) -> None:
    """Arrays for the kernel: inputs in order (scalars as they are), then outputs that have memory."""
    arguments = [bind(value) if type(value) is Binding else value for value in instruction.inputs]
    if instruction.plan is None or not instruction.plan.op.dynamic:
        arguments.extend(bind(value) for value in instruction.outputs)
    instruction.arguments = arguments
    if instruction.bytes_moved < 0:
        instruction.bytes_moved = sum(b.tensor.meta.nbytes for b in instruction.outputs if b.tensor.meta is not None)
    if instruction.forwarded is not None:
        instruction.forwarded.buffer = None  # it is the result's now


def bind(binding: Binding) -> Any:
    """The array of one operand."""
    copy, tensor, offset, strides = binding
    buffer, meta, backend = copy.buffer, tensor.meta, copy.device.backend
    if buffer is None or meta is None:
        raise TensordError("an operand has no memory")
    if strides is not None:
        return backend.bind_view(buffer, meta, offset, strides)
    return buffer.array if buffer.meta is meta else backend.bind(buffer, meta)


def adopt_results(engine: Engine, instruction: Instruction) -> bool:
    """Take over the arrays that a `mut2` kernel returned: their metas become known, their memory accounted.

    False if one does not fit yet: what runs before the instruction may still give memory back.
    """
    plan = instruction.plan
    if plan is None:
        return True
    if not plan.op.dynamic or instruction.error is not None:
        instruction.results = None
        return True
    for binding, array in zip(instruction.outputs, instruction.results, strict=True):
        if isinstance(array, BaseException) or binding.copy.buffer is not None:
            continue
        meta = Meta.of(tuple(array.shape), array.dtype)
        if is_over_quota(instruction, binding, meta):
            continue
        binding.copy.buffer = binding.copy.device.adopt(array)
        if binding.copy.buffer is None and free_used_up(instruction):
            binding.copy.buffer = binding.copy.device.adopt(array)
        if binding.copy.buffer is not None:
            resolve_meta(engine, binding.tensor, meta)
        elif is_stuck(instruction):
            backend = binding.copy.device.backend
            text = f"{backend.name}: {backend.allocated} of {backend.limit} bytes are in use"
            text = f"{instruction.label}: its result of {meta.nbytes} bytes does not fit on {text}"
            fail_result(instruction, binding, DeviceMemoryError(text))
        else:
            return False
    instruction.results = None
    return True


def free_used_up(instruction: Instruction) -> bool:
    """Its kernel has run: free inputs that it was the last to use. False: there are none."""
    used_up = [copy for copy in instruction.reads if copy.uses == 1 and not copy.current and copy.buffer is not None]
    for copy in used_up:
        copy.device.free(copy)
    return bool(used_up)


def is_over_quota(instruction: Instruction, binding: Binding, meta: Meta) -> bool:
    """Is one result of a dynamic op more than its session may have? Then it has failed."""
    failed = instruction.failures or {}
    if binding.copy in failed:
        return True
    try:
        check_bytes(instruction.session, meta.nbytes if binding.tensor.meta is None else 0)
    except QuotaError as error:
        fail_result(instruction, binding, error)
        return True
    return False


def fail_result(instruction: Instruction, binding: Binding, failure: TensordError) -> None:
    """One result of a dynamic op cannot be kept."""
    error = instruction.describe(failure)
    instruction.failures = {**(instruction.failures or {}), binding.copy: error}
    binding.copy.poison = error
