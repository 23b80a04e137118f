"""The interface of a device: its memory, its streams, its array module.

Only the thread that drives the virtual machine reserves and frees memory; kernels run on the streams' threads and only
see arrays bound to buffers. `allocated` is the exact number of bytes in buffers that are in use, plus the bytes set
aside for temporaries of kernels, which the array module allocates itself. Free memory that a pool keeps for reuse does
not count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..interpreter import ops as _ops  # noqa: F401 - fills the registry
from ..interpreter.compilation import mypyc_attr
from ..interpreter.programs.fusion import Fusion, FusionPolicy
from ..interpreter.programs.program import Program
from ..interpreter.schema.opdef import Array, ArrayModule, BoundKernel, OpDef, OutputMetas, lacking
from ..interpreter.types.device_names import kind_of
from ..interpreter.types.meta import Meta, OperandMeta
from .graph import Call, GraphRefusal, LaunchGraph, Moving
from .library import CollectiveLibrary
from .stream import Stream, StreamKind
from .threads.helper_pool import HelperPool

MAX_ATTEMPTS: Final = 64  # attempts to see a small value before a wait: some 50 us on a GPU
MERGE_PIECE_BYTES: Final = 1 << 20  # bytes of one piece of a merge
STORE_PIECE_BYTES: Final = 4 << 20  # bytes of host memory through which a value passes between a device and the store


class Eviction(StrEnum):
    """How a device chooses the values to evict when memory gets short (`vm.memory.victims`)."""

    COST = "cost"
    LRU = "lru"
    NEVER = "never"


class LaunchOrder:
    """The numbers of the launches made at admission on one device. Their order is that of the first compute stream.

    `issued`: the newest launch, set when its call has returned. `reached`: the highest launch that is known to be
    complete. Only the driving thread writes both (`vm.model.launches`).
    """

    __slots__ = ("issued", "reached")

    def __init__(self) -> None:
        self.issued = 0
        self.reached = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Buffer:
    """A piece of one device's memory. `array` is the array that was bound to it last, and has the meta `meta`.

    `behind`: the number of the last launch that used the buffer when its owner released it (`vm.model.launches`). Later
    launches may use the memory at once.
    """

    __slots__ = ("array", "behind", "meta", "nbytes", "raw")

    def __init__(self, nbytes: int, raw: Any) -> None:
        self.nbytes = nbytes  # the requested size, which is also the size that counts
        self.raw = raw  # the device's own object for the memory
        self.array: Array = None
        self.meta: Meta | None = None
        self.behind = 0


class BlockUser(Protocol):
    """A process that may have blocks open."""

    pid: int

    def is_over(self) -> bool:
        """Return whether the process has ended."""


class KernelCall(NamedTuple):
    """A call for which a device binds a kernel. `metas` has None for operands whose meta is not known yet; `in_place`:
    the results use an operand's memory; `work`: element operations."""

    op: OpDef
    attributes: dict[str, Any]
    metas: tuple[OperandMeta | None, ...]
    outputs: OutputMetas
    in_place: bool
    work: int


class FusionKernel(Protocol):
    """The kernel of a fusion, called as `kernel(*inputs, *outputs)`."""

    @property
    def scratch(self) -> int:
        """The most bytes of temporaries that one call needs."""

    def __call__(self, *given: Any) -> None:
        """Compute the outputs, or launch their computation."""


