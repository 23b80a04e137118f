"""NCCL through CuPy: communicators, and a collective as calls of their methods. Unverified: it has only run over a
fake.

A communicator belongs to an ordered list of GPUs, and has an object for each GPU of this process. All objects are made,
and called, within one group, so that no rank waits for another one of the same thread. Making them waits for the ranks
of other processes; the wait ends only when these join or end, so `PendingCommunicator` waits on a thread of its own.

`abort` ends kernels that wait for a rank that will never come. CuPy then forgets the communicator, and so does this
file: nothing is called after it. NCCL's kernels and buffers take memory of the GPU that no device counts.

Source: NCCL's documentation, "Creating a Communicator" and "Group Calls".
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple, TypeAlias

from ...interpreter.collectives.library import Element, Operation, RankCall
from ...interpreter.errors import KernelError, TensordError

MIN_VERSION: Final = 2700  # NCCL 2.7, the first with calls between two ranks; 2.9 and later write 20900
ABORT_TIMEOUT: Final = 1.0  # seconds that an abort waits for a launch that is being made

DTYPES: Final = {
    "int8": "NCCL_INT8", "uint8": "NCCL_UINT8", "int32": "NCCL_INT32", "uint32": "NCCL_UINT32",
    "int64": "NCCL_INT64", "uint64": "NCCL_UINT64",
    "float16": "NCCL_FLOAT16", "float32": "NCCL_FLOAT32", "float64": "NCCL_FLOAT64",
}  # fmt: skip
REDUCTIONS: Final = {"sum": "NCCL_SUM", "max": "NCCL_MAX", "min": "NCCL_MIN"}


class GpuBuffer(NamedTuple):
    """A piece of a GPU's memory: its address, and the count of elements of the library's dtype."""

    address: int = 0
    size: int = 0


Made: TypeAlias = tuple[RankCall, GpuBuffer, GpuBuffer]  # a call, and the memory that it reads and writes


def unavailable() -> str:
    """The reason why NCCL cannot be used; "" if it can."""
    try:
        from cupy.cuda import nccl
    except Exception as error:
        return f"CuPy's module of NCCL cannot be imported ({type(error).__name__}: {error})"
    if not nccl.available:
        return "CuPy does not find NCCL: install nvidia-nccl-cu12 or nvidia-nccl-cu13, as CuPy's own package"
    version = nccl.get_version()
    return "" if version >= MIN_VERSION else f"NCCL {version} is too old"


def version() -> str:
    """NCCL's name and version."""
    from cupy.cuda import nccl

    return f"nccl {nccl.get_version()}"


def new_id() -> bytes:
    """A new unique id. CuPy before 14 has tuples of signed numbers."""
    from cupy.cuda import nccl

    found = nccl.get_unique_id()
    return found if isinstance(found, bytes) else bytes(number & 255 for number in found)


class NcclCommunicator:
    """A communicator of `size` ranks. `ordinals`: the GPUs of this process, by rank. Raises the errors of NCCL."""

    def __init__(self, cupy: Any, size: int, ordinals: Mapping[int, int], unique_id: bytes) -> None:
        from cupy.cuda import nccl

        self._nccl: Any = nccl
        self.error: TensordError | None = None  # the reason why it was aborted
        self.running = 0  # launches that have begun and not ended
        self._lock = threading.Lock()  # guards calls against the end of the communicator
        self.id = unique_id
        self._ranks: dict[int, Any] = {}
        self._whole = size == len(ordinals)
        with grouped(nccl):
            for rank, ordinal in ordinals.items():
                with cupy.cuda.Device(ordinal):
                    self._ranks[rank] = rank_of(nccl, size, unique_id, rank)

    def launch(self, made: Sequence[Made], element: Element, reduction: str, streams: Mapping[int, int]) -> None:
        """Launch the calls on the streams of their ranks, as one group."""
        nccl = self._nccl
        dtype, merge = getattr(nccl, DTYPES[element.dtype]), getattr(nccl, REDUCTIONS[reduction])
        with self._lock:
            if self.error is not None:
                raise self.error
            with grouped(nccl):
                for call, source, target in made:
                    rank = call.rank
                    ISSUE[call.operation](self._ranks[rank], call, source, target, (dtype, merge, streams[rank]))

    def check(self) -> None:
        """Raise an error since the last launch, for example of a network."""
        with self._lock:
            if self.error is None:
                for comm in self._ranks.values():
                    comm.check_async_error()

    def abort(self, error: TensordError) -> None:
        """End the running kernels, unfinished, and the communicator. A launch that is being made may wait for ranks
        that are gone, so this waits for it only a moment."""
        held = self._lock.acquire(timeout=ABORT_TIMEOUT)
        try:
            first, self.error = self.error is None, self.error or error
            for comm in self._ranks.values() if first else ():
                with suppress(Exception):  # on a lost GPU every call fails
                    comm.abort()
        finally:
            if held:
                self._lock.release()

    def destroy(self) -> None:
        """End an unused communicator. `destroy` of NCCL would wait for ranks of other processes."""
        given_up = KernelError("the communicator was given up")
        if not self._whole:
            self.abort(given_up)
            return
        with self._lock:
            if self.error is None:
                self.error = given_up
                with suppress(Exception), grouped(self._nccl):
                    for comm in self._ranks.values():
                        comm.destroy()


