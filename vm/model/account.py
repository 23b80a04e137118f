"""A session's account: it is charged for the memory of the storages that the session made.

Memory is charged by storages: to the session that made the storage, from its admission (or from when its size is known,
if that depends on data) until the storage is released, even if only other sessions hold it by then. The account of an
ended session lives on in the storages that others still hold.

Where a device has a ceiling, an account also has a *share* of it: the bytes that the plan counts for current copies of
those storages there, of single views too, whichever session had them brought there.

`charges` charges it.
"""

from __future__ import annotations

from ...interpreter.wire.limits import Limits
from .device_state import DeviceState


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
