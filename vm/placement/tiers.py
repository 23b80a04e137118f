"""Tiers: making room on a device for a value, by evicting other values to tiers below (from a GPU to the host, from the
host to the store).

There are two limits. A device's *plan*, the bytes that all admitted instructions will have in use, has to stay within
the device's memory (`make_room`). On a device with a ceiling, a session's *share* of the plan has to stay within that
ceiling, and only the session's own values are evicted for it (`make_share`, `require_share`, `make_share_of`).

`memory.making_room.leaving` chooses the victims; their transfers are planned here and admitted before the instruction
that needs the room. A transfer needs room on the tier below, so making room is recursive: `admit` -> `make_room` ->
`evict` -> `make_room_below` -> `make_room` on that tier, and `evict_to` -> `admit`. Each tier has fewer below, so the
recursion ends; `refusals` keeps a search in full tiers from being repeated. All methods that return False may have
evicted values nevertheless.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from ...interpreter.types.meta import Meta
from ..memory.ledger import undecided
from ..memory.making_room import RoomRequest, gather, leaving
from ..memory.planning import give_up_bytes
from ..memory.refusals import RefusedQuestions, question_of
from ..memory.replicas import add_copy
from ..memory.reservation import need_alone, new_copies, scratch_of, too_large
from ..memory.shortage import full_below
from ..model.account import Account
from ..model.charges import check_share, has_share
from ..model.device_state import DeviceState, add_to
from ..model.instruction import Instruction
from ..model.reason import EVICT
from ..model.session import Cause
from ..model.tensor import Binding, Copy, Storage, VmTensor
from ..scheduler.errors import inherit_poison
from ..scheduler.scheduler import Scheduler
from .releasing import Releasing
from .transfers import Transfers


class Tiers:
    """Makes room on the tiers of a machine. `new_copy`: makes a copy on a device, with these bytes and version.

    `spare`: copies that must stay on their device, since the request is about them. `cause`: the session and line for
    which room is needed.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        transfers: Transfers,
        releasing: Releasing,
        new_copy: Callable[[DeviceState, int, int], Copy],
    ) -> None:
        self.scheduler = scheduler
        self.transfers = transfers
        self.releasing = releasing
        self.new_copy = new_copy
        self.refusals = RefusedQuestions()

    def admit(self, instruction: Instruction) -> None:
        """Admit an instruction that may make memory, after the evictions that make room for it."""
        device, plan = instruction.device, instruction.plan
        beside = instruction.beside if plan is None else plan.scratch + plan.max_bytes
        if device.planned + beside > device.backend.limit:
            self._plan_room(instruction, beside)
        self.scheduler.admit(instruction)

    def _plan_room(self, instruction: Instruction, beside: int) -> None:
        """Make room for an instruction whose device's plan exceeds the limit, if the instruction makes any memory."""
        device = instruction.device
        if not beside and all(binding.copy.buffer is not None for binding in instruction.outputs):
            return
        if need_alone(instruction) > device.backend.limit:
            refuse(instruction)
            return
        spare = {*instruction.reads, *instruction.writes, *self.scheduler.bound}
        self.make_room(device, spare, Cause(instruction.author, instruction.location), beside)

    def make_room(self, device: DeviceState, spare: Collection[Copy], cause: Cause, need: int = 0) -> bool:
        """Drop or evict copies from a device, except `spare`, until `need` more bytes fit; False if they cannot.

        The values of closed sessions on the device are released first, since a serial run has released them already.
        """
        over = device.planned + need > device.backend.limit
        if need > device.backend.limit:
            return False  # evictions would not help
        if device.leaving and over:
            self.releasing.catch_up(device, need)
            self.refusals.known.clear()  # pins may have ended
            over = device.planned + need > device.backend.limit
        if not over:
            return True
        if not device.short and device.tiers:
            gather(device, self.scheduler.storages())
        return self._evict_until_fits(RoomRequest(device, spare, cause.session.account, need), cause)

    def make_share_of(
        self, device: DeviceState, spare: Collection[Copy], account: Account | None, cause: Cause, need: int
    ) -> bool:
        """Drop or evict an account's own copies from a device with a ceiling, except `spare`, until `need` more bytes
        are within the account's share; False if they cannot be."""
        if not device.ceiling or has_share(account, device, need):
            return True
        if not device.short and device.tiers:
            gather(device, self.scheduler.storages())
        return self._evict_until_fits(RoomRequest(device, spare, account, need, own=True), cause)

    def _evict_until_fits(self, room: RoomRequest, cause: Cause) -> bool:
        """Drop or evict copies until the request fits; False if it cannot, or if the same request has just failed."""
        refusals, bound = self.refusals, self.scheduler.bound
        with refusals:
            question = question_of(room, cause.session, bound) if refusals.failed else None
            if question in refusals.known:
                return False
            for copy, storage in leaving(room):
                self.evict(cause, copy, storage, EVICT, copy.device.tiers)
            if room.fits():
                return True
            refusals.failed = True
            if question is not None and question_of(room, cause.session, bound) == question:
                refusals.known.add(question)
        return False

    def make_room_and_share(self, tier: DeviceState, storage: Storage, nbytes: int, cause: Cause) -> bool:
        """Make room on a tier, and in the share of the storage's session, for `nbytes`; False if it cannot be made."""
        scheduler, account = self.scheduler, storage.account or cause.session.account
        spare = {*storage.current(), *scheduler.bound}
        return self.make_room(tier, spare, cause, nbytes) and self.make_share_of(tier, spare, account, cause, nbytes)

    def require_share(self, storage: Storage | None, device: DeviceState, nbytes: int, cause: Cause) -> None:
        """`make_share`, or QuotaError if it fails, unless results of unknown size may turn out small enough."""
        if not self.make_share(storage, device, nbytes, cause):
            account = cause.session.account
            check_share(account, device, nbytes, undecided(account, device), full_below(device, account, nbytes))

    def make_share(self, storage: Storage | None, device: DeviceState, nbytes: int, cause: Cause) -> bool:
        """Make room for `nbytes` in a session's share of a device with a ceiling.

        The share is that of the storage's session, or that of the requesting session if there is no storage. False only
        if the requesting session's own share has no room: the share of another session does not limit the request, and
        no share limits the transfers of the machine, which are temporary.
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
        """Plan the eviction of a value's only copy to the first of the `tiers` with room; None if no tier has room.

        `cause`: the session that needs the room on the copy's device.
        """
        for tier in tiers:
            if self.make_room_below(tier, copy, storage, cause):
                return self.evict_to(tier, copy, storage, cause, why)
        return None

    def make_room_below(self, tier: DeviceState, copy: Copy, storage: Storage, cause: Cause) -> bool:
        """Make room on a tier for a copy that will be evicted to it; False if that tier cannot take the copy."""
        scheduler, nbytes = self.scheduler, tier.backend.footprint(storage.nbytes)
        spare = {copy, *scheduler.bound}
        return (
            tier.backend.lost is None
            and nbytes <= tier.backend.limit  # otherwise evictions would not help
            and self.make_room(tier, spare, cause, nbytes)
            and self.make_share_of(tier, spare, storage.account, cause, nbytes)
        )

    def evict_to(self, below: DeviceState, copy: Copy, storage: Storage, cause: Cause, why: str) -> Instruction:
        """Plan the eviction of a value's only copy to a tier that has room for it."""
        device = copy.device
        target = self.new_copy(below, storage.nbytes, storage.version)
        add_copy(target, storage)
        raw = bytes_of(storage, below)
        bound_before = len(self.scheduler.bound)
        self.scheduler.bound += (copy, target)
        source = Binding(copy, raw, 0, None)
        transfer = self.transfers.plan(source, Binding(target, raw, 0, None), storage, cause, why)
        self.admit(transfer)
        del self.scheduler.bound[bound_before:]
        storage.evicted = device
        add_to(device.eviction.evicted, storage.nbytes)
        return transfer


def refuse(instruction: Instruction) -> None:
    """Fail an instruction that needs more memory than its device has, unless it is doomed already.

    Its copies leave the plan, so that other instructions do not find the device full.
    """
    for copy in instruction.reads:
        inherit_poison(instruction, copy)
    new = new_copies(instruction)
    if instruction.error is None:
        made = sum([copy.nbytes for copy in new])
        beside = need_alone(instruction) - scratch_of(instruction) - made
        instruction.error = instruction.describe(too_large(instruction, made, beside))
        instruction.origin = True
    for copy in new:
        give_up_bytes(copy)


def bytes_of(storage: Storage, home: DeviceState) -> VmTensor:
    """All bytes of a storage, as a tensor that does not count as a sharer."""
    return VmTensor(Meta.of((storage.nbytes,), "uint8"), storage, home)
