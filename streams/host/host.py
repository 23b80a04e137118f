"""The common base of cpu and sim devices: memory from a pool, threads for streams, faults and holds."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...interpreter.compilation import mypyc_attr
from ...interpreter.programs.fusion import Fusion, FusionPolicy
from ...interpreter.programs.program import Program
from ...interpreter.schema.opdef import Array, BoundKernel
from ...interpreter.schema.pieces import in_pieces, length_of_pieces
from ...interpreter.schema.scratch import largest
from ...interpreter.types.meta import Meta
from ...interpreter.wire.host_memory import room_of
from ..device import Buffer, Device, FusionKernel, KernelCall
from ..faults import Fault, Faults
from ..merging import merge_in_pieces
from ..pool import PooledBuffer, PooledDevice
from ..stream import Sink, StreamKind
from ..threads.helper_pool import HelperPool, InParts
from ..threads.worker import WorkerStream
from .fused_kernel import FusedKernel

Memory: TypeAlias = np.ndarray[tuple[int], np.dtype[np.uint8]]

GIB: Final = 1 << 30
SHARED_WORK: Final = 1 << 22  # element operations from which threads share a fusion: some 500 us
PARTS_PER_THREAD: Final = 2  # of a shared fusion for each thread, so that a slow thread delays the others less


def physical_memory() -> int:
    """The bytes of memory of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@mypyc_attr(allow_interpreted_subclasses=True)
