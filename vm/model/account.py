"""A session's account: it is charged for the memory of the storages that the session made.

Memory is charged by storages: to the session that made the storage, from its admission (or from when its size is known,
if that depends on data) until the storage is released, even if only other sessions hold it by then. The account of an
ended session lives on in the storages that others still hold.

Where a device has a ceiling, an account also has a *share* of it: the bytes that the plan counts for current copies of
those storages there, of single views too, whoever had them brought there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...interpreter.errors import QuotaError
from ...interpreter.types.sizes import exact_size
from ...interpreter.wire.limits import Limits

if TYPE_CHECKING:
    from .device_state import DeviceState
    from .session import VmSession
    from .tensor import Copy, Storage


class Account:
    """The charges of a session. Only numbers, since storages and names keep the account alive.

    `shares`: its bytes on each device that has a ceiling.
    `highest`: the most that `bytes` was when it fell; noted there, since it grows on the path of most ops.
    """

    __slots__ = ("bytes", "highest", "limit", "names", "session", "shares", "steps", "tensors")

    def __init__(self, limits: Limits, session: int = 0) -> None:
        self.session = session  # its id
        self.bytes = 0  # of the storages that the session made
        self.highest = 0
        self.shares: dict[DeviceState, int] = {}
        self.names = 0  # that the session published
        self.steps = 0  # of the routines among them
        self.limit = limits.bytes
        self.tensors = limits.tensors

    @property
    def peak(self) -> int:
        """The most bytes that the session's storages ever had."""
        return max(self.highest, self.bytes)


def charge(session: VmSession, storage: Storage) -> None:
    """Charge the storage to the session, unless it is charged already."""
    if storage.account is None:
        storage.account = session.account
        if storage.nbytes > 0:
            session.account.bytes += storage.nbytes
        for copy in storage.copies.values():
            if copy.device.ceiling:
                count(copy, session.account)
        for copy in (storage.views or {}).values():
            count(copy, session.account)


def credit(storage: Storage) -> None:
    """Credit a storage that is released, or has no memory any more."""
    account = storage.account
    if account is not None:
        storage.account = None
        if storage.nbytes > 0:
            account.highest = max(account.highest, account.bytes)
            account.bytes -= storage.nbytes
        if account.shares:
            for copy in storage.current():
                uncount(copy)


def count(copy: Copy, account: Account | None) -> None:
    """Count a current copy in the account's share of its device, if there are shares and the size is known."""
    device = copy.device
    if device.ceiling and account is not None and copy.current and copy.nbytes > 0 and copy.counted is None:
        copy.counted = account
        account.shares[device] = account.shares.get(device, 0) + copy.nbytes


def uncount(copy: Copy) -> None:
    """The plan counts the copy no more; called before its size changes."""
    account, copy.counted = copy.counted, None
    if account is not None:
        account.shares[copy.device] -= copy.nbytes


def has_share(account: Account | None, device: DeviceState, nbytes: int) -> bool:
    """Are that many bytes more within the account's share of a device?"""
    return not device.ceiling or account is None or account.shares.get(device, 0) + nbytes <= device.ceiling


def check_share(account: Account, device: DeviceState, nbytes: int, leaving: int = 0, why: str = "") -> None:
    """QuotaError if that many bytes more are not within the account's share of a device, once so many are `leaving`.
    `why`: none else may leave, as a clause."""
    if nbytes > 0 and not has_share(account, device, nbytes - leaving):
        stays = account.shares.get(device, 0) - leaving
        raise QuotaError(
            f"{exact_size(nbytes)} more on {device.name} are over the session's share: of "
            f"{exact_size(device.ceiling)} it has {exact_size(stays)} there that cannot leave now{why}; release or "
            "unpin tensors, or raise the device's option ceiling"
        )


def check_bytes(session: VmSession, nbytes: int) -> None:
    """QuotaError if storages of that many more bytes exceed the session's quota."""
    account = session.account
    if account.bytes + nbytes > account.limit:
        raise QuotaError(
            f"{exact_size(nbytes)} more are over the session's quota: of {exact_size(account.limit)} it has made "
            f"{exact_size(account.bytes)} that are still held; release tensors, or raise the quota (bytes)"
        )
