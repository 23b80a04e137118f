"""Tiers: whether there is room on a device for a value, and its transfer to a tier below where there is none.

Others leave first, until the value fits the plan, and its session's share of a device that has a ceiling. Memory says
which copies are to go (`leaving`); their transfers are planned here, before the instruction that needs the room is
admitted, so that what is evicted moves in front of it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ...interpreter.types.meta import Meta
from ..memory.kept import full_below
from ..memory.ledger import undecided
from ..memory.making_room import Room, drop_replica, gather, leaving
from ..memory.refusals import Refusals, question
from ..memory.release import leave_plan
from ..memory.reservation import need_alone, new_copies, scratch_of, too_large
from ..model.account import Account
from ..model.charges import check_share, count, has_share
from ..model.device_state import DeviceState, add_to
from ..model.instruction import Instruction
from ..model.reason import EVICT
from ..model.session import Cause
from ..model.tensor import Binding, Copy, Storage, Tensor
from ..scheduler.errors import inherit_poison
from ..scheduler.scheduler import Scheduler
from .transfers import Transfers


class Tiers:
    """Room on the tiers of a machine. `new_copy`: makes a copy of so many bytes and that version on a device."""

    def __init__(
        self, scheduler: Scheduler, transfers: Transfers, new_copy: Callable[[DeviceState, int, int], Copy]
    ) -> None:
        self.scheduler = scheduler
        self.transfers = transfers
        self.new_copy = new_copy
        self.refusals = Refusals()
        self.catch_up: Callable[[DeviceState, int], None] = release_nothing  # set by `admission.cancellation`

    def admit(self, instruction: Instruction) -> None:
        """Admit an instruction that may make memory, behind what leaves its device for that."""
        device, plan = instruction.device, instruction.plan
        beside = instruction.beside if plan is None else plan.scratch + plan.most
        if device.planned + beside > device.backend.limit:
            self._plan_room(instruction, beside)
        self.scheduler.admit(instruction)

    def _plan_room(self, instruction: Instruction, beside: int) -> None:
        """The plan exceeds the instruction's device: let copies leave that, if the instruction makes any memory."""
        device = instruction.device
        if not beside and all(binding.copy.buffer is not None for binding in instruction.outputs):
            return
        if need_alone(instruction) > device.backend.limit:
            refuse(instruction)
            return
        spare = {*instruction.reads, *instruction.writes, *self.scheduler.bound}
        self.make_room(device, spare, Cause(instruction.author, instruction.location), beside)

    def make_room(self, device: DeviceState, spare: Collection[Copy], cause: Cause, need: int = 0) -> bool:
        """Let copies leave a device, but none of `spare`, until its plan and `need` bytes fit; do they?

        As in a serial run: so first what ended sessions still hold there has to be released.
        """
        over = device.planned + need > device.backend.limit
        if need > device.backend.limit:
            return False  # else everything there would leave in vain
        if device.leaving and over:
            self.catch_up(device, need)
            self.refusals.known.clear()  # pins may have ended
            over = device.planned + need > device.backend.limit
        if not over:
            return True
        if not device.short and device.tiers:
            gather(device, self.scheduler.storages())
        return self._let_leave(Room(device, spare, cause.session.account, need), cause)

    def make_share_of(
        self, device: DeviceState, spare: Collection[Copy], account: Account | None, cause: Cause, need: int
    ) -> bool:
        """Let an account's copies leave a device that has a ceiling, but none of `spare`, until `need` bytes more are
        within its share; are they?"""
        if not device.ceiling or has_share(account, device, need):
            return True
        if not device.short and device.tiers:
            gather(device, self.scheduler.storages())
        return self._let_leave(Room(device, spare, account, need, own=True), cause)

    def _let_leave(self, room: Room, cause: Cause) -> bool:
        """Let copies leave until what is wanted fits, unless it is known that none may."""
        refusals, bound = self.refusals, self.scheduler.bound
        with refusals:
            asked = question(room, cause.session, bound) if refusals.failed else None
            if asked in refusals.known:
                return False
            for copy, storage in leaving(room):
                if self.evict(cause, copy, storage, EVICT, copy.device.tiers) is not None:
                    drop_replica(copy, storage)
            if room.fits():
                return True
            refusals.failed = True
            if asked is not None and question(room, cause.session, bound) == asked:
                refusals.known.add(asked)
        return False

    def find_room(self, tier: DeviceState, storage: Storage, nbytes: int, cause: Cause) -> bool:
        """Let values leave a tier until so many bytes of a storage fit there, and within its session's share."""
        scheduler, account = self.scheduler, storage.account or cause.session.account
        spare = {*storage.current(), *scheduler.bound}
        return self.make_room(tier, spare, cause, nbytes) and self.make_share_of(tier, spare, account, cause, nbytes)

    def require_share(self, storage: Storage | None, device: DeviceState, nbytes: int, cause: Cause) -> None:
        """As `make_share`; QuotaError if it is False, and will be once data have decided on sizes."""
        if not self.make_share(storage, device, nbytes, cause):
            account = cause.session.account
            check_share(account, device, nbytes, undecided(account, device), full_below(device, account, nbytes))

    def make_share(self, storage: Storage | None, device: DeviceState, nbytes: int, cause: Cause) -> bool:
        """Let values leave a device that has a ceiling until the share of a storage's session has so many bytes more.
        None: of the session that asks, which is about to make one.

        False if it cannot have them and is the session that asks; others are not to suffer from what it keeps, and
        what the machine brings somewhere is of the moment.
        """
        session = cause.session
        account = session.account if storage is None or storage.account is None else storage.account
        spare = set(self.scheduler.bound)
        if storage is not None:
            spare.update(storage.current())
        there = self.make_share_of(device, spare, account, cause, max(nbytes, 0))
        return there or account is not session.account or session is self.scheduler.system_session

    def evict(
        self, cause: Cause, copy: Copy, storage: Storage, why: str, tiers: Sequence[DeviceState]
    ) -> Instruction | None:
        """Plan the transfer of the only copy of a value to the first of the `tiers` with room for it, for a session
        that needs the room here; None if none has."""
        for tier in tiers:
            if self.may_take(tier, copy, storage, cause):
                return self.evict_to(tier, copy, storage, cause, why)
        return None

    def may_take(self, tier: DeviceState, copy: Copy, storage: Storage, cause: Cause) -> bool:
        """Is there room on a tier for an evicted copy, now or once others have left?"""
        scheduler, nbytes = self.scheduler, tier.backend.footprint(storage.nbytes)
        spare = {copy, *scheduler.bound}
        return (
            tier.backend.lost is None
            and nbytes <= tier.backend.limit  # else everything there would leave in vain
            and self.make_room(tier, spare, cause, nbytes)
            and self.make_share_of(tier, spare, storage.account, cause, nbytes)
        )

    def evict_to(self, below: DeviceState, copy: Copy, storage: Storage, cause: Cause, why: str) -> Instruction:
        """Plan the transfer of the only copy of a value to a tier that has room for it."""
        device = copy.device
        target = self.new_copy(below, storage.nbytes, storage.version)
        storage.copies[below] = target
        count(target, storage.account)
        below.candidates[target] = storage
        raw = bytes_of(storage, below)
        kept = len(self.scheduler.bound)
        self.scheduler.bound += (copy, target)
        source = Binding(copy, raw, 0, None)
        transfer = self.transfers.plan(source, Binding(target, raw, 0, None), storage, cause, why)
        self.admit(transfer)
        del self.scheduler.bound[kept:]
        storage.evicted = device
        add_to(device.evicted, storage.nbytes)
        return transfer


def refuse(instruction: Instruction) -> None:
    """An instruction can never have its memory: it fails, or is doomed already. The plan has nothing for it, so that
    nobody else finds the device full meanwhile."""
    for copy in instruction.reads:
        inherit_poison(instruction, copy)
    new = new_copies(instruction)
    if instruction.error is None:
        made = sum([copy.nbytes for copy in new])
        beside = need_alone(instruction) - scratch_of(instruction) - made
        instruction.error = instruction.describe(too_large(instruction, made, beside))
        instruction.origin = True
    for copy in new:
        leave_plan(copy)


def release_nothing(device: DeviceState, need: int) -> None:
    """What ended sessions hold, as long as nobody ends any."""


def bytes_of(storage: Storage, home: DeviceState) -> Tensor:
    """All bytes of a storage as a tensor that is none of its sharers."""
    return Tensor(Meta.of((storage.nbytes,), "uint8"), storage, home)
