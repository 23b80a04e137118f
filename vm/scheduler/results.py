"""Results whose shape depends on data: adopts the arrays that kernels return."""

from __future__ import annotations

from ...interpreter.errors import DeviceMemoryError, QuotaError, TensordError
from ...interpreter.types.meta import Meta
from ...interpreter.types.sizes import exact_size
from ..memory.allocation import adopt
from ..memory.kept import kept_back
from ..memory.ledger import plan_most
from ..memory.release import release
from ..memory.reservation import is_first, is_stuck
from ..model.charges import has_share
from ..model.instruction import Instruction
from ..model.tensor import Binding
from .dispatch import Holders, Replan
from .pending_metas import PendingMetas, learn_size


def adopt_results(
    metas: PendingMetas, instruction: Instruction, holders: Holders, replan: Replan, *, last: bool
) -> bool:
    """Adopt the arrays that a `mut2` kernel returned: resolve their metas, account for their memory.

    False if an array does not fit yet: earlier instructions may still release memory, and so may their ends, unless
    this is the `last` thing to be done.
    """
    plan = instruction.plan
    if plan is None:
        return True
    if not plan.op.dynamic or instruction.error is not None:
        instruction.results = None
        return True
    for binding, array in zip(instruction.outputs, instruction.results, strict=True):
        copy = binding.copy
        if isinstance(array, BaseException) or copy.buffer is not None:
            continue
        meta = Meta.of(tuple(array.shape), array.dtype)
        if is_over_quota(metas, instruction, binding, meta):
            continue
        copy.buffer = adopt(instruction, array)
        if copy.buffer is None and release_used_up(instruction):
            copy.buffer = adopt(instruction, array)
        stuck = copy.buffer is None and last and is_stuck(instruction)
        if stuck and replan(instruction, meta.nbytes):
            copy.buffer = adopt(instruction, array)
            stuck = False
        if copy.buffer is not None:
            instruction.used = copy.device.backend.allocated
            plan_most(instruction, max(instruction.most - meta.nbytes, 0))  # the size of this one counts instead
            learn_size(binding.tensor, meta.nbytes)
        elif stuck and is_first(instruction):
            backend = copy.device.backend
            used = f"{exact_size(backend.allocated)} of {exact_size(backend.limit)} are in use"
            kept = kept_back(copy.device, instruction.author.account)
            text = (
                f"{instruction.label}: its result of {exact_size(meta.nbytes)} does not fit on {backend.name}: "
                f"{used}{kept}{holders(copy.device)}"
            )
            fail_result(instruction, binding, DeviceMemoryError(text))
        else:
            return False
    resolve_adopted(metas, instruction)
    instruction.results = None
    return True


def resolve_adopted(metas: PendingMetas, instruction: Instruction) -> None:
    """Resolve the metas of the results. None is to come any more, so what was planned for them is free for what is made
    of them."""
    if instruction.most:
        plan_most(instruction, 0)
    if not has_share(instruction.session.account, instruction.device, 0):  # it counted, but nothing was refused for it
        metas.make_share(instruction, 0)
    for binding, array in zip(instruction.outputs, instruction.results, strict=True):
        if binding.tensor.meta is None and binding.copy.buffer is not None:
            metas.resolve(binding.tensor, Meta.of(tuple(array.shape), array.dtype))


def release_used_up(instruction: Instruction) -> bool:
    """Release the stale inputs whose last use was this kernel. False if there are none."""
    used_up = [copy for copy in instruction.reads if copy.uses == 1 and not copy.current and copy.buffer is not None]
    for copy in used_up:
        release(copy, over=1)
    return bool(used_up)


def is_over_quota(metas: PendingMetas, instruction: Instruction, binding: Binding, meta: Meta) -> bool:
    """Does one result of a dynamic op exceed the session's quota? If so, fail that result."""
    failed = instruction.failures or {}
    if binding.copy in failed:
        return True
    try:
        if binding.tensor.meta is None:
            metas.check_quotas(instruction, meta.nbytes, meta.nbytes - instruction.most)
    except QuotaError as error:
        fail_result(instruction, binding, error)
        return True
    return False


def fail_result(instruction: Instruction, binding: Binding, failure: TensordError) -> None:
    """Fail one result of a dynamic op."""
    error = instruction.describe(failure)
    instruction.failures = {**(instruction.failures or {}), binding.copy: error}
    binding.copy.poison = error
