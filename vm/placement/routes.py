"""Routes: from which copy of a value data go to a device, and which way."""

from __future__ import annotations

from ...interpreter.errors import MetadataError
from ..model.device_state import DeviceState
from ..model.tensor import Copy, Storage


class Routes:
    """The ways between the tiers of a machine. `host`: where data stop over between devices without peer access;
    `store`: where the values of files lie, and what has left the host."""

    def __init__(self, host: DeviceState | None, store: DeviceState | None) -> None:
        self.host = host
        self.store = store

    def source(self, storage: Storage, device: DeviceState) -> Copy:
        """The copy to transfer from: rather one that reaches the device directly, then one that is in memory, then a
        valid one, then the host's.

        All that reach it directly take one transfer. The host's leaves the peer's copy stream and memory alone.
        """
        best, best_rank = None, (True, True, True, True)
        for copy in storage.copies.values():
            rank = (
                self.stopover(copy.device, device) is not None,
                copy.device is self.store,
                copy.writer is not None or copy.poison is not None,
                copy.device is not self.host,
            )
            if best is None or rank < best_rank:
                best, best_rank = copy, rank
        if best is None:
            raise AssertionError("a storage has at least one current copy")
        return best

    def stopover(self, source: DeviceState, target: DeviceState) -> DeviceState | None:
        """The host device, if data cannot go from source to target directly."""
        if source.backend.host or target.backend.host or target.backend.reaches(source.backend):
            return None
        if self.store in {source, target}:
            return None
        if self.host is None:
            raise MetadataError(f"{target.name} cannot reach {source.name}, and there is no cpu device to go through")
        return self.host

    def host_first(self, source: Copy, device: DeviceState) -> DeviceState | None:
        """The host device, if the copy lies in a file in such a way that it cannot be read in pieces."""
        if source.device is not self.store or device is self.host or is_in_pieces(source):
            return None
        return self.host


def is_in_pieces(stored: Copy) -> bool:
    """Can a copy in the store be read piece by piece, in any order?"""
    return stored.buffer is None or bool(stored.buffer.raw.is_direct)