class PendingCommunicator:
    """A communicator that is made on a thread of its own, and may be given up. `done` is set at the end."""

    def __init__(self, make: Callable[[], NcclCommunicator]) -> None:
        self.done = threading.Event()
        self._make = make
        self._made: NcclCommunicator | None = None
        self._failure: BaseException | None = None
        self._given_up: TensordError | None = None
        self._lock = threading.Lock()  # guards which of the two threads ends the communicator
        threading.Thread(target=self._work, name="tensord nccl maker", daemon=True).start()

    def result(self) -> NcclCommunicator:
        """The communicator, once `done`; raises the errors of NCCL."""
        if self._made is None:
            raise self._failure or KernelError("no communicator was made")
        return self._made

    def give_up(self, error: TensordError) -> None:
        """Give up the communicator: it is aborted, now or once it is made."""
        with self._lock:
            self._given_up = error
        if self._made is not None:
            self._made.abort(error)

    def _work(self) -> None:
        try:
            made = self._make()
            with self._lock:
                self._made, error = made, self._given_up
            if error is not None:
                made.abort(error)
        except BaseException as failure:
            self._failure = failure
        self.done.set()


def rank_of(nccl: Any, size: int, unique_id: bytes, rank: int) -> Any:
    """The object of a rank, on the current GPU."""
    try:
        return nccl.NcclCommunicator(size, unique_id, rank)
    except TypeError:  # CuPy before 14
        return nccl.NcclCommunicator(size, tuple([byte - 256 * (byte > 127) for byte in unique_id]), rank)


@contextmanager
def grouped(nccl: Any) -> Iterator[None]:
    """Make the calls within the block begin together, at its end. After an exception the group ends, too."""
    nccl.groupStart()
    try:
        yield
    except BaseException:
        with suppress(Exception):
            nccl.groupEnd()
        raise
    nccl.groupEnd()


How: TypeAlias = tuple[int, int, int]  # NCCL's dtype and reduction, a stream


def all_reduce(comm: Any, _call: RankCall, source: GpuBuffer, target: GpuBuffer, how: How) -> None:
    """`source` and `target` have equal sizes."""
    dtype, merge, stream = how
    comm.allReduce(source.address, target.address, source.size, dtype, merge, stream)


def all_gather(comm: Any, _call: RankCall, source: GpuBuffer, target: GpuBuffer, how: How) -> None:
    """The size of one rank's part is passed."""
    dtype, _, stream = how
    comm.allGather(source.address, target.address, source.size, dtype, stream)


def reduce_scatter(comm: Any, _call: RankCall, source: GpuBuffer, target: GpuBuffer, how: How) -> None:
    """The size of one rank's part is passed."""
    dtype, merge, stream = how
    comm.reduceScatter(source.address, target.address, target.size, dtype, merge, stream)


def reduce(comm: Any, call: RankCall, source: GpuBuffer, target: GpuBuffer, how: How) -> None:
    """Only the root has a target."""
    dtype, merge, stream = how
    comm.reduce(source.address, target.address, source.size, dtype, merge, call.peer, stream)


def broadcast(comm: Any, call: RankCall, source: GpuBuffer, target: GpuBuffer, how: How) -> None:
    """Only the root has a source."""
    dtype, _, stream = how
    comm.broadcast(source.address or target.address, target.address, target.size, dtype, call.peer, stream)


def send(comm: Any, call: RankCall, source: GpuBuffer, _target: GpuBuffer, how: How) -> None:
    """Send to the other rank."""
    dtype, _, stream = how
    comm.send(source.address, source.size, dtype, call.peer, stream)


def recv(comm: Any, call: RankCall, _source: GpuBuffer, target: GpuBuffer, how: How) -> None:
    """Receive from the other rank."""
    dtype, _, stream = how
    comm.recv(target.address, target.size, dtype, call.peer, stream)


ISSUE: Final[dict[Operation, Callable[[Any, RankCall, GpuBuffer, GpuBuffer, How], None]]] = {
    Operation.ALL_REDUCE: all_reduce,
    Operation.ALL_GATHER: all_gather,
    Operation.REDUCE_SCATTER: reduce_scatter,
    Operation.REDUCE: reduce,
    Operation.BROADCAST: broadcast,
    Operation.SEND: send,
    Operation.RECV: recv,
}
