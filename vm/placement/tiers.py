"""Tiers: whether there is room on a device for a value, and its transfer to a tier below where there is none.

Each asks the scheduler to let others leave first: until the value fits the plan, and its session's share of a device
that has a ceiling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...interpreter.types.meta import Meta
from ..memory.kept import full_below
from ..memory.ledger import undecided
from ..model.charges import check_share, count
from ..model.device_state import DeviceState, add_to
from ..model.instruction import Instruction
from ..model.session import Cause
from ..model.tensor import Binding, Copy, Storage, Tensor
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

    def find_room(self, tier: DeviceState, storage: Storage, nbytes: int, cause: Cause) -> bool:
        """Let values leave a tier until so many bytes of a storage fit there, and within its session's share."""
        scheduler, account = self.scheduler, storage.account or cause.session.account
        spare = {*storage.current(), *scheduler.bound}
        return scheduler.make_room(tier, spare, cause, nbytes) and scheduler.make_share(
            tier, spare, account, cause, nbytes
        )

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
        there = self.scheduler.make_share(device, spare, account, cause, max(nbytes, 0))
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
            and scheduler.make_room(tier, spare, cause, nbytes)
            and scheduler.make_share(tier, spare, storage.account, cause, nbytes)
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
        del self.scheduler.bound[kept:]
        storage.evicted = device
        add_to(device.evicted, storage.nbytes)
        return transfer


def bytes_of(storage: Storage, home: DeviceState) -> Tensor:
    """All bytes of a storage as a tensor that is none of its sharers."""
    return Tensor(Meta.of((storage.nbytes,), "uint8"), storage, home)
