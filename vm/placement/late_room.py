"""Makes room beyond the plan, for an admitted instruction that lacks memory, or room in its session's share.

The plan made at admission does not hold if an eviction fails, or if a size that depends on data turns out too large.
The scheduler then notes the missing room (`Scheduler.wanted`), and its driver makes the room here, between two steps:
transfers are planned after all instructions that have been admitted by then.
"""

from __future__ import annotations

from collections.abc import Callable

from ..memory.ledger import has_spare
from ..memory.making_room import RoomRequest, evict_idle, gather
from ..memory.reservation import is_first, is_stuck
from ..model.device_state import DeviceState
from ..model.instruction import HELD_BY_FAIRNESS, Instruction
from ..model.lifecycle import PENDING
from ..model.reason import REPLAN
from ..model.session import Cause
from ..model.tensor import Copy, Storage
from ..scheduler.overdue import continue_with_room, fail_for_memory
from ..scheduler.scheduler import Scheduler
from ..scheduler.wanted import Wanted
from .tiers import Tiers

REPLANS = 4  # the most replans for one instruction, since each may fail


class LateRoom:
    """Makes the room that the scheduler wants."""

    def __init__(self, scheduler: Scheduler, tiers: Tiers) -> None:
        self.scheduler = scheduler
        self.tiers = tiers
        self.tried: dict[DeviceState, tuple[int, int]] = {}  # the last instruction that was replanned: id and replans

    def make(self, wanted: Wanted, holders: Callable[[DeviceState], str]) -> None:
        """Evict values for an instruction; if too few can be evicted, fail it if it is the first of its device.

        `holders`: from a device to a clause that names the holders of its memory, for the error.
        """
        instruction, nbytes, share = wanted
        if share:
            self.make_share(instruction, nbytes)
            continue_with_room(self.scheduler, instruction)
        elif instruction.error is not None or instruction.retired or not is_stuck(instruction):
            return
        elif not self.replan(instruction, nbytes) and is_first(instruction):
            fail_for_memory(self.scheduler, instruction, holders(instruction.device))

    def make_share(self, instruction: Instruction, nbytes: int) -> None:
        """Make room in the session's share: evict its copies once the instructions admitted so far have used them."""
        spare = {*instruction.reads, *instruction.writes, *self.scheduler.bound}
        cause = Cause(instruction.author, instruction.location)
        self.tiers.make_share_of(instruction.device, spare, instruction.session.account, cause, nbytes)

    def replan(self, instruction: Instruction, nbytes: int) -> bool:
        """Evict idle values for a stuck instruction; False if this cannot free enough memory.

        A stuck instruction waits for memory that no planned release will free. A value is idle if no unfinished
        instruction accesses it.
        """
        device, cause = instruction.device, Cause(instruction.author, instruction.location)
        if not device.tiers:
            return False
        if not device.short:
            gather(device, self.scheduler.storages())
        if is_first(instruction) and self.count(instruction) > REPLANS:
            return False

        def evict(copy: Copy, storage: Storage) -> Instruction | None:
            tiers = [tier for tier in device.tiers if has_spare(tier, tier.backend.footprint(storage.nbytes))]
            return self.tiers.evict(cause, copy, storage, REPLAN, tiers)

        backend, spare = device.backend, {*instruction.reads, *instruction.writes}
        need = nbytes - (backend.limit - backend.allocated)
        return evict_idle(
            RoomRequest(device, spare, cause.session.account, need), self.scheduler.retry, evict, self.begin
        )

    def count(self, instruction: Instruction) -> int:
        """Count a replan of the oldest instruction of a device; return its number of replans."""
        latest, replans = self.tried.get(instruction.device, (0, 0))
        replans = replans + 1 if latest == instruction.id else 1
        self.tried[instruction.device] = instruction.id, replans
        return replans

    def begin(self, transfer: Instruction) -> bool:
        """Dispatch a transfer now; False if it cannot be dispatched."""
        self.scheduler.dispatcher.dispatch(transfer)
        return transfer.status not in PENDING or bool(transfer.held & HELD_BY_FAIRNESS)
