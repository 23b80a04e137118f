"""Routes: the copy from which a transfer to a device starts, and the device through which it goes, if any.

Two devices without direct access to each other exchange values through the host. A value in a file that cannot be read
piece by piece is read to the host first.
"""

from __future__ import annotations

from ...interpreter.errors import MetadataError
from ..model.device_state import DeviceState
from ..model.tensor import Copy, Storage


class Routes:
    """The routes between the devices of a machine.

    `host`: the intermediate device of transfers between devices without peer access; `store`: the device of values in
    files, and of values evicted from the host.
    """

    def __init__(self, host: DeviceState | None, store: DeviceState | None) -> None:
        self.host = host
        self.store = store

    def source(self, storage: Storage, device: DeviceState) -> Copy:
        """The copy to transfer from, in order of preference: one that reaches the device directly, one in memory, a
        finished and healthy one, the host's.

        A direct route needs one transfer. The host's copy does not occupy a peer's copy stream and memory.
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
        """The host device, if data cannot go from source to target directly; MetadataError if there is no host."""
        if source.backend.host or target.backend.host or target.backend.reaches(source.backend):
            return None
        if self.store in {source, target}:
            return None
        if self.host is None:
            raise MetadataError(f"{target.name} cannot reach {source.name}, and there is no cpu device to go through")
        return self.host

    def host_first(self, source: Copy, device: DeviceState) -> DeviceState | None:
        """The host device, if the copy lies in a file and cannot be read in pieces, else None."""
        if source.device is not self.store or device is self.host or is_in_pieces(source):
            return None
        return self.host


def is_in_pieces(stored: Copy) -> bool:
    """Whether a copy in the store can be read piece by piece, in any order."""
    return stored.buffer is None or bool(stored.buffer.raw.is_direct)
