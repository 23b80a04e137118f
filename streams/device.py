"""The interface of a device: its memory, its streams, its array module.

Only the thread that drives the virtual machine reserves and frees memory; kernels run on the streams' threads and only
see arrays bound to buffers. `allocated` counts the bytes of buffers in use, exactly, and those set aside for kernels'
temporaries, which the array module allocates by itself; free memory that a pool keeps for reuse is not counted.
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
from ..interpreter.programs.fusion import Fusion, Terms
from ..interpreter.programs.program import Program
from ..interpreter.schema.opdef import Array, ArrayModule, BoundKernel, OpDef, OutputMetas, lacking
from ..interpreter.types.device_names import kind_of
from ..interpreter.types.meta import Meta, OperandMeta
from .graph import Call, GraphRefusal, LaunchGraph, Moving
from .library import CollectiveLibrary
from .stream import Stream, StreamKind
from .threads.helper_pool import HelperPool

LOOKS: Final = 64  # at a stream, for a small value: some 50 us on a GPU
MERGED: Final = 1 << 20  # bytes of a piece of what is merged
PIECE: Final = 4 << 20  # bytes of host memory through which a value goes between a device and the store


class Eviction(StrEnum):
    """How a device chooses which values leave it when memory gets short (`vm.memory.victims`)."""

    COST = "cost"
    LRU = "lru"
    NEVER = "never"


class Order:
    """The launches at admission on one device, which have their places in the order of its first compute stream.

    `issued`: the number of the newest, given when the call that launched it has returned; `reached`: the highest that
    is known to be complete. Only the driving thread writes them (`vm.model.launches`).
    """

    __slots__ = ("issued", "reached")

    def __init__(self) -> None:
        self.issued = 0
        self.reached = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Buffer:
    """A piece of one device's memory. `array` is the last array bound to it, which has the meta `meta`.

    `behind`: the number of the last launch that used it, in the order of the device, when its owner let go of it
    (`vm.model.launches`). Launches that come later in that order may use the memory at once.
    """

    __slots__ = ("array", "behind", "meta", "nbytes", "raw")

    def __init__(self, nbytes: int, raw: Any) -> None:
        self.nbytes = nbytes  # the requested size, which is also the accounted one
        self.raw = raw  # the device's own object for the memory
        self.array: Array = None
        self.meta: Meta | None = None
        self.behind = 0


class BlockUser(Protocol):
    """A process that may have blocks open."""

    pid: int

    def is_over(self) -> bool:
        """Has it ended?"""


class KernelCall(NamedTuple):
    """A call for which a device binds a kernel. `metas` has None for operands that are not known yet; `in_place`: the
    results' memory is an operand's; `work`: element operations."""

    op: OpDef
    attributes: dict[str, Any]
    metas: tuple[OperandMeta | None, ...]
    outputs: OutputMetas
    in_place: bool
    work: int


class FusionKernel(Protocol):
    """The kernel of a fusion, called as `kernel(*inputs, *outputs)`. `scratch`: bytes that a call takes besides."""

    @property
    def scratch(self) -> int:
        """Bytes of temporaries, at the most."""

    def __call__(self, *given: Any) -> None:
        """Compute the outputs, or launch that."""


class Kept(NamedTuple):
    """Freed memory that a device keeps for reuse: bytes in all, blocks, bytes of the largest block."""

    nbytes: int = 0
    blocks: int = 0
    largest: int = 0


@mypyc_attr(allow_interpreted_subclasses=True)
class Device(ABC):
    """One device. Subclasses: `CpuDevice`, `SimDevice`, `CudaDevice`.

    `limit` is the memory in bytes that may be allocated; `missing` names ops without a kernel here, to which come those
    whose kernels need what the array module lacks.
    """

    def __init__(self, name: str, xp: ArrayModule, limit: int, missing: frozenset[str] = frozenset()) -> None:
        self.name = name
        self.xp = xp
        self.limit = limit
        self.missing = missing | lacking(xp)
        self.allocated = 0
        self.eviction = Eviction.NEVER  # of values that are valid nowhere else
        self.floor = 0  # bytes that a session may keep from others that need room
        self.ceiling = 0  # bytes that the values of a session may take; 0: all
        self.lost: BaseException | None = None  # set once, from any thread: nothing works on this device any more
        self.computes = True  # False: values may lie here, and nothing else: no tensor is at home here
        self.host = False  # True: its arrays are host memory, so that the host can reach them without a transfer
        self.linked = False  # True: links read and fill its arrays where they lie
        self.shared = False  # True: other processes can map its larger blocks
        self.bus_id = ""  # of a GPU, by which other processes find it
        self.cuda_number: int | None = None  # its number in CUDA, if others may read its memory where it lies
        self.helpers: HelperPool | None = None  # threads that help with large kernels
        self.pins = False  # True: large copies are faster from and to what `host_array` gives
        # True: one task may call kernel after kernel, as segments of routines do.
        self.segments = False
        self.graphs = False  # True: `graph_of` may make some
        # Carries out collectives with other devices that have the same one, on `copy_stream(StreamKind.JOINT)`.
        self.library: CollectiveLibrary | None = None
        self.alignment = 64  # bytes, of values in an arena
        self.run_arena = 1 << 20  # bytes of memory for runs at admission, one after the other, that no limit counts
        # True: calling a kernel only puts work in the order of a stream, so ops may be launched at admission. Not those
        # that may raise on some data, where exceptions of kernels cost the device (`raises_late`).
        self.launches = False
        self.takes_numbers = False  # True: kernels take an array of the host's that is used again in place of a number
        self.raises_late = False
        # True: what a kernel refuses may be known after it, so that the launch does not wait (`ops.positions`).
        self.reports_late = False
        self.order = Order()
        self.most_axes = 64  # of an array: NumPy's
        self.pace = 6.0  # element operations per ns, as a first guess

    def least_temporaries(self, op: str, metas: tuple[OperandMeta, ...], outputs: OutputMetas) -> int:  # noqa: ARG002
        """Bytes that the op's kernel takes here besides operands and results, where that is more than NumPy's takes."""
        return 0

    def bind_kernel(self, call: KernelCall) -> tuple[BoundKernel, int]:
        """The kernel of a call, and the bytes of its temporaries: 0 if it can work on pieces, or operands are not known
        yet."""
        op, given, metas, outputs, aliased, _ = call
        kernel = op.bind(self.xp, len(metas), given, aliased=aliased, room=self.limit, kind=kind_of(self.name))
        known = tuple([meta for meta in metas if meta is not None])
        if len(known) < len(metas):
            return kernel, 0
        least = self.least_temporaries(op.name, known, outputs)
        return kernel, op.temporaries(known, outputs, given, aliased=aliased, least=least)

    def fusion_terms(self) -> Terms | None:
        """What this device fuses; None: nothing."""
        return None

    def fuse(self, program: Program, fusion: Fusion, work: int) -> FusionKernel:
        """The kernel of a fusion that was found on this device's terms. `work`: element operations of its steps."""
        raise NotImplementedError(f"{self.name} fuses nothing: {len(program.steps)}, {fusion.steps}, {work}")

    def graph_of(self, calls: Sequence[Call], moving: Sequence[Moving] = ()) -> LaunchGraph | GraphRefusal:  # noqa: ARG002
        """A graph of the calls, or why there is none. Called on the thread that launches tasks; each of the calls was
        made before. What the calls use has to be there as long as the graph is launched; `moving` are arguments
        that lie elsewhere at other launches, of those that a kernel of our own does not take."""
        return GraphRefusal(f"{self.name} makes no graphs")

    def keep_graph(self, graph: LaunchGraph) -> bool:
        """Count a graph's memory as allocated, as long as it lives; False, and it is dropped, if that does not fit.
        Called on the driving thread, as the next two are."""
        raise NotImplementedError(f"{self.name} makes no graphs: {graph}")

    def give_up_graphs(self) -> bool:
        """Drop all graphs, since memory is short; False if there are none."""
        return False

    def graph_bytes(self) -> int:
        """The bytes that count as allocated for graphs."""
        return 0

    def ask(self, work: Callable[[], None]) -> None:
        """Have something done soon on the thread that launches tasks. For a device that makes `graphs`."""
        raise NotImplementedError(f"{self.name} has no such thread: {work}")

    def time_of(self, work: int) -> float:  # noqa: ARG002 - only a simulated device knows
        """Seconds that an op of so many element operations takes here at the least, whatever its kernel takes."""
        return 0.0

    def join(self, devices: Sequence[Device]) -> None:  # noqa: B027 - most do nothing together
        """All devices of the machine are open, these."""

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
        """Can a P2P transfer bring data from `other` to this device directly?"""

    def footprint(self, nbytes: int) -> int:
        """The bytes of this memory that a value of so many bytes takes: the size of its buffer."""
        return nbytes

    @abstractmethod
    def allocate(self, nbytes: int) -> Buffer | None:
        """A buffer of that many bytes, contents undefined, or None if it does not fit now."""

    def prefer_reached(self, nbytes: int) -> None:  # noqa: B027 - one without launches has nothing to prefer
        """Make the next buffer of that many bytes one that no launch may still use, if there is one, or room for it."""

    def set_aside(self, nbytes: int) -> bool:
        """Count so many bytes of temporaries as allocated; False, and nothing is counted, if they do not fit now."""
        if self.allocated + nbytes > self.limit:
            return False
        self.allocated += nbytes
        return True

    def give_back(self, nbytes: int) -> None:
        """The temporaries are gone."""
        self.allocated -= nbytes

    @abstractmethod
    def adopt(self, array: Array) -> Buffer | None:
        """Adopt a packed array without other users (a kernel's result) as a buffer; None if it does not fit."""

    @abstractmethod
    def free(self, buffer: Buffer) -> None:
        """Free the buffer. The caller ensures that it has no users any more."""

    def discard(self, buffer: Buffer) -> None:
        """Free a buffer that others can see, so that its memory is not reused: the system frees it when nobody can."""
        self.free(buffer)

    def kept(self) -> Kept:
        """The freed memory that is kept for reuse, which `allocated` does not count."""
        return Kept()

    def kept_owners(self) -> set[int]:
        """The identities (`pool.owner_of`) of the objects that own that memory."""
        return set()

    def rounding(self, buffer: Buffer) -> int:  # noqa: ARG002 - for subclasses
        """How many bytes the buffer's block has beyond those of the buffer."""
        return 0

    @abstractmethod
    def bind(self, buffer: Buffer, meta: Meta) -> Array:
        """The packed array of that meta at the start of the buffer; cached on the buffer (`array`, `meta`)."""

    @abstractmethod
    def bind_view(self, buffer: Buffer, meta: Meta, offset: int, strides: tuple[int, ...]) -> Array:
        """An array of that meta laid over the buffer with a byte offset and byte strides."""

    def lay_over(self, array: Array, meta: Meta, offset: int, strides: tuple[int, ...] | None) -> Array:
        """An array of that meta laid over the memory of another one, with a byte offset; packed without strides."""
        return np.ndarray(meta.shape, meta.dtype, array, offset, strides)

    @abstractmethod
    def copy_in(self, target: Array, source: NDArray[np.generic]) -> None:
        """Copy a host array into a device array of the same shape and dtype. Called on the h2d stream's thread."""

    @abstractmethod
    def copy_out(self, source: Array, target: NDArray[np.generic]) -> None:
        """Copy a device array into a host array of the same shape and dtype. Called on the d2h stream's thread."""

    def read(self, source: Array, meta: Meta) -> NDArray[np.generic]:
        """A copy of a device array in a host array of its own. Called where `copy_out` is."""
        target = self.host_array(meta)
        self.copy_out(source, target)
        return target

    def copy(self, target: Array, source: Array) -> None:
        """Copy an array of this device into another one of the same shape and dtype. Called on a compute stream."""
        target[...] = source

    def copy_out_soon(self, source: Array, target: NDArray[np.generic]) -> bool:
        """`copy_out` behind all launches. True if it was over within some microseconds: then they are complete, too.
        False if it takes longer, or fails, which a fence behind it will report. Called on the driving thread, which
        then numbers it as a launch."""
        raise NotImplementedError(f"{self.name} launches nothing: {source.shape}, {target.shape}")

    @abstractmethod
    def peer_copy(self, target: Array, source: Array) -> None:
        """Copy an array of a device that this one reaches into an array of this one. Called on the p2p stream."""

    def merge(
        self,
        target: Array,
        base: Array,
        source: Array,
        function: str,
        receive: Callable[[Array, Array], None] | None = None,
    ) -> None:
        """Merge `base` and `source`, in this order, by a function of the array module, into an array of this device.

        `receive` copies a piece of the source into this device's memory (`copy_in`, `peer_copy`): then the source comes
        piece by piece, through a buffer of `MERGED` bytes at the most, which the stream keeps. None: it is read where
        it lies. Called on the stream that brings the source.
        """
        raise NotImplementedError(f"{self.name} merges nothing: {target.shape}, {function}")

    def drain(self, source: Array, write: Callable[[NDArray[np.uint8], int], None]) -> None:
        """Give all bytes of a packed array to `write`, in order: host arrays of some MiB, each with its offset, which
        are used again when it returns. Called on the d2h stream's thread."""
        flat = source.reshape(-1).view("uint8")
        staged: NDArray[np.uint8] = np.empty(min(source.nbytes, PIECE), np.uint8)
        for begin in range(0, source.nbytes, PIECE):
            piece = staged[: min(PIECE, source.nbytes - begin)]
            self.copy_out(flat[begin : begin + len(piece)], piece)
            write(piece, begin)

    def workspace(self, nbytes: int) -> Array:
        """Fresh memory of the device for kernels' arrays, in bytes, that no limit counts."""
        return self.xp.empty(nbytes, "uint8")

    def host_array(self, meta: Meta) -> NDArray[np.generic]:
        """A fresh host array fit to be copied from or to this device (pinned where that helps)."""
        return np.empty(meta.shape, meta.dtype)

    def lend(self, array: Array) -> Array:
        """Another array over the same memory, which is its holder's own."""
        return array.view()

    def behind_launches(self) -> Any:
        """An event behind all that was launched at admission; None if there can be none."""
        return None

    def block_size(self, nbytes: int) -> int:
        """The bytes of a block for so many."""
        return nbytes

    def new_block(self, nbytes: int, user: BlockUser) -> tuple[Any, Array]:
        """A block of so many bytes or more that another process may open, and an array over all of it, to be adopted.

        It is kept until its buffer is freed, or discarded and its user over. MemoryError if there is no memory for it,
        MetadataError if the device has no such blocks.
        """
        raise NotImplementedError(f"{self.name} shares no memory: {nbytes}, {user.pid}")

    def fill_block(self, source: Array, target: Array, block: Any) -> None:
        """Copy a value to the beginning of a block, and clear the rest. Called on a compute stream."""
        raise NotImplementedError(f"{self.name} shares no memory: {source.shape}, {target.shape}, {block}")

    def blocks_left_open(self, pid: int = 0) -> list[int]:  # noqa: ARG002 - for subclasses
        """The bytes of each block that was discarded, but may be open, in that process or in any."""
        return []

    def let_go_of_blocks(self) -> None:  # noqa: B027 - one that shares none has nothing to do
        """Free the discarded blocks whose users are over by now."""

    def await_event(self, event: Any) -> None:
        """Have what this thread launches wait for an event of others. Called on a stream of the device."""
        raise NotImplementedError(f"{self.name} has no events of others: {event!r}")

    def got_to(self, number: int) -> None:
        """All launches up to that number are complete."""
        self.order.reached = number

    def enter(self) -> Any:
        """Make this thread ready to launch on the first compute stream; what `leave` takes. For a device that
        `launches`."""
        return None

    def leave(self, before: Any) -> None:  # noqa: B027 - as `enter`
        """Make current again what was so before `enter`."""

    @abstractmethod
    def close(self, timeout: float) -> bool:
        """End the streams and drop the memory; False if a stream did not end in time."""

    def __repr__(self) -> str:
        return f"<device {self.name}>"


def libraries_of(devices: Mapping[str, Device]) -> dict[str, str]:
    """The library of collectives that a device has, with its version, by the device's name."""
    return {name: one.library.version for name, one in devices.items() if one.library is not None}
