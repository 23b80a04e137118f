"""Tensors, storages and copies (mirrored objects).

A *tensor* is the object of a handle: a meta, a home device and a view of a storage. A *storage* is the logical object:
a version counter and at most one current copy per device. A *copy* is the mirror of one storage in one device's memory;
dependences exist only between accesses of copies.

Invariants:
- a copy is `current` exactly while its storage's map holds it; a copy that has left the map is never written again;
- `uses` counts the live instructions that access the copy. A copy that is not current and has no uses has no buffer:
  the buffer is freed when the later of the two conditions becomes true;
- `queued` counts the uses that are dispatched, and `stream` is the one stream to which they went, or None if they went
  to several. When all uses of a stale copy are queued on one stream, later instructions of that stream may reuse its
  buffer at once;
- `client_mappings` counts the clients' mappings of the copy's memory that the machine knows of. While it is not 0,
  which for some copies is forever, the rules of `memory.overwriting` for client-mapped memory hold;
- `writer` is the leading write of the access list, or None once it is finished; `readers` are the unfinished reads
  after it. A finished access leaves the list in O(1);
- `written` and `touched` are the numbers of the latest launches at admission that wrote and used the copy (`launches`);
  0 if there was none.

Source: OneFlow's MirroredObject and its access list; Glow's device-resident tensors for the map of valid copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ...interpreter.errors import TensordError
from ...interpreter.types.meta import Meta, Shape
from ...streams.device import Buffer
from ...streams.stream import Stream
from .account import Account
from .device_state import DeviceState
from .signature import UNMADE, Maker

if TYPE_CHECKING:
    from .instruction import Instruction
    from .session import VmSession

# The part of a storage that a copy mirrors: None for all of it, else the layout of a view whose bytes it holds, packed.
ViewKey: TypeAlias = tuple[int, Shape, tuple[int, ...]]


class Copy:
    """The mirror of one storage, or of one view of it, in one device memory."""

    __slots__ = (
        "buffer",
        "client_mappings",
        "counted",
        "current",
        "device",
        "id",
        "nbytes",
        "poison",
        "queued",
        "readers",
        "stream",
        "touched",
        "uses",
        "version",
        "view",
        "writer",
        "written",
    )

    def __init__(self, id_: int, device: DeviceState, nbytes: int, version: int) -> None:
        self.id = id_
        self.device = device
        self.nbytes = nbytes  # bytes on the device (`Device.footprint`); -1 while the meta is pending
        self.version = version
        self.buffer: Buffer | None = None
        self.poison: TensordError | None = None
        self.writer: Instruction | None = None
        self.readers: dict[Instruction, None] | None = None  # None if empty, since most copies never have any
        self.uses = 0
        self.queued = 0
        self.client_mappings = 0
        self.written = 0
        self.touched = 0
        self.stream: Stream | None = None
        self.current = True
        self.view: ViewKey | None = None
        self.counted: Account | None = None

    @property
    def is_or_will_be_valid(self) -> bool:
        """Whether the copy is healthy, or will be written by the producer of its version, without a transfer."""
        writer = self.writer
        if writer is None:
            return self.poison is None
        return writer.error is None and not writer.traits.copies

    @property
    def is_awaited(self) -> bool:
        """Whether a launch that writes the copy is not known to be complete."""
        launches = self.device.launches
        return launches is not None and self.written > launches.order.reached

    def __repr__(self) -> str:
        return f"<copy {self.id} on {self.device.name} v{self.version}>"


class Storage:
    """The logical object behind one or more tensors.

    `copies` maps a device state to its whole current copy; `views` (rarely used) maps (device state, view) to a current
    copy of that view's bytes alone. `sharers` counts the live tensors on the storage, in program order. `account`: that
    of the session that made the storage; None if the storage has no value because its maker was refused. `maker`,
    `location`, `made`: the label and signature of the instruction that made the storage, its location number, and the
    time by the engine's clock, or 0. `used`, `rest`: see `memory.victims`. `evicted`: the device from which the storage
    was last evicted; `returns`: the number of its returns. `placed`: the devices on which sessions have put the present
    version; transfers and evictions of the machine do not change it.
    """

    __slots__ = (
        "account",
        "copies",
        "evicted",
        "location",
        "made",
        "maker",
        "nbytes",
        "placed",
        "rest",
        "returns",
        "sharers",
        "used",
        "version",
        "views",
    )

    def __init__(
        self,
        nbytes: int,
        device: DeviceState,
        copy: Copy,
        account: Account | None = None,
        maker: Maker = UNMADE,
        location: int = 0,
        made: int = 0,
    ) -> None:
        self.nbytes = nbytes
        self.account = account
        self.maker = maker
        self.location = location
        self.made = made
        self.copies: dict[DeviceState, Copy] = {device: copy}
        self.views: dict[tuple[DeviceState, ViewKey], Copy] | None = None
        self.version = copy.version
        self.sharers = 1
        self.used = device.uses.newest
        self.rest = 0
        self.evicted: DeviceState | None = None
        self.returns = 0
        self.placed: tuple[DeviceState, ...] = device.alone

    def place(self, device: DeviceState) -> None:
        """Note that a session has put the present version on one more device."""
        if device not in self.placed:
            self.placed = (*self.placed, device)

    def current(self) -> list[Copy]:
        """Every current copy, copies of views included."""
        whole = list(self.copies.values())
        return whole if self.views is None else whole + list(self.views.values())


class VmTensor:
    """A tensor: meta (None while pending), home, and the view of its storage.

    `strides` is None for a packed tensor that covers its storage from the start. `holders` counts the handles and names
    of the tensor. `dependents` are the instructions and tensors whose metas wait for this tensor's; `meta_error` is the
    producer's error, if the meta will never be known. `bound`: something besides its session's table may refer to the
    object, since an instruction was bound to it, it is an export, or it was moved.
    """

    __slots__ = ("bound", "dependents", "holders", "home", "meta", "meta_error", "offset", "storage", "strides")

    def __init__(self, meta: Meta | None, storage: Storage, home: DeviceState) -> None:
        self.meta = meta
        self.storage = storage
        self.home = home
        self.offset = 0
        self.strides: tuple[int, ...] | None = None
        self.holders = 1
        self.bound = False
        self.dependents: list[Instruction | VmTensor] | None = None
        self.meta_error: TensordError | None = None

    def follow(self, base: VmTensor) -> None:
        """Take over the meta of `base`, which has the same value, once it is known."""
        self.meta_error = base.meta_error
        if base.meta is None and base.meta_error is None:
            base.add_dependent(self)

    def add_dependent(self, dependent: Instruction | VmTensor) -> None:
        """Note an instruction, or a tensor with the same value, that needs the meta once it is known."""
        if self.dependents is None:
            self.dependents = []
        self.dependents.append(dependent)

    def view_key(self) -> ViewKey | None:
        """The key of a copy that holds only this tensor's bytes; None for a tensor that covers its storage."""
        if self.strides is None or self.meta is None:
            return None
        return (self.offset, self.meta.shape, self.strides)


class Moved(VmTensor):
    """A tensor that a session has moved to its home, at `location` of its program, or a view of such a tensor.

    Until the move begins, `mover` is that session and `mover.moves` holds the tensor (`Residency.begin_moves`).
    Afterwards `mover` is None, since the tensor may outlive the session. A wait for a moved tensor waits for its bytes
    at home.
    """

    __slots__ = ("location", "mover")

    def __init__(
        self, meta: Meta | None, storage: Storage, home: DeviceState, mover: VmSession | None, location: int
    ) -> None:
        super().__init__(meta, storage, home)
        self.mover = mover
        self.location = location
        self.bound = True


def made(id_: int, meta: Meta | None, home: DeviceState, nbytes: int) -> tuple[VmTensor, Copy]:
    """A tensor with a storage of its own, whose first version is in one copy at home. `nbytes`: of the copy."""
    copy = Copy(id_, home, nbytes, 1)
    storage = Storage(-1 if meta is None else meta.nbytes, home, copy)
    return VmTensor(meta, storage, home), copy


class Binding(NamedTuple):
    """A tensor operand bound to a copy. `strides` is None if the copy holds the tensor packed."""

    copy: Copy
    tensor: VmTensor
    offset: int
    strides: tuple[int, ...] | None
