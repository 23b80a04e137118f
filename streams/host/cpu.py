"""The cpu device: NumPy, one compute stream per worker thread, and one stream for copies."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Annotated, Final

import numpy as np
from numpy.typing import NDArray

from ...interpreter.schema.opdef import Array
from ..device import Device, Eviction
from ..faults import Fault
from ..options import (
    CACHE,
    CEILING,
    EVICTION,
    FAULTS,
    FLOOR,
    LATE_ERRORS,
    MEMORY,
    MISSING_OPS,
    Option,
    ceiling_of,
    count,
    flag,
)
from ..stream import Sink, StreamKind
from ..threads.helper_pool import HelperPool
from ..threads.worker import WorkerStream
from .blas import BLAS, unlimitable
from .host import GIB, HostDevice, Memory, physical_memory
from .shared import shared_block


def usable_cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def blas_threads(meaning: str) -> Option:
    """The option of a number of BLAS threads, 0 for no limit. Other values are refused if nothing can limit BLAS."""
    option = count(0, meaning)

    def read(value: object) -> int:
        threads: int = option.read(value)
        if threads and (reason := unlimitable()):
            raise ValueError(f"{reason}; or leave the option out, and set OMP_NUM_THREADS={threads} for the process")
        return threads

    return Option(option.unit, read, meaning)


WORKERS: Final = count(1, "compute streams, each with a thread")
BLAS_THREADS: Final = blas_threads("threads of one BLAS call in the whole process, see below; 0: the library's choice")
SHARED: Final = flag("other processes may map larger blocks, to read results without a copy")


@dataclass(frozen=True, slots=True)
class CpuOptions:
    """Options of a cpu device. `late_errors` and `faults` are for tests of the virtual machine."""

    memory: Annotated[int, MEMORY, "all of the machine's"] = field(default_factory=physical_memory)
    cache: Annotated[int, CACHE] = 2 * GIB
    eviction: Annotated[Eviction, EVICTION] = Eviction.COST
    floor: Annotated[int, FLOOR] = 0
    ceiling: Annotated[int | str, CEILING] = 0
    workers: Annotated[int, WORKERS, "one per usable core"] = field(default_factory=usable_cores)
    blas_threads: Annotated[int, BLAS_THREADS] = 0
    shared: Annotated[bool, SHARED] = False
    missing: Annotated[frozenset[str], MISSING_OPS] = frozenset()
    late_errors: Annotated[bool, LATE_ERRORS] = False
    faults: Annotated[tuple[Fault, ...], FAULTS] = ()


class CpuDevice(HostDevice):
    """A cpu device; its arrays are host memory."""

    def __init__(self, name: str, sink: Sink, options: CpuOptions | None = None) -> None:
        self.options = options = options or CpuOptions()
        super().__init__(name, options.memory, options.missing, options.cache, late_errors=options.late_errors)
        self.host = self.linked = True
        self.shared = options.shared
        self.eviction, self.floor = options.eviction, options.floor
        self.ceiling = ceiling_of(options.ceiling, self.limit)
        compute = [self._stream(StreamKind.COMPUTE, i, sink) for i in range(options.workers)]
        copies = self._stream(StreamKind.P2P, 0, sink)
        self.set_streams(compute, dict.fromkeys((StreamKind.H2D, StreamKind.D2H, StreamKind.P2P), copies))
        if options.workers > 1:
            self.helpers = HelperPool(name, options.workers - 1, compute)
        self._asked_blas = options.blas_threads
        if self._asked_blas:
            BLAS.ask(self._asked_blas)
        for fault in options.faults:
            self.inject(fault)

    def _stream(self, kind: StreamKind, index: int, sink: Sink) -> WorkerStream:
        stream = WorkerStream(self.name, kind, index, sink, self.faults)
        stream.late_errors = self.options.late_errors
        return stream

    def new_memory(self, nbytes: int) -> Memory:
        return shared_block(nbytes) if self.shared else super().new_memory(nbytes)

    def reaches(self, other: Device) -> bool:
        return other.host

    def drain(self, source: Array, write: Callable[[NDArray[np.uint8], int], None]) -> None:
        write(source.reshape(-1).view(np.uint8), 0)

    def close(self, timeout: float) -> bool:
        ended = super().close(timeout)
        if self._asked_blas:
            BLAS.drop(self._asked_blas)
            self._asked_blas = 0
        return ended
