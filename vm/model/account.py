"""A session's account, which counts the memory of the storages that the session has made.

A storage is charged to the session that made it, from its admission (or from the time when its size is known, if the
size depends on data) until the storage is released, even if only other sessions hold the storage by then. The account
of a closed session lives on in the storages that others still hold.

On a device with a ceiling, an account also has a *share*: the planned bytes of current copies of these storages there,
copies of single views included, no matter which session caused the copies.

`charges` has the functions that change an account.
"""

from __future__ import annotations

from ...interpreter.wire.limits import Limits
from .device_state import DeviceState


class Account:
    """The charges of a session. Only numbers, since storages and names keep the account alive.

    `shares`: bytes on each device with a ceiling. `highest`: the highest `bytes` before a decrease; increases do not
    update it, since they are on the path of most ops.
    """

    __slots__ = ("bytes", "highest", "limit", "names", "session", "shares", "steps", "tensors")

    def __init__(self, limits: Limits, session: int = 0) -> None:
        self.session = session  # its id
        self.bytes = 0  # of the session's storages
        self.highest = 0
        self.shares: dict[DeviceState, int] = {}
        self.names = 0  # names that the session has published
        self.steps = 0  # steps of published routines
        self.limit = limits.bytes
        self.tensors = limits.tensors

    @property
    def peak(self) -> int:
        """The most bytes that the session's storages ever had."""
        return max(self.highest, self.bytes)
