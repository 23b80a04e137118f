"""Charging storages and copies to accounts, and checking accounts against quotas and shares.

A storage is charged to at most one account, and a copy counts in at most one share. Only this file changes the bytes of
an account, and `memory.recycling`, which contains the rules for small results inline.
"""

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


def charge_late(storage: Storage, nbytes: int) -> None:
    """Set the size of a storage whose size depended on data, and charge the storage's account."""
    storage.nbytes = nbytes
    if storage.account is not None:
        storage.account.bytes += nbytes


def credit(storage: Storage) -> None:
    """Stop charging a storage that is released, or that has lost its memory."""
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
    """Stop counting a copy in a share; must be called before the copy's size changes."""
    account, copy.counted = copy.counted, None
    if account is not None:
        account.shares[copy.device] -= copy.nbytes


def has_share(account: Account | None, device: DeviceState, nbytes: int) -> bool:
    """Whether `nbytes` more are within the account's share of a device."""
    return not device.ceiling or account is None or account.shares.get(device, 0) + nbytes <= device.ceiling


def check_share(account: Account, device: DeviceState, nbytes: int, leaving: int = 0, why: str = "") -> None:
    """QuotaError if `nbytes` more exceed the account's share of a device.

    `leaving`: bytes of the share that are being evicted; `why`: a clause that says why no more can be evicted.
    """
    if nbytes > 0 and not has_share(account, device, nbytes - leaving):
        stays = account.shares.get(device, 0) - leaving
        raise QuotaError(
            f"{exact_size(nbytes)} more on {device.name} exceed the session's share: of "
            f"{exact_size(device.ceiling)} it has {exact_size(stays)} there that cannot be evicted now{why}; release "
            "or unpin tensors, or raise the device's option ceiling"
        )


def check_bytes(session: VmSession, nbytes: int) -> None:
    """QuotaError if storages of `nbytes` more exceed the session's quota."""
    account = session.account
    if account.bytes + nbytes > account.limit:
        raise QuotaError(
            f"{exact_size(nbytes)} more exceed the session's quota: of {exact_size(account.limit)} its tensors "
            f"still hold {exact_size(account.bytes)}; release tensors, or raise the quota (bytes)"
        )
