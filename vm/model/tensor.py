"""Tensors, storages and mirrored objects.

A *tensor* is what a handle names: a meta, a home device and a view of a storage. A *storage* is the logical object:
a version counter and at most one current copy per device. A *copy* (mirrored object) is the mirror of one storage in
one device memory, and the only thing dependencies are about.

Invariants:
- a copy is `current` exactly while its storage's map holds it; a copy that left the map is never written again;
- `uses` counts the live instructions with an access to the copy. A copy that is not current and has no uses has no
  buffer: the buffer is freed when the later of the two conditions becomes true;
- `queued` counts those of the `uses` that are dispatched, and `stream` is the one stream they went to, or None if they
  went to several. When all uses of a dead copy are queued on one stream, later instructions of that stream may reuse
  its buffer at once;
- `client_mappings` counts the clients' mappings of its memory, so far as the machine knows: what `memory.overwriting`
  says of such memory holds until it is 0 again, which for some it never is;
- `writer` is the leading write of the access list, or None once it is finished; `readers` are the unfinished reads
  that came after it. A finished access leaves in O(1);
- `written` and `touched` are the numbers of the latest launch at admission that wrote the copy, and of the latest that
  used it at all, in the order of its device (`launches`); 0 if there was none.

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

# What a copy mirrors: None for the whole storage, else the layout of the one view whose bytes it holds, packed.
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
        self.nbytes = nbytes  # that it takes on the device (`Device.footprint`); -1 while the meta is pending
        self.version = version
        self.buffer: Buffer | None = None
        self.poison: TensordError | None = None
        self.writer: Instruction | None = None
        self.readers: dict[Instruction, None] | None = None  # None for an empty one: most copies never need it
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
        """Is the copy healthy and valid, or to be written by the version's producer, without any transfer?"""
        writer = self.writer
        if writer is None:
            return self.poison is None
        return writer.error is None and not writer.traits.copies

    @property
    def is_awaited(self) -> bool:
        """Has a launch that wrote it still to be completed, as far as is known?"""
        launches = self.device.launches
        return launches is not None and self.written > launches.order.reached

    def __repr__(self) -> str:
        return f"<copy {self.id} on {self.device.name} v{self.version}>"


class Storage:
    """The logical object behind one or more tensors.

    `copies` maps a device state to its whole current copy; `views` (rarely used) maps (device state, view) to a current
    copy of that view's bytes alone. `sharers` counts the live tensors on the storage, in program order. `account` is
    that of the session that made the storage; None if it never had a value, since its maker was refused. `maker` and
    `location` are the label of the instruction that made it with what it was of, and its location number; `made` is
    when that was, by the engine's clock, 0 if nobody noted it. `used` and `rest`: see `memory.victims`. `evicted`: the
    device that it left last to make room; `returns`: how often it came back. `placed`: where sessions have put the
    present version; what the machine does with its copies changes nothing of that.
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
        """A session wants the present version on one more device."""
        if device not in self.placed:
            self.placed = (*self.placed, device)

    def current(self) -> list[Copy]:
        """Every copy in the map."""
        whole = list(self.copies.values())
        return whole if self.views is None else whole + list(self.views.values())


class Tensor:
    """A tensor: meta (None while pending), home, and the view of its storage.

    `strides` is None for a packed tensor that covers its storage from the start. `holders` counts the handles and
    names that hold it. `dependents` are the instructions and tensors whose metas wait for this one's; `meta_error` is
    the error of the producer, if the meta will never be known. `bound`: more than its session's table may refer to the
    object: an instruction was bound to it, it is an export, or it was moved.
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
        self.dependents: list[Instruction | Tensor] | None = None
        self.meta_error: TensordError | None = None

    def await_meta(self, instruction: Instruction) -> None:
        """Make the instruction wait for a pending meta; doom the instruction if the meta will never be known."""
        if self.meta_error is not None:
            instruction.error = instruction.error or self.meta_error
        elif self.meta is None:
            instruction.pending += 1
            self._add_dependent(instruction)

    def follow(self, base: Tensor) -> None:
        """Learn the meta from `base`, which has the same value, once it is known."""
        self.meta_error = base.meta_error
        if base.meta is None and base.meta_error is None:
            base._add_dependent(self)

    def _add_dependent(self, dependent: Instruction | Tensor) -> None:
        if self.dependents is None:
            self.dependents = []
        self.dependents.append(dependent)

    def view_key(self) -> ViewKey | None:
        """The key of a copy that holds this tensor's bytes alone; None if they are the whole storage's."""
        if self.strides is None or self.meta is None:
            return None
        return (self.offset, self.meta.shape, self.strides)


class Moved(Tensor):
    """A tensor that a session has moved to its home, at that location of its program, or a view of one.

    While the move is to come, `mover` is that session and `mover.moves` holds the tensor (`Residency.begin_moves`).
    Afterwards `mover` is None: the tensor may outlive the session. To wait for a moved tensor is to wait for its bytes
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


def made(id_: int, meta: Meta | None, home: DeviceState, nbytes: int) -> tuple[Tensor, Copy]:
    """A tensor with a storage of its own, whose first version is in one copy at home. `nbytes`: those of the copy."""
    copy = Copy(id_, home, nbytes, 1)
    storage = Storage(-1 if meta is None else meta.nbytes, home, copy)
    return Tensor(meta, storage, home), copy


class Binding(NamedTuple):
    """One tensor operand bound to a copy. `strides` is None where the copy holds the tensor packed."""

    copy: Copy
    tensor: Tensor
    offset: int
    strides: tuple[int, ...] | None
