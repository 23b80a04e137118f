"""What a session is charged for: the memory of the storages that it made.

Memory is charged by storages: to the session that made one, from its admission (or from when data have decided its
size) until the storage is released, whatever session holds it by then. A session that ends leaves its account behind,
in the storages that others still hold, and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...interpreter.errors import QuotaError
from ...interpreter.wire.limits import Limits

if TYPE_CHECKING:
    from .session import VmSession
    from .tensor import Storage


class Account:
    """What a session is charged for. Nothing but numbers, since storages and names keep it alive."""

    __slots__ = ("bytes", "limit", "names", "tensors")

    def __init__(self, limits: Limits) -> None:
        self.bytes = 0  # of the storages that it made
        self.names = 0  # that it published
        self.limit = limits.bytes
        self.tensors = limits.tensors


def charge(session: VmSession, storage: Storage) -> None:
    """The session made the storage, unless it is charged for already."""
    if storage.account is None:
        storage.account = session.account
        if storage.nbytes > 0:
            session.account.bytes += storage.nbytes


def credit(storage: Storage) -> None:
    """The storage is released, or has no memory any more."""
    account, storage.account = storage.account, None
    if account is not None and storage.nbytes > 0:
        account.bytes -= storage.nbytes


def check_bytes(session: VmSession, nbytes: int) -> None:
    """QuotaError if the session may not make storages of so many bytes more."""
    account = session.account
    if account.bytes + nbytes > account.limit:
        raise QuotaError(
            f"{nbytes} bytes more are over the session's quota: it has made {account.bytes} of {account.limit} bytes "
            "that are still held; release tensors, or raise the quota (bytes)"
        )
