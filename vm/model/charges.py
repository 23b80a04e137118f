"""Charges: which storages and copies count for an account, and what it may still have."""

from __future__ import annotations

from ...interpreter.errors import QuotaError
from ...interpreter.types.sizes import exact_size
from .account import Account
from .device_state import DeviceState
from .session import VmSession
from .tensor import Copy, Storage


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
