"""The store: the tier below the host, on disk. It is a device with memory and streams that runs no kernels.

The store's memory is blocks of one file (`spill`), of which at most `limit` bytes are used. Without a directory the
store has no memory. Values are planned and counted in whole pages of the disk (docs/decisions/0043). Parts of users'
files (`stored.LoadedStretch`) are buffers of the store, too, but do not count as its memory.

    write0          evictions from the host
    save0           saves by users, and checkpoints
    read0, read1    values on their way to the host

A transfer between the store and a device other than the host runs on that device's stream, through a few MiB of host
memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final

import numpy as np
from numpy.typing import NDArray

from ...interpreter.errors import MetadataError
from ...interpreter.schema.opdef import Array
from ...interpreter.types.meta import Meta
from ..device import Buffer, Device
from ..faults import Fault
from ..host.host import HostDevice
from ..options import CEILING, FAULTS, Option, ceiling_of, parse_size, seconds
from ..stream import Sink, StreamKind
from ..threads.worker import WorkerStream
from .spill import SpillFile, whole_pages
from .stored import StoredArray, read_into

NAME: Final = "store:0"
READERS: Final = 2
FREED_FRACTION: Final = 8  # of the quota: the largest part that freed blocks may keep
MAX_FREED_BYTES: Final = 256 << 20  # bytes of freed blocks that keep their disk space


def _directory(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"must be the path of a directory, not {value!r}")
    return value


DIRECTORY: Final = Option(
    "path, or none", _directory, "the directory for values evicted from the host; its contents end with the daemon"
)
QUOTA: Final = Option(
    "bytes",
    parse_size,
    "the disk space for evicted values; a value takes whole pages of 4 KiB; 0: nothing is evicted to the store",
)
DURABLE: Final = Option("path, or none", _directory, "the directory of checkpoints in which durable names are kept")
INTERVAL: Final = seconds("how often changed durable names are written automatically; 0: only on request")


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Options of the store."""

    directory: Annotated[str, DIRECTORY] = ""
    quota: Annotated[int, QUOTA] = 0
    ceiling: Annotated[int | str, CEILING] = 0
    durable: Annotated[str, DURABLE] = ""
    interval: Annotated[float, INTERVAL] = 0.0
    faults: Annotated[tuple[Fault, ...], FAULTS] = ()


class StoreDevice(HostDevice):
    """The store. `readers`: the streams that bring values to the host."""

    def __init__(self, name: str, sink: Sink, options: StoreOptions | None = None) -> None:
        self.options = options = options or StoreOptions()
        if bool(options.directory) is not bool(options.quota):
            raise MetadataError(f"device {name!r} needs both a directory and a quota, or neither")
        if options.ceiling and not options.quota:
            raise MetadataError(f"device {name!r} has a ceiling and no quota of which a session could have a part")
        if options.interval and not options.durable:
            raise MetadataError(f"device {name!r} has an interval and no directory of durable names (durable)")
        super().__init__(
            name, options.quota, (), min(MAX_FREED_BYTES, options.quota // FREED_FRACTION), late_errors=False
        )
        self.segments = False
        self.computes = False
        self.ceiling = ceiling_of(options.ceiling, self.limit)
        self.closing: list[Callable[[], None]] = []  # called when the store's threads have ended
        self.file = SpillFile(options.directory, self.limit) if self.limit else None
        self.readers = [self._stream(StreamKind.READ, n, sink) for n in range(READERS)]
        writers = {kind: self._stream(kind, 0, sink) for kind in (StreamKind.WRITE, StreamKind.SAVE)}
        self.set_streams(self.readers, writers)
        for fault in options.faults:
            self.inject(fault)

    def _stream(self, kind: StreamKind, index: int, sink: Sink) -> WorkerStream:
        return WorkerStream(self.name, kind, index, sink, self.faults, may_inline=False)

    def copy_stream(self, kind: StreamKind) -> WorkerStream:
        if kind in self._copies:
            return self._copies[kind]
        # one message may bring hundreds of reads at once, so equally loaded streams take turns
        stream = min(self.readers, key=lambda stream: stream.queued)
        self.readers.remove(stream)
        self.readers.append(stream)
        return stream

    def reaches(self, other: Device) -> bool:
        return other.host

    def footprint(self, nbytes: int) -> int:
        return whole_pages(nbytes)

    def _capacity(self, nbytes: int) -> int:
        return whole_pages(nbytes)

    def new_memory(self, nbytes: int) -> Any:
        if self.file is None:
            raise MemoryError("the store has no directory")
        return self.file.block(nbytes)

    def adopt(self, array: Array) -> Buffer | None:  # noqa: ARG002 - never called
        raise AssertionError("no kernel makes a result in the store")

    def bind(self, buffer: Buffer, meta: Meta) -> Array:
        return StoredArray(buffer.raw, meta)

    def bind_view(self, buffer: Buffer, meta: Meta, offset: int, strides: tuple[int, ...]) -> Array:
        return StoredArray(buffer.raw, meta, offset, strides)

    def copy_in(self, target: Array, source: NDArray[np.generic]) -> None:  # noqa: ARG002 - never called
        raise AssertionError("values reach the store from their device's stream")

    def copy_out(self, source: Array, target: NDArray[np.generic]) -> None:
        read_into(source, target)

    def peer_copy(self, target: Array, source: Array) -> None:  # noqa: ARG002 - never called
        raise AssertionError("no device is a peer of the store")

    def close(self, timeout: float) -> bool:
        ended = super().close(timeout)
        if self.file is not None and ended:
            self.file.close()
        while self.closing and ended:
            self.closing.pop()()
        return ended