class HostDevice(PooledDevice):
    """A device whose memory is this process's and whose array module is NumPy."""

    def __init__(self, name: str, limit: int, missing: Iterable[str], keep: int, *, late_errors: bool) -> None:
        super().__init__(name, np, limit, missing, keep)
        self.segments = self.takes_numbers = True
        self._own = threading.local()  # of each thread: its buffer for merges
        self.faults = Faults(self, late_errors=late_errors)
        self._compute: tuple[WorkerStream, ...] = ()
        self._copies: MappingProxyType[StreamKind, WorkerStream] = MappingProxyType({})
        self._streams: tuple[WorkerStream, ...] = ()

    def bind_kernel(self, call: KernelCall) -> tuple[BoundKernel, int]:
        """Bind the kernel as `Device.bind_kernel` says. NumPy functions that are faster when called directly are bound
        directly; kernels that may work on pieces do so."""
        kernel, scratch = super().bind_kernel(call)
        op, given, metas, outputs, aliased, _ = call
        known = tuple([meta for meta in metas if meta is not None])
        if len(known) < len(metas):
            return kernel, scratch
        if op.direct is not None and not aliased:
            kernel = op.direct(known, outputs, given) or kernel
        if scratch and op.works_in_pieces(known, given):
            return in_pieces(kernel, length_of_pieces(scratch, largest((*known, *outputs)))), 0
        return kernel, scratch

    def fusion_terms(self) -> FusionPolicy | None:
        return FusionPolicy(lambda _program, _step: True)

    def fuse(self, program: Program, fusion: Fusion, work: int) -> FusionKernel:
        """Fuse as `Device.fuse` says: piece by piece, and shared by threads if the fusion is large."""
        fused, helpers = FusedKernel(program, fusion), self.helpers
        if helpers is None or work < SHARED_WORK:
            return fused
        return InParts(fused.split(PARTS_PER_THREAD * (helpers.size + 1)), helpers)

    def open_streams(self, sink: Sink, compute: int = 1, *, may_inline: bool = True) -> None:
        """Open `compute` compute streams, and one stream for copies of each kind, each with a thread. Called once, at
        the end of a subclass's `__init__`. `may_inline`: small ops may run on the submitting thread."""

        def stream(kind: StreamKind, index: int = 0) -> WorkerStream:
            return WorkerStream(self.name, kind, index, sink, self.faults, may_inline=may_inline)

        copies = {kind: stream(kind) for kind in (StreamKind.H2D, StreamKind.D2H, StreamKind.P2P)}
        self.set_streams([stream(StreamKind.COMPUTE, index) for index in range(compute)], copies)

    def set_streams(self, compute: Iterable[WorkerStream], copies: dict[StreamKind, WorkerStream]) -> None:
        """Use these streams. Called once, at the end of a subclass's `__init__`."""
        self._compute = tuple(compute)
        self._copies = MappingProxyType(copies)
        self._streams = tuple(dict.fromkeys((*self._compute, *copies.values())))
        self.faults.attach(self._streams)

    @property
    def streams(self) -> tuple[WorkerStream, ...]:
        return self._streams

    @property
    def compute(self) -> tuple[WorkerStream, ...]:
        return self._compute

    def copy_stream(self, kind: StreamKind) -> WorkerStream:
        return self._copies[kind]

    def reaches(self, other: Device) -> bool:  # noqa: ARG002 - for subclasses
        return False

    def copy_in(self, target: Array, source: NDArray[np.generic]) -> None:
        np.copyto(target, source, casting="no")

    def copy_out(self, source: Array, target: NDArray[np.generic]) -> None:
        target[...] = source  # of the same dtype; for a few bytes in a quarter of the time of `np.copyto`

    def read(self, source: Array, meta: Meta) -> NDArray[np.generic]:
        target = np.empty(meta.shape, meta.dtype)
        self.copy_out(source, target)
        return target

    def peer_copy(self, target: Array, source: Array) -> None:
        np.copyto(target, source, casting="no")

    # -- memory ------------------------------------------------------------------------------------------------

    def new_memory(self, nbytes: int) -> Memory:
        return np.empty(nbytes, np.uint8)

    def refuses_allocation(self) -> bool:
        return self.faults.refuses_allocation()

    def adopt(self, array: Array) -> Buffer | None:
        buffer = _adopted(array)
        return self.adopt_copy(array) if buffer is None else self.account(buffer)

    def adopt_copy(self, array: NDArray[np.generic]) -> Buffer | None:
        """A buffer of this device with the values of an array in other memory; None if it does not fit."""
        buffer = self.allocate(array.nbytes)
        if buffer is not None:
            np.copyto(self.bind(buffer, Meta.of(array.shape, array.dtype)), array)
        return buffer

    def bind(self, buffer: Buffer, meta: Meta) -> Array:
        if buffer.meta is meta:
            return buffer.array
        array: NDArray[Any] = np.ndarray(meta.shape, meta.dtype, buffer.raw)
        buffer.array, buffer.meta = array, meta
        return array

    def bind_view(self, buffer: Buffer, meta: Meta, offset: int, strides: tuple[int, ...]) -> Array:
        return np.ndarray(meta.shape, meta.dtype, buffer.raw, offset, strides)

    def merge(
        self,
        target: Array,
        base: Array,
        source: Array,
        function: str,
        receive: Callable[[Array, Array], None] | None = None,
    ) -> None:
        merge = getattr(np, function)
        with np.errstate(all="ignore"):
            if receive is None:
                merge(base, source, out=target)
            else:
                merge_in_pieces(self, (target, base, source), merge, receive, self._own)

    # -- interception, for tests and for chaos ---------------------------------------------------------------------

    def inject(self, fault: Fault) -> None:
        """Arm a fault. Thread-safe; affects only tasks that have not started."""
        self.faults.inject(fault)

    def hold(self, which: str) -> None:
        """Stop the streams of that kind ("compute") or name ("sim:0/h2d0", "h2d0") before their next task."""
        self.faults.hold(which)

    def resume(self, which: str) -> None:
        """Let the streams of that kind or name continue."""
        self.faults.resume(which)

    def release_hangs(self) -> None:
        """Let every hanging task continue."""
        self.faults.release_hangs()

    # -- the end -----------------------------------------------------------------------------------------------

    def close(self, timeout: float) -> bool:
        deadline = monotonic() + timeout
        closing: list[WorkerStream | HelperPool] = [*self._streams]
        if self.helpers is not None:
            closing.append(self.helpers)
        for each in closing:
            each.begin_close()
        ended = [each.end_close(deadline) for each in closing]
        self.pool.trim(0)
        return all(ended)


def _adopted(array: NDArray[np.generic]) -> PooledBuffer | None:
    """A buffer over the memory of a packed array, which no pool keeps, or None if that memory is unsuitable.

    Read-only memory is unsuitable, and so is a small part of a larger block, since the whole block would stay allocated
    without being counted. Memory that a client has filled is suitable: the engine never writes there
    (`vm.admission.accesses`).
    """
    flags, base = array.flags, array.base
    if not (flags.c_contiguous and flags.aligned):
        return None
    room = room_of(base)
    if room:
        if 2 * array.nbytes < room:
            return None
    elif not flags.writeable or (isinstance(base, np.ndarray) and base.nbytes != array.nbytes):
        return None
    buffer = PooledBuffer(array.nbytes, array.reshape(-1).view(np.uint8), None)
    buffer.array, buffer.meta = array, Meta.of(array.shape, array.dtype)
    return buffer
