"""Pending metas: metas of results whose shape depends on data.

An instruction with a pending input meta is admitted at once, with pending outputs. When its last input meta resolves,
its outputs are inferred, which may resolve the metas of later instructions before any of them has run. An error of the
infer function poisons like a kernel's error. Metas are write-once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from ...interpreter.errors import TensordError
from ...interpreter.schema.infer import InferCache
from ...interpreter.types.meta import Meta, OperandMeta
from ..memory.ledger import learn_need, undecided
from ..memory.planning import learn_bytes, plan_max_bytes
from ..memory.reservation import max_bytes_of, need_alone, scratch_of, too_large
from ..memory.shortage import full_below
from ..model.charges import charge_late, check_bytes, check_share, has_share
from ..model.instruction import Instruction
from ..model.plan import Plan
from ..model.tensor import Binding, VmTensor
from .wanted import Wanted


class PendingMetas:
    """Resolves metas.

    `failed` takes the instructions whose operands do not fit, `ready` those that may be dispatched, and `wanted` the
    needs of results that exceed their session's share.
    """

    def __init__(
        self,
        infer: InferCache,
        failed: Callable[[Instruction, TensordError], None],
        ready: Callable[[Instruction], None],
        wanted: deque[Wanted],
    ) -> None:
        self.infer = infer
        self.failed = failed
        self.ready = ready
        self.wanted = wanted

    def resolve(self, tensor: VmTensor, meta: Meta) -> None:
        """Set a tensor's meta and the sizes of its copies, and resolve the metas that depend on it."""
        self._resolve_all([(tensor, meta)])

    def resolve_wanting(self, instruction: Instruction) -> None:
        """Resolve the metas of an instruction's results, once its session's share has as much room as possible."""
        instruction.pending -= 1
        self._resolve_all(self._resolve_instruction(instruction, evicted=True))

    def _resolve_all(self, stack: list[tuple[VmTensor, Meta]]) -> None:
        while stack:
            tensor, meta = stack.pop()
            tensor.meta = meta
            learn_size(tensor, meta.nbytes)
            dependents, tensor.dependents = tensor.dependents, None
            for dependent in dependents or ():
                if isinstance(dependent, VmTensor):  # the same value with another home
                    stack.append((dependent, meta))
                    continue
                dependent.pending -= 1
                if dependent.pending == 0 and dependent.error is None:
                    stack.extend(self._resolve_instruction(dependent))

    def _resolve_instruction(self, instruction: Instruction, *, evicted: bool = False) -> list[tuple[VmTensor, Meta]]:
        """Infer the outputs of an instruction whose input metas are known; return the metas that become known."""
        resolved: list[tuple[VmTensor, Meta]] = []
        try:
            metas = self._infer_outputs(instruction)
            if not self._check_sizes(instruction, metas, evicted=evicted):
                instruction.pending += 1  # until `resolve_wanting`
                return resolved
        except TensordError as error:
            self.failed(instruction, error)
            return resolved
        need = most = max_bytes_of(instruction)
        if most:
            plan_max_bytes(instruction, most)
        for binding, meta in zip(instruction.outputs, metas, strict=True):
            if meta is not None:
                learn_bytes(binding.copy, meta.nbytes, binding.tensor.storage.account)
                need += meta.nbytes if binding.copy.buffer is None else 0
                if binding.tensor.meta is None:
                    learn_size(binding.tensor, meta.nbytes)  # before the next dependent's size is checked
                    resolved.append((binding.tensor, meta))
        learn_need(instruction.device, instruction, need + scratch_of(instruction))
        self.ready(instruction)
        return resolved

    def _check_sizes(self, instruction: Instruction, metas: Iterable[Meta | None], *, evicted: bool) -> bool:
        """`check_quotas` for results of a new size; DeviceMemoryError if they are larger than their device."""
        if instruction.plan is None:
            return True
        made = zip(instruction.outputs, metas, strict=True)
        nbytes = sum(m.nbytes for b, m in made if b.tensor.meta is None and m is not None)
        known = need_alone(instruction)
        if known + nbytes > instruction.device.backend.limit:
            raise too_large(instruction, nbytes, known - scratch_of(instruction))
        return self.check_quotas(instruction, nbytes, nbytes + max_bytes_of(instruction), evicted=evicted)

    def check_quotas(self, instruction: Instruction, nbytes: int, share: int, *, evicted: bool) -> bool:
        """QuotaError if more bytes exceed the session's quota, or a larger `share` of the device its ceiling.

        The session's values are evicted to keep within the share, as at admission: False if that has to happen first.
        The second call, with `evicted`, follows.
        """
        account, device = instruction.session.account, instruction.device
        check_bytes(instruction.session, nbytes)
        if share <= 0 or has_share(account, device, share):
            return True
        if evicted:
            leaving = undecided(account, device, instruction)
            check_share(account, device, share, leaving, full_below(device, account, share))
        else:
            self.wanted.append(Wanted(instruction, share, share=True))
        return evicted

    def _infer_outputs(self, instruction: Instruction) -> tuple[Meta | None, ...]:
        """Set the instruction's plan for its known input metas, and return the metas of the results."""
        before = instruction.plan
        if not isinstance(before, Plan):  # a transfer or a copy: same meta on both sides
            sources = instruction.inputs[: len(instruction.outputs)]  # a fetch or a side effect has no outputs
            return tuple(value.tensor.meta for value in sources if isinstance(value, Binding))
        metas: tuple[OperandMeta | None, ...] = tuple(
            value.tensor.meta if isinstance(value, Binding) else type(value) for value in instruction.inputs
        )
        targets = tuple(binding.tensor.meta for binding in instruction.outputs) if before.in_place else None
        plan = before.with_metas(instruction.inputs, metas, self.infer, targets)
        instruction.plan = plan
        instruction.kernel = plan.kernel
        return plan.outputs

    def fail(self, instruction: Instruction) -> Iterator[tuple[TensordError, list[Instruction]]]:
        """Fail the pending metas of a failed instruction's results; yield errors, and the instructions they doom."""
        if instruction.plan is None or instruction.plan.in_place:
            return
        for binding in instruction.outputs:
            error = instruction.failure_of(binding.copy)
            if error is not None and binding.tensor.meta is None:
                yield error, fail_meta(binding.tensor, error)


