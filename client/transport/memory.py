"""The memory in which a session and its daemon pass arrays to each other without a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import MetadataError
from ...interpreter.types.meta import Meta
from ...interpreter.wire.frames import MAPPED_ARRAY
from ...interpreter.wire.host_memory import HostMemory
from .gpus import number_of
from .host_readers import array_in_place
from .segments import MappedResults, UploadSegments


class DaemonMemory:
    """Upload segments, mapped results, and GPUs that the daemon of the process `pid` and this process share.

    `uploads` and `mapped` are None if the daemon and this process share no memory.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.pid = int(settings["pid"])
        shared = bool(settings["shared"])
        most = (int(settings["segments"]), int(settings["mapped"]))
        self.uploads = UploadSegments(most=most) if shared else None
        self.mapped = MappedResults(self.pid, ignore) if shared else None
        self._release: Callable[[int], None] = ignore
        self._frame = int(settings["frame"])
        self._gpus: dict[str, str] = dict(settings.get("gpus", {}))  # devices, by their bus ids
        self._numbers: dict[str, int | None] = {}

    # -- uploads ---------------------------------------------------------------------------------------------------

    def new_array(self, meta: Meta) -> NDArray[Any]:
        """An array for one upload; a large one lies in an upload segment, which the daemon uses as it is."""
        if meta.nbytes < MAPPED_ARRAY:
            return np.empty(meta.shape, meta.dtype)
        array = None if self.uploads is None else self.uploads.empty(meta.shape, meta.dtype)
        if array is not None:
            return array
        if meta.nbytes > self._frame:
            raise MetadataError(
                f"asarray: {meta.nbytes} bytes do not fit in a frame of {self._frame}; upload them in parts, or "
                "raise the daemon's limit (frame)",
                op="asarray",
            )
        return np.empty(meta.shape, meta.dtype)

    def host_memory(self, nbytes: int) -> HostMemory | None:
        """Memory for a host array: an upload segment, which the daemon reads in place."""
        return None if self.uploads is None else self.uploads.host(nbytes)

    def lend(self, values: Any, dtype: Any) -> tuple[Meta, NDArray[Any]] | None:
        return None if self.uploads is None else array_in_place(values, dtype, self.uploads.lender)

    def freed(self, numbers: Iterable[int]) -> None:
        """Take back upload segments that the daemon has freed."""
        if self.uploads is not None:
            self.uploads.freed(numbers)

    # -- results ---------------------------------------------------------------------------------------------------

    def release(self, export: int) -> None:
        """Release an export whose array is no longer used. Called anywhere, inside any lock."""
        self._release(export)

    def release_exports_with(self, release: Callable[[int], None]) -> None:
        self._release = release
        if self.mapped is not None:
            self.mapped.gone = release

    # -- GPUs ------------------------------------------------------------------------------------------------------

    def gpu(self, device: str) -> int | None:
        """The number here of a GPU on which the daemon gives this process blocks; None if there is none."""
        bus_id = self._gpus.get(device)
        if bus_id is not None and device not in self._numbers:
            self._numbers[device] = number_of(bus_id)
        return self._numbers.get(device)

    def give_up_gpus(self) -> None:
        """Note that the daemon's blocks cannot be opened here: values go through the host from now on."""
        self._gpus.clear()
        self._numbers.clear()

    # -- the end ---------------------------------------------------------------------------------------------------

    def forget_results(self) -> None:
        """Forget the mapped results; arrays over them keep theirs."""
        if self.mapped is not None:
            self.mapped.close()

    def close(self) -> None:
        """Forget the upload segments, and release no more exports: the connection is over."""
        if self.uploads is not None:
            self.uploads.close()
        self._release = ignore


def ignore(_what: Any) -> None:
    """Do nothing, in place of a callback."""
