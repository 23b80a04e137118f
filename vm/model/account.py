"""A session's account: it is charged for the memory of the storages that the session made.

Memory is charged by storages: to the session that made the storage, from its admission (or from when its size is known,
if that depends on data) until the storage is released, even if only other sessions hold it by then. The account of an
ended session lives on in the storages that others still hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...interpreter.errors import QuotaError
from ...interpreter.types.sizes import exact_size
from ...interpreter.wire.limits import Limits

if TYPE_CHECKING:
    from .session import VmSession
    from .tensor import Storage


class Account:
    """The charges of a session. Only numbers, since storages and names keep the account alive.

    `highest`: the most that `bytes` was when it fell; noted there, since it grows on the path of most ops.
    """

    __slots__ = ("bytes", "highest", "limit", "names", "session", "steps", "tensors")

    def __init__(self, limits: Limits, session: int = 0) -> None:
        self.session = session  # its id
        self.bytes = 0  # of the storages that the session made
        self.highest = 0
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


def credit(storage: Storage) -> None:
    """Credit a storage that is released, or has no memory any more."""
    account = storage.account
    if account is not None:
        storage.account = None
        if storage.nbytes > 0:
            account.highest = max(account.highest, account.bytes)
            account.bytes -= storage.nbytes


def check_bytes(session: VmSession, nbytes: int) -> None:
    """QuotaError if storages of that many more bytes exceed the session's quota."""
    account = session.account
    if account.bytes + nbytes > account.limit:
        raise QuotaError(
            f"{exact_size(nbytes)} more are over the session's quota: of {exact_size(account.limit)} it has made "
            f"{exact_size(account.bytes)} that are still held; release tensors, or raise the quota (bytes)"
        )
