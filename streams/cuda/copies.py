"""Copies between a GPU, the host and other GPUs: on the launcher's thread, with the task's stream current.

Host copies go through pinned memory (`pinned`). Arrays in pinned memory, such as those of `host_array` within its
limit, are copied directly. Others are staged: up to one piece through a block that lives until the copy is done, larger
ones piece by piece (`staging`), and by the driver if no pinned memory is left. `launch_stream` says which thread
stages.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from ...interpreter.ops.positions import Check
from ...interpreter.schema.opdef import Array
from ...interpreter.types.meta import Meta
from ..device import MAX_ATTEMPTS
from ..launching.launch_stream import Burst, LaunchStream
from ..launching.launcher import Launcher
from ..merging import merge_in_pieces
from ..pool import PooledDevice
from ..stream import Task
from .pinned import PinnedPool, is_packed_and_pinned
from .staging import PIECE, Staging

STAGED: Final = 64 << 20  # bytes of pinned memory that users' arrays leave for staging


class CopyingDevice(PooledDevice):
    """The copies of a GPU: a base class of `cuda.CudaDevice`, which makes the launcher and the streams."""

    _cupy: Any
    ordinal: int
    _launcher: Launcher
    _compute: tuple[LaunchStream, ...]

    def open_pinned(self, nbytes: int) -> None:
        """Allow that many bytes of page-locked memory."""
        staged = min(nbytes // 2, STAGED)
        self.pinned = PinnedPool(nbytes - staged, self._new_pinned)
        self._staged = PinnedPool(staged, self._new_pinned)
        # Copies that took long: the number of the launch, and the pinned memory that it writes.
        self._unread: deque[tuple[int, NDArray[np.generic]]] = deque()

    def lose(self, error: BaseException) -> None:
        """Mark the device as lost."""
        raise NotImplementedError(f"{self.name}: {error}")

    def trim_pinned(self) -> None:
        """Give back unused page-locked memory."""
        self.pinned.trim()
        self._staged.trim()

    def got_to(self, number: int) -> None:
        super().got_to(number)
        while self._unread and self._unread[0][0] <= number:
            self._unread.popleft()

    def host_array(self, meta: Meta) -> NDArray[np.generic]:
        return self._array_of(self.pinned, meta)

    def _array_of(self, pool: PinnedPool, meta: Meta) -> NDArray[np.generic]:
        """A pinned array, or a pageable one if there is no room."""
        array = pool.array(meta) if meta.nbytes else None
        return np.empty(meta.shape, meta.dtype) if array is None else array

    def _new_pinned(self, nbytes: int) -> Any:
        with self._cupy.cuda.Device(self.ordinal):
            return self._cupy.cuda.PinnedMemory(nbytes, self._cupy.cuda.runtime.hostAllocPortable)

    def copy_in(self, target: Array, source: NDArray[np.generic]) -> None:
        if target.nbytes == 0:
            return
        if not target.flags.c_contiguous:
            packed = self._cupy.empty(target.shape, target.dtype)
            self.copy_in(packed, source)
            target[...] = packed
            return
        if is_packed_and_pinned(source):
            self._burst.keep.append(source)
            self._put(target, 0, source)
        elif source.nbytes <= PIECE:
            staged = self._array_of(self._staged, Meta.of(source.shape, source.dtype))
            np.copyto(staged, source, casting="no")
            self._burst.keep.append(staged)
            self._put(target, 0, staged)
        elif (staging := self._staging()).blocks:
            staging.copy_in(source, partial(self._put, target))
        else:
            packed = np.ascontiguousarray(source)
            self._burst.keep.append(packed)
            self._put(target, 0, packed)

    def copy_out(self, source: Array, target: NDArray[np.generic]) -> None:
        if target.nbytes == 0:
            return
        packed = self._cupy.ascontiguousarray(source)
        self._burst.keep.append(packed)
        if is_packed_and_pinned(target):
            self._burst.keep.append(target)
            self._get(packed, 0, target)
        elif target.nbytes > PIECE and (staging := self._staging()).blocks:
            self._burst.finish.append(staging.copy_out(target, partial(self._get, packed)))
        else:
            staged = self._array_of(self._staged, Meta.of(target.shape, target.dtype))
            self._burst.keep.append(staged)
            self._get(packed, 0, staged)
            self._burst.finish.append(lambda: np.copyto(target, staged, casting="no"))

    def copy_out_soon(self, source: Array, target: NDArray[np.generic]) -> bool:
        """Copy as `Device.copy_out_soon` says. A copy to the device's stream, and a query of the stream, do not need
        the device to be current (CUDA C++ Programming Guide, Stream and Event Behavior)."""
        raw = self._compute[0].raw
        staged = self._array_of(self._staged, Meta.of(target.shape, target.dtype))
        try:
            self._cupy.cuda.runtime.memcpyAsync(
                staged.ctypes.data, source.data.ptr, target.nbytes, self._cupy.cuda.runtime.memcpyDeviceToHost, raw.ptr
            )
            for _ in range(MAX_ATTEMPTS):
                if raw.done:
                    np.copyto(target, staged, casting="no")
                    return True
        except Exception as error:
            self.lose(error)
        self._unread.append((self.order.issued + 1, staged))
        return False

    def drain(self, source: Array, write: Callable[[NDArray[np.uint8], int], None]) -> None:
        packed = self._cupy.ascontiguousarray(source)
        self._burst.keep.append(packed)
        self._staging().drain(packed.nbytes, partial(self._get, packed), write)

    def peer_copy(self, target: Array, source: Array) -> None:
        if target.flags.c_contiguous and source.flags.c_contiguous:
            runtime = self._cupy.cuda.runtime
            runtime.memcpyPeerAsync(
                target.data.ptr, self.ordinal, source.data.ptr, source.device.id, target.nbytes, self._raw.ptr
            )
        else:
            target[...] = source  # an elementwise kernel on this device reads the peer's memory

    def merge(
        self,
        target: Array,
        base: Array,
        source: Array,
        function: str,
        receive: Callable[[Array, Array], None] | None = None,
    ) -> None:
        merge = getattr(self._cupy, function)
        if receive is None:  # a kernel on this device reads the peer's memory
            merge(base, source, out=target)
        else:
            merge_in_pieces(self, (target, base, source), merge, receive, self._launcher.launching.stream)

    def tell_late(self, task: Task, checks: Sequence[Check]) -> None:
        """Check as the interface says: the values are copied after the launch, and the thread that waits for its fence
        checks them."""
        burst = self._burst
        for least, most, judge in checks:
            extremes = self._array_of(self._staged, Meta.of((2,), least.dtype))
            for position, value in enumerate((least, most)):
                self._get(value, 0, extremes[position : position + 1])
            burst.keep.append((least, most, extremes))
            burst.finish.append(partial(check_late, task, judge, extremes))

    def _put(self, target: Array, offset: int, part: NDArray[np.generic]) -> None:
        runtime = self._cupy.cuda.runtime
        to, kind = target.data.ptr + offset, runtime.memcpyHostToDevice
        runtime.memcpyAsync(to, part.ctypes.data, part.nbytes, kind, self._raw.ptr)

    def _get(self, source: Array, offset: int, part: NDArray[np.generic]) -> None:
        runtime = self._cupy.cuda.runtime
        origin, kind = source.data.ptr + offset, runtime.memcpyDeviceToHost
        runtime.memcpyAsync(part.ctypes.data, origin, part.nbytes, kind, self._raw.ptr)

    @property
    def _burst(self) -> Burst:
        """The burst that this thread is launching."""
        burst = self._launcher.launching.burst
        assert burst is not None  # noqa: S101 - only called while launching
        return burst

    @property
    def _raw(self) -> Any:
        stream = self._launcher.launching.stream
        assert stream is not None  # noqa: S101 - only called while launching
        return stream.raw

    def _staging(self) -> Staging:
        """Staging for one copy of this thread. The blocks are kept until the copy's fence has passed."""
        raw = self._raw
        staging = Staging(self._staged, self._launcher.events, lambda event: event.record(raw))
        self._burst.keep.append(staging)
        return staging


def check_late(task: Task, judge: Callable[[Any, Any], None], extremes: NDArray[np.generic]) -> None:
    """Fail the task if the values that its launch did not wait for are invalid."""
    try:
        judge(*extremes)
    except Exception as error:
        task.fail_late(error)
