"""Results whose shape depends on data: the arrays that `mut2` kernels return are adopted as the results' memory.

A result that exceeds the session's quota, or never fits its device, fails alone; a result that does not fit yet waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...interpreter.errors import DeviceMemoryError, QuotaError, TensordError
from ...interpreter.types.meta import Meta
from ...interpreter.types.sizes import exact_size
from ..memory.allocation import adopt
from ..memory.planning import plan_max_bytes
from ..memory.release import release
from ..memory.reservation import is_stuck
from ..memory.shortage import withheld
from ..model.charges import has_share
from ..model.instruction import Instruction
from ..model.tensor import Binding
from .pending_metas import PendingMetas, learn_size
from .wanted import Wanted


def adopt_results(metas: PendingMetas, instruction: Instruction, *, last: bool, evicted: bool) -> bool:
    """Adopt the arrays that a `mut2` kernel returned: resolve their metas, account for their memory.

    False if an array does not fit yet. Room is wanted then, unless earlier instructions may still release memory, or
    their ends may: this is not the `last` thing to be done. `evicted`: the session's share was lacking for the next
    result, and its values leave as far as they may.
    """
    plan = instruction.plan
    if plan is None:
        return True
    if not plan.op.dynamic or instruction.error is not None:
        instruction.results = None
        return True
    for index, (binding, array, nbytes) in enumerate(results_to_come(instruction)):
        try:
            more, again = nbytes - instruction.max_bytes, evicted and not index
            if binding.tensor.meta is None and not metas.check_quotas(instruction, nbytes, more, evicted=again):
                return False
        except QuotaError as error:
            fail_result(instruction, binding, error)
            continue
        if not adopt_one(instruction, binding, array, nbytes):
            if last and is_stuck(instruction):
                metas.wanted.append(Wanted(instruction, nbytes))
            return False
    resolve_adopted(metas, instruction)
    instruction.results = None
    return True


def results_to_come(instruction: Instruction) -> Iterator[tuple[Binding, Any, int]]:
    """The results that are neither adopted nor failed yet, each with its array and bytes."""
    for binding, array in zip(instruction.outputs, instruction.results, strict=True):
        copy = binding.copy
        done = copy.buffer is not None or copy in (instruction.failures or ())
        if not done and not isinstance(array, BaseException):
            yield binding, array, Meta.of(tuple(array.shape), array.dtype).nbytes


def adopt_one(instruction: Instruction, binding: Binding, array: Any, nbytes: int) -> bool:
    """Adopt one array; False if it does not fit."""
    copy = binding.copy
    copy.buffer = adopt(instruction, array)
    if copy.buffer is None and release_used_up(instruction):
        copy.buffer = adopt(instruction, array)
    if copy.buffer is None:
        return False
    instruction.used = copy.device.backend.allocated
    plan_max_bytes(instruction, max(instruction.max_bytes - nbytes, 0))  # the known size counts instead
    learn_size(binding.tensor, nbytes)
    return True


def fail_next_result(instruction: Instruction, holders: str) -> None:
    """Fail the next result, since it does not fit. `holders`: as for `out_of_memory`."""
    binding, _, nbytes = next(results_to_come(instruction))
    backend = binding.copy.device.backend
    used = f"{exact_size(backend.allocated)} of {exact_size(backend.limit)} are in use"
    reserved = withheld(binding.copy.device, instruction.author.account)
    what = f"{instruction.label}: its result of {exact_size(nbytes)}"
    fail_result(
        instruction, binding, DeviceMemoryError(f"{what} does not fit on {backend.name}: {used}{reserved}{holders}")
    )


def resolve_adopted(metas: PendingMetas, instruction: Instruction) -> None:
    """Resolve the metas of the results, after giving up the memory that was planned for results of unknown size."""
    if instruction.max_bytes:
        plan_max_bytes(instruction, 0)
    if not has_share(instruction.session.account, instruction.device, 0):  # made without a check
        metas.wanted.append(Wanted(instruction, 0, share=True))
    for binding, array in zip(instruction.outputs, instruction.results, strict=True):
        if binding.tensor.meta is None and binding.copy.buffer is not None:
            metas.resolve(binding.tensor, Meta.of(tuple(array.shape), array.dtype))


def release_used_up(instruction: Instruction) -> bool:
    """Release the stale inputs whose last use was this instruction; False if there are none."""
    used_up = [copy for copy in instruction.reads if copy.uses == 1 and not copy.current and copy.buffer is not None]
    for copy in used_up:
        release(copy, over=1)
    return bool(used_up)


def fail_result(instruction: Instruction, binding: Binding, failure: TensordError) -> None:
    """Fail one result of a dynamic op."""
    error = instruction.describe(failure)
    instruction.failures = {**(instruction.failures or {}), binding.copy: error}
    binding.copy.poison = error
