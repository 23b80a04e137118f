"""Room beyond the plan: for an instruction that was admitted, and lacks memory or a share of it all the same.

An eviction may fail, or data decide on a size, after admission has planned. The scheduler says what is wanted then
(`Scheduler.wanted`), and its driver has it made here, between two steps: the transfers are planned behind all that has
been admitted by then.
"""

from __future__ import annotations

from collections.abc import Callable

from ..memory.ledger import has_spare
from ..memory.making_room import Room, evict_idle, gather
from ..memory.reservation import is_first, is_stuck
from ..model.device_state import DeviceState
from ..model.instruction import HELD_BY_FAIRNESS, PENDING, Instruction
from ..model.reason import REPLAN
from ..model.session import Cause
from ..model.tensor import Copy, Storage
from ..scheduler.scheduler import Scheduler
from ..scheduler.wanted import Wanted
from .tiers import Tiers

REPLANS = 4  # for one instruction: each may fail


class LateRoom:
    """Makes what is wanted."""

    def __init__(self, scheduler: Scheduler, tiers: Tiers) -> None:
        self.scheduler = scheduler
        self.tiers = tiers

    def make(self, wanted: Wanted, holders: Callable[[DeviceState], str]) -> None:
        """Let values leave for what an instruction lacks. If none may, and it waits for no other, it fails.

        `holders` names what has a device's memory, for its error.
        """
        instruction, nbytes, share = wanted
        if share:
            self.make_share(instruction, nbytes)
            self.scheduler.go_on(instruction)
        elif instruction.error is not None or instruction.retired or not is_stuck(instruction):
            return
        elif not self.replan(instruction, nbytes) and is_first(instruction):
            self.scheduler.give_up(instruction, holders(instruction.device))

    def make_share(self, instruction: Instruction, nbytes: int) -> None:
        """Let copies of its session leave the plan, which is that after all that has been admitted by now. Instructions
        that use them do so first."""
        spare = {*instruction.reads, *instruction.writes, *self.scheduler.bound}
        cause = Cause(instruction.author, instruction.location)
        self.tiers.make_share_of(instruction.device, spare, instruction.session.account, cause, nbytes)

    def replan(self, instruction: Instruction, nbytes: int) -> bool:
        """Nothing that was planned frees the memory that the instruction waits for. Evict what no unfinished
        instruction accesses; is there enough?"""
        device, cause = instruction.device, Cause(instruction.author, instruction.location)
        if not device.tiers:
            return False
        if not device.short:
            gather(device, self.scheduler.storages())
        instruction.replans += is_first(instruction)
        if instruction.replans > REPLANS:
            return False

        def evict(copy: Copy, storage: Storage) -> Instruction | None:
            tiers = [tier for tier in device.tiers if has_spare(tier, tier.backend.footprint(storage.nbytes))]
            return self.tiers.evict(cause, copy, storage, REPLAN, tiers)

        backend, spare = device.backend, {*instruction.reads, *instruction.writes}
        need = nbytes - (backend.limit - backend.allocated)
        return evict_idle(Room(device, spare, cause.session.account, need), self.scheduler.retry, evict, self.begin)

    def begin(self, transfer: Instruction) -> bool:
        """Hand a transfer over at once; False if that cannot be."""
        self.scheduler.dispatcher.dispatch(transfer)
        return transfer.status not in PENDING or bool(transfer.held & HELD_BY_FAIRNESS)