def await_metas(instruction: Instruction, targets: Iterable[VmTensor] = ()) -> None:
    """Make an instruction, before its admission, wait for the pending metas of its inputs and of `targets`."""
    for value in instruction.inputs:
        if type(value) is Binding and value.tensor.meta is None:
            await_meta(instruction, value.tensor)
    for target in targets:
        if target.meta is None:
            await_meta(instruction, target)


def await_meta(instruction: Instruction, tensor: VmTensor) -> None:
    """Make the instruction wait for a pending meta; give it the error if the meta will never be known."""
    if tensor.meta_error is not None:
        instruction.error = instruction.error or tensor.meta_error
    else:
        instruction.pending += 1
        tensor.add_dependent(instruction)


def fail_meta(tensor: VmTensor, error: TensordError) -> list[Instruction]:
    """Fail the metas of a tensor and of tensors with the same value; return the instructions that waited for them."""
    doomed: list[Instruction] = []
    stack = [tensor]
    while stack:
        tensor = stack.pop()
        tensor.meta_error = error
        dependents, tensor.dependents = tensor.dependents, None
        for dependent in dependents or ():
            if isinstance(dependent, VmTensor):
                stack.append(dependent)
            else:
                doomed.append(dependent)
    return doomed


def learn_size(tensor: VmTensor, nbytes: int) -> None:
    """Set the size of a tensor's storage and of the storage's whole copies, if it was unknown."""
    storage = tensor.storage
    if storage.nbytes < 0:
        charge_late(storage, nbytes)
        for copy in storage.copies.values():
            learn_bytes(copy, nbytes, storage.account)
