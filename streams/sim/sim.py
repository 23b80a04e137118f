"""A simulated accelerator: a device for tests on machines without one.

Its memory is host memory that the host does not access: only transfers move bytes in and out, and they refuse arrays in
the wrong memory. Its streams are asynchronous, in order, and order each other by events. Delays can be configured: a
transfer of n bytes takes `latency + n / bandwidth`, an op at least `compute_delay`, and at least its element operations
over `compute_rate`. The same holds for each op of a segment: a segment takes as long as its ops one by one. A task that
was cancelled before it started takes no time.

The type of the array at the bottom of a chain of views, `SimMemory`, identifies the device's memory. Kernels see plain
NumPy arrays over that memory, so the distinction costs them nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray

from ...interpreter.schema.opdef import Array
from ..device import Buffer, Device, Eviction
from ..faults import Fault
from ..host.host import GIB, HostDevice, Memory
from ..options import (
    BANDWIDTH,
    CACHE,
    CEILING,
    COMPUTE_STREAMS,
    EVICTION,
    FAULTS,
    FLOOR,
    LATE_ERRORS,
    LAUNCH_BLOCKING,
    MEMORY,
    MISSING_OPS,
    PEER,
    ceiling_of,
    flag,
    rate,
    seconds,
)
from ..stream import Sink, StreamKind
from ..threads.worker import TaskPace, WorkerStream

LATENCY: Final = seconds("of one transfer")
LAUNCHES: Final = flag(
    "ops are launched at admission and computed when a call waits, as on a GPU; freed memory is poisoned in the order "
    "of the stream, and a late failure loses the device; nothing runs inline"
)
COMPUTE_DELAY: Final = seconds("the least time that an op takes")
COMPUTE_RATE: Final = rate(
    "element operations per second",
    "the rate of an op: it takes at least its number of operations divided by this rate; 0: no limit",
)
INLINE: Final = flag(
    "small ops may run on the thread that submits them; never where time is added, nor while a fault is armed"
)


@dataclass(frozen=True, slots=True)
class SimOptions:
    """Options of a sim device."""

    memory: Annotated[int, MEMORY] = GIB
    cache: Annotated[int, CACHE] = GIB // 4
    eviction: Annotated[Eviction, EVICTION] = Eviction.COST
    floor: Annotated[int, FLOOR] = 0
    ceiling: Annotated[int | str, CEILING] = 0
    compute_streams: Annotated[int, COMPUTE_STREAMS] = 1
    missing: Annotated[frozenset[str], MISSING_OPS] = frozenset()
    bandwidth: Annotated[float, BANDWIDTH] = 0.0
    latency: Annotated[float, LATENCY] = 0.0
    compute_delay: Annotated[float, COMPUTE_DELAY] = 0.0
    compute_rate: Annotated[float, COMPUTE_RATE] = 0.0
    peer: Annotated[bool, PEER] = True
    inline: Annotated[bool, INLINE] = True
    launches: Annotated[bool, LAUNCHES] = False
    launch_blocking: Annotated[bool, LAUNCH_BLOCKING] = False
    late_errors: Annotated[bool, LATE_ERRORS] = False
    faults: Annotated[tuple[Fault, ...], FAULTS] = ()

    def pace(self, kind: StreamKind) -> TaskPace:
        """The least time that tasks on a stream of that kind take."""
        if kind is StreamKind.COMPUTE:
            return TaskPace(self.compute_delay, 0.0, 1 / self.compute_rate if self.compute_rate else 0.0)
        return TaskPace(self.latency, 1 / self.bandwidth if self.bandwidth else 0.0, 0.0)


class SimMemory(np.ndarray[tuple[int], np.dtype[np.uint8]]):
    """A block of a sim device's memory; `owner` is the device's name."""

    owner: str = ""


class SimDevice(HostDevice):
    """A simulated accelerator."""

    def __init__(self, name: str, sink: Sink, options: SimOptions | None = None) -> None:
        self.options = options = options or SimOptions()
        late = options.late_errors or options.launches
        super().__init__(name, options.memory, options.missing, options.cache, late_errors=late)
        compute = [self._stream(StreamKind.COMPUTE, i, sink) for i in range(options.compute_streams)]
        copies = {kind: self._stream(kind, 0, sink) for kind in (StreamKind.H2D, StreamKind.D2H, StreamKind.P2P)}
        self.set_streams(compute, copies)
        self.linked = not options.launches
        if options.compute_rate:
            self.pace = options.compute_rate / 1e9
        self.eviction, self.floor = options.eviction, options.floor
        self.ceiling = ceiling_of(options.ceiling, self.limit)
        for fault in options.faults:
            self.inject(fault)

    def _stream(self, kind: StreamKind, index: int, sink: Sink) -> WorkerStream:
        options = self.options
        pace = options.pace(kind)
        paced = pace if any(pace) else None
        stream = WorkerStream(self.name, kind, index, sink, self.faults, may_inline=options.inline, pace=paced)
        stream.events, stream.late_errors = True, options.late_errors
        return stream

    def reaches(self, other: Device) -> bool:
        return isinstance(other, SimDevice) and self.options.peer and other.options.peer

    def time_of(self, work: int) -> float:
        return self.options.pace(StreamKind.COMPUTE).of(0, work)

    def owns(self, array: Array) -> bool:
        """Return whether the array lies in this device's memory. Tests use this to find host arrays that reach a kernel
        here."""
        return owner_of(array) == self.name

    def new_memory(self, nbytes: int) -> Memory:
        memory = SimMemory((nbytes,), np.uint8)
        memory.owner = self.name
        return memory

    def workspace(self, nbytes: int) -> Array:
        return self.new_memory(nbytes)

    def adopt(self, array: Array) -> Buffer | None:
        """Copy the array, since a kernel's result lies in host memory."""
        return self.adopt_copy(array)

    def copy_in(self, target: Array, source: NDArray[np.generic]) -> None:
        self._check("copy_in", target, self.name, source, "")
        np.copyto(target, source, casting="no")

    def copy_out(self, source: Array, target: NDArray[np.generic]) -> None:
        self._check("copy_out", target, "", source, self.name)
        np.copyto(target, source, casting="no")

    def peer_copy(self, target: Array, source: Array) -> None:
        self._check("peer_copy", target, self.name, source, owner_of(source) or "another sim device")
        np.copyto(target, source, casting="no")

    def _check(self, what: str, target: Array, to: str, source: Array, origin: str) -> None:
        """Raise RuntimeError, for a bug in the caller, unless both arrays lie in the named memories ("": the host)."""
        for role, array, expected in (("target", target, to), ("source", source, origin)):
            if (found := owner_of(array)) != expected:
                raise RuntimeError(
                    f"{what} on {self.name}: the {role} is in the memory of {found or 'the host'}, "
                    f"not of {expected or 'the host'}"
                )


def owner_of(array: Array) -> str:
    """The name of the sim device in whose memory the array lies, "" for host memory."""
    while isinstance(array, np.ndarray):
        if isinstance(array, SimMemory):
            return array.owner
        array = array.base
    return ""