class Kept(NamedTuple):
    """Freed memory that a device keeps for reuse: total bytes, number of blocks, bytes of the largest block."""

    nbytes: int = 0
    blocks: int = 0
    largest: int = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Device(ABC):
    """One device. Subclasses: `CpuDevice`, `SimDevice`, `CudaDevice`.

    `limit`: the bytes of memory that may be allocated. `missing`: ops without a kernel on this device, including those
    whose kernels use functions that the array module lacks.
    """

    def __init__(self, name: str, xp: ArrayModule, limit: int, missing: frozenset[str] = frozenset()) -> None:
        self.name = name
        self.xp = xp
        self.limit = limit
        self.missing = missing | lacking(xp)
        self.allocated = 0
        self.eviction = Eviction.NEVER  # which values it evicts that have no copy elsewhere
        self.floor = 0  # bytes that a session may keep while others need room
        self.ceiling = 0  # bytes that the values of one session may take; 0: all
        self.lost: BaseException | None = None  # set once, from any thread: every later use of this device fails
        self.computes = True  # False: the device only stores values, and is no tensor's home
        self.host = False  # True: its arrays are host memory, so the host reads them without a transfer
        self.linked = False  # True: links read and fill its arrays in place
        self.shared = False  # True: other processes can map its larger blocks
        self.bus_id = ""  # of a GPU: the id by which other processes find it
        self.cuda_number: int | None = None  # its number in CUDA, if other processes may read its memory in place
        self.helpers: HelperPool | None = None  # threads that help with large kernels
        self.pins = False  # True: copies from and to arrays of `host_array` are faster, if large
        # True: one task may call several kernels one after the other, as segments of routines do.
        self.segments = False
        self.graphs = False  # True: `graph_of` can make graphs
        # Carries out collectives between devices that share it, on `copy_stream(StreamKind.JOINT)`.
        self.library: CollectiveLibrary | None = None
        self.alignment = 64  # of values in an arena, in bytes
        self.run_arena = 1 << 20  # bytes of an arena for runs at admission, which run one at a time; no limit counts it
        # True: calling a kernel only appends work to a stream, so ops may be launched at admission. Ops that may raise
        # on some data are excluded on devices that an exception of a kernel would lose (`raises_late`).
        self.launches = False
        self.takes_numbers = False  # True: instead of a number, kernels take a host array, which is reused
        self.raises_late = False
        # True: a kernel's refusal of its data may be found after the kernel, so the launch does not wait
        # (`ops.positions`).
        self.reports_late = False
        self.order = LaunchOrder()
        self.most_axes = 64  # of an array: NumPy's limit
        self.pace = 6.0  # element operations per ns, an initial estimate

    def least_temporaries(self, op: str, metas: tuple[OperandMeta, ...], outputs: OutputMetas) -> int:  # noqa: ARG002
        """Bytes that the op's kernel needs on this device besides operands and results, if more than NumPy's kernel
        needs."""
        return 0

    def bind_kernel(self, call: KernelCall) -> tuple[BoundKernel, int]:
        """The kernel of a call, and the bytes of its temporaries: 0 if the kernel can work on pieces, or if operands
        are not known yet."""
        op, given, metas, outputs, aliased, _ = call
        kernel = op.bind(self.xp, len(metas), given, aliased=aliased, room=self.limit, kind=kind_of(self.name))
        known = tuple([meta for meta in metas if meta is not None])
        if len(known) < len(metas):
            return kernel, 0
        least = self.least_temporaries(op.name, known, outputs)
        return kernel, op.temporaries(known, outputs, given, aliased=aliased, least=least)

    def fusion_terms(self) -> FusionPolicy | None:
        """The terms on which this device fuses ops; None if it does not."""
        return None

    def fuse(self, program: Program, fusion: Fusion, work: int) -> FusionKernel:
        """The kernel of a fusion that was found on this device's terms. `work`: the element operations of its steps."""
        raise NotImplementedError(f"{self.name} fuses nothing: {len(program.steps)}, {fusion.steps}, {work}")

    def graph_of(self, calls: Sequence[Call], moving: Sequence[Moving] = ()) -> LaunchGraph | GraphRefusal:  # noqa: ARG002
        """A graph of the calls, or the reason why none can be made. Called on the thread that launches tasks, after
        each call was made once. All memory that the calls use must exist for as long as the graph is launched.
        `moving`: arguments of library kernels whose address differs between launches."""
        return GraphRefusal(f"{self.name} makes no graphs")

    def keep_graph(self, graph: LaunchGraph) -> bool:
        """Count a graph's memory as allocated while the graph lives. If the memory does not fit, drop the graph and
        return False. Called on the driving thread, as the next two methods are."""
        raise NotImplementedError(f"{self.name} makes no graphs: {graph}")

    def give_up_graphs(self) -> bool:
        """Drop all graphs, because memory is short; False if there are none."""
        return False

    def graph_bytes(self) -> int:
        """The bytes that count as allocated for graphs."""
        return 0

    def ask(self, work: Callable[[], None]) -> None:
        """Run `work` soon on the thread that launches tasks. For a device that makes `graphs`."""
        raise NotImplementedError(f"{self.name} has no such thread: {work}")

    def time_of(self, work: int) -> float:  # noqa: ARG002 - only a simulated device knows
        """The least seconds that an op of `work` element operations takes here, however fast its kernel is."""
        return 0.0

    def join(self, devices: Sequence[Device]) -> None:  # noqa: B027 - most do nothing together
        """Called once all devices of the machine are open, with all of them."""

    @property
    @abstractmethod
    def streams(self) -> Sequence[Stream]:
        """Every stream of the device."""

    @property
    @abstractmethod
    def compute(self) -> Sequence[Stream]:
        """The compute streams, at least one."""

    @abstractmethod
    def copy_stream(self, kind: StreamKind) -> Stream:
        """The stream for copies of that kind (H2D, D2H or P2P)."""

    @abstractmethod
    def reaches(self, other: Device) -> bool:
        """Return whether a P2P transfer can bring data from `other` to this device directly."""

    def footprint(self, nbytes: int) -> int:
        """The bytes that a value of `nbytes` bytes takes in this memory: the size of its buffer."""
        return nbytes

    @abstractmethod
    def allocate(self, nbytes: int) -> Buffer | None:
        """A buffer of that many bytes, contents undefined, or None if it does not fit now."""

    def prefer_reached(self, nbytes: int) -> None:  # noqa: B027 - one without launches has nothing to prefer
        """Make sure that the next buffer of `nbytes` bytes is free of pending launches, if such a buffer exists or
        fits."""

    def set_aside(self, nbytes: int) -> bool:
        """Count `nbytes` bytes of temporaries as allocated. Returns False, and counts nothing, if they do not fit
        now."""
        if self.allocated + nbytes > self.limit:
            return False
        self.allocated += nbytes
        return True

    def give_back(self, nbytes: int) -> None:
        """Stop counting bytes that were set aside for temporaries."""
        self.allocated -= nbytes

    @abstractmethod
    def adopt(self, array: Array) -> Buffer | None:
        """Adopt a packed array without other users (a kernel's result) as a buffer; None if it does not fit."""

    @abstractmethod
    def free(self, buffer: Buffer) -> None:
        """Free the buffer. The caller ensures that it is unused."""

    def discard(self, buffer: Buffer) -> None:
        """Free a buffer that other processes can see. The memory is not reused; the system frees it with its last
        mapping."""
        self.free(buffer)

    def kept(self) -> Kept:
        """The freed memory that is kept for reuse. `allocated` does not count it."""
        return Kept()

    def kept_owners(self) -> set[int]:
        """The identities (`pool.owner_of`) of the objects that own the kept memory."""
        return set()

    def rounding(self, buffer: Buffer) -> int:  # noqa: ARG002 - for subclasses
        """The number of bytes by which the buffer's block exceeds the buffer."""
        return 0

    @abstractmethod
    def bind(self, buffer: Buffer, meta: Meta) -> Array:
        """The packed array of that meta at the start of the buffer; cached on the buffer (`array`, `meta`)."""

    @abstractmethod
    def bind_view(self, buffer: Buffer, meta: Meta, offset: int, strides: tuple[int, ...]) -> Array:
        """An array of that meta in the buffer, with a byte offset and byte strides."""

    def lay_over(self, array: Array, meta: Meta, offset: int, strides: tuple[int, ...] | None) -> Array:
        """An array of that meta in the memory of another array, with a byte offset. Packed if `strides` is None."""
        return np.ndarray(meta.shape, meta.dtype, array, offset, strides)

    @abstractmethod
    def copy_in(self, target: Array, source: NDArray[np.generic]) -> None:
        """Copy a host array into a device array of the same shape and dtype. Called on the h2d stream's thread."""

    @abstractmethod
    def copy_out(self, source: Array, target: NDArray[np.generic]) -> None:
        """Copy a device array into a host array of the same shape and dtype. Called on the d2h stream's thread."""

    def read(self, source: Array, meta: Meta) -> NDArray[np.generic]:
        """A copy of a device array in a new host array. Called on the thread on which `copy_out` is called."""
        target = self.host_array(meta)
        self.copy_out(source, target)
        return target

    def copy(self, target: Array, source: Array) -> None:
        """Copy an array of this device into another one of the same shape and dtype. Called on a compute stream."""
        target[...] = source

    def copy_out_soon(self, source: Array, target: NDArray[np.generic]) -> bool:
        """Do `copy_out` after all launches. True if the copy was complete within microseconds; the launches are then
        complete, too. False if the copy takes longer or fails; a later fence reports that. Called on the driving
        thread, which then counts the copy as a launch."""
        raise NotImplementedError(f"{self.name} launches nothing: {source.shape}, {target.shape}")

    @abstractmethod
    def peer_copy(self, target: Array, source: Array) -> None:
        """Copy an array of a device that this one reaches into an array of this device. Called on the p2p stream."""

    def merge(
        self,
        target: Array,
        base: Array,
        source: Array,
        function: str,
        receive: Callable[[Array, Array], None] | None = None,
    ) -> None:
        """Merge `base` and `source`, in this order, by a function of the array module, into an array of this device.

        `receive` copies a piece of the source into this device's memory (`copy_in`, `peer_copy`). The source then
        arrives in pieces, through a buffer of at most `MERGE_PIECE_BYTES` bytes that the stream keeps. None: the source
        is read in place. Called on the stream that brings the source.
        """
        raise NotImplementedError(f"{self.name} merges nothing: {target.shape}, {function}")

    def drain(self, source: Array, write: Callable[[NDArray[np.uint8], int], None]) -> None:
        """Give all bytes of a packed array to `write`, in order: host arrays of some MiB, each with its offset. Each
        array is reused once `write` returns. Called on the d2h stream's thread."""
        flat = source.reshape(-1).view("uint8")
        staged: NDArray[np.uint8] = np.empty(min(source.nbytes, STORE_PIECE_BYTES), np.uint8)
        for begin in range(0, source.nbytes, STORE_PIECE_BYTES):
            piece = staged[: min(STORE_PIECE_BYTES, source.nbytes - begin)]
            self.copy_out(flat[begin : begin + len(piece)], piece)
            write(piece, begin)

    def workspace(self, nbytes: int) -> Array:
        """New memory of the device for arrays of kernels, in bytes. No limit counts it."""
        return self.xp.empty(nbytes, "uint8")

    def host_array(self, meta: Meta) -> NDArray[np.generic]:
        """A new host array for copies from and to this device (pinned where that helps)."""
        return np.empty(meta.shape, meta.dtype)

    def lend(self, array: Array) -> Array:
        """A new array object over the same memory, for another owner."""
        return array.view()

    def behind_launches(self) -> Any:
        """An event that is reached after all launches made at admission; None if the device has no events."""
        return None

    def block_size(self, nbytes: int) -> int:
        """The size of a block that holds `nbytes` bytes."""
        return nbytes

    def new_block(self, nbytes: int, user: BlockUser) -> tuple[Any, Array]:
        """A block of at least `nbytes` bytes that another process may open, and an array over the whole block, to be
        adopted.

        The block is kept until its buffer is freed, or is discarded and its user has ended. MemoryError if there is no
        memory, MetadataError if the device has no such blocks.
        """
        raise NotImplementedError(f"{self.name} shares no memory: {nbytes}, {user.pid}")

    def fill_block(self, source: Array, target: Array, block: Any) -> None:
        """Copy a value to the beginning of a block, and clear the rest. Called on a compute stream."""
        raise NotImplementedError(f"{self.name} shares no memory: {source.shape}, {target.shape}, {block}")

    def blocks_left_open(self, pid: int = 0) -> list[int]:  # noqa: ARG002 - for subclasses
        """The bytes of each discarded block that the process `pid` may still have open; 0: any process."""
        return []

    def free_unused_blocks(self) -> None:  # noqa: B027 - one that shares none has nothing to do
        """Free the discarded blocks whose users have ended."""

    def await_event(self, event: Any) -> None:
        """Make later launches of this thread wait for an event of another library. Called on a stream of the device."""
        raise NotImplementedError(f"{self.name} has no events of others: {event!r}")

    def got_to(self, number: int) -> None:
        """Note that all launches up to that number are complete."""
        self.order.reached = number

    def enter(self) -> Any:
        """Prepare this thread for launches on the first compute stream; returns the argument of `leave`. For a device
        that `launches`."""
        return None

    def leave(self, before: Any) -> None:  # noqa: B027 - as `enter`
        """Restore the thread's state from before `enter`."""

    @abstractmethod
    def close(self, timeout: float) -> bool:
        """End the streams and drop the memory; False if a stream did not end in time."""

    def __repr__(self) -> str:
        return f"<device {self.name}>"


def libraries_of(devices: Mapping[str, Device]) -> dict[str, str]:
    """The collective library of each device, with its version, by the device's name."""
    return {name: one.library.version for name, one in devices.items() if one.library is not None}
