"""The engine's state of one device: its streams' load, its live instructions, and the ledger of its memory.

In `vm` a *device* is a `DeviceState`; its `backend` is the `Device` of `streams` that does the work.

Only `memory` writes the fields of the ledger. Their invariants:

- `planned` counts the bytes that will be in use once every admitted instruction has run, in program order: the known
  sizes of all current copies here, and the most bytes of results whose size depends on data (`Instruction.max_bytes`);
- `needs` has the instructions that have not reserved their memory yet, in program order, with the bytes that each needs
  (`model.needs`); `unreserved` are its instructions;
- `behind` holds, by author, the needs of instructions that wait for other nodes, which are not in `needs`;
- `waiting` is a heap, in program order, of ready instructions whose memory was not free. Entries that have retired
  since are dropped when they come up;
- `short`: memory was short once. From then on, uses of storages are stamped (`memory.victims`);
- `candidates` are current copies that may be dropped or evicted to make room: those that are or were valid on other
  devices, too; and, on a device with a tier `below`, all current copies once memory was short. Pins, mappings and other
  copies come and go, so `memory.making_room` checks each candidate again before it drops or evicts it;
- `tiers` are the devices to which values may be evicted, the first one is `below`; `eviction` holds the policy
  (`model.eviction`); `ceiling` is the most memory that each session may take, 0 for no limit (`Account.shares`);
- `pins` counts the pins of tensors at home here, `pinned` the pinned tensors of each storage (`memory.pins`);
- `alone` is the tuple with only this device: the `placed` of a storage that sessions have placed nowhere else;
- `uses` numbers the uses of storages, for all devices of an engine;
- `tally` counts ended instructions, for all devices of an engine;
- `standby` holds stale copies that keep their memory until a transfer has retired; each counts as one of its `uses`;
- `mapped` counts the exports of each copy that clients read in place;
- `leaving`: closed sessions have handles that are still to be released, so memory here may become free, and `planned`
  may count bytes that a serial run would not count (`admission.cancellation` sets this);
- `launches`: the launches at admission; None on a device that does not launch;
- `reusable` holds, by stream, buffers that no copy owns. Their last users are queued on that stream, so only later
  instructions of the stream may reuse them until the stream is drained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...interpreter.errors import DeviceMemoryError, TensordError
from ...interpreter.types.sizes import exact_size
from ...streams.device import Buffer, Device
from ...streams.stream import Stream
from .eviction import EvictionState
from .needs import Needs
from .tally import Tally

if TYPE_CHECKING:
    from .instruction import Instruction
    from .launches import Launches
    from .session import VmSession
    from .tensor import Copy, Storage, VmTensor


class Uses:
    """Numbers the uses of storages by messages, in program order."""

    __slots__ = ("newest",)

    def __init__(self) -> None:
        self.newest = 0


UNCOUNTED = 1 << 30  # a value may have so many bytes even on a device with less memory


def count_transfer(carrier: DeviceState, kind: str, author: VmSession, nbytes: int, *, evicts: bool) -> None:
    """Count a transfer for the device whose stream carried it out, and for the session that caused it."""
    carrier.count_move(kind, nbytes)
    add_to(author.counts.moved, nbytes)
    if evicts:
        add_to(author.counts.evicted, nbytes)


def add_to(total: list[int], nbytes: int) -> None:
    """Add one value of `nbytes` to a total of count and bytes."""
    total[0] += 1
    total[1] += nbytes


class DeviceState:
    __slots__ = (
        "abandoned",
        "alone",
        "arena",
        "backend",
        "behind",
        "calls",
        "candidates",
        "ceiling",
        "compute",
        "eviction",
        "inline_work",
        "late_errors",
        "launches",
        "leaving",
        "link",
        "live",
        "long_arena",
        "lost",
        "mapped",
        "moved",
        "name",
        "needs",
        "pinned",
        "pins",
        "planned",
        "recycled",
        "reusable",
        "short",
        "standby",
        "tally",
        "tiers",
        "unreserved",
        "unsettled",
        "users",
        "uses",
        "waiting",
    )

    def __init__(
        self,
        backend: Device,
        inline_work: int,
        *,
        late_errors: bool = False,
        uses: Uses | None = None,
        tally: Tally | None = None,
    ) -> None:
        self.backend = backend
        self.late_errors = late_errors  # errors of this device, or of values that come here, may surface late
        self.inline_work = inline_work  # bounded kernels with at most this work may run on the driving thread
        self.name = backend.name
        self.alone: tuple[DeviceState, ...] = (self,)
        self.compute = list(backend.compute)
        self.live: dict[Instruction, None] = {}  # live instructions that access this device's memory, in program order
        self.users: dict[VmSession, None] = {}  # open sessions that have had instructions on one of its streams
        self.lost: TensordError | None = None  # the error of a lost device
        self.unsettled: list[Storage] | None = None  # storages to check again after a loss; None before the first check
        self.abandoned = False  # the device is lost, nothing on it is live, and none of its copies is healthy
        self.arena: Any = None  # one small arena, outside the limit, for runs of segments at admission
        self.long_arena: Buffer | None = None  # the same for larger arenas, within the limit (`memory.run_memory`)
        self.launches: Launches | None = None  # set by the scheduler
        self.link: Stream | None = None  # the stream of instructions that wait for other nodes, if this is a node
        self.calls: Stream | None = None  # the stream of host calls, on the host device
        self.moved: dict[str, list[int]] = {}  # kind of transfer -> [count, bytes]
        self.tiers: tuple[DeviceState, ...] = ()
        self.eviction = EvictionState(backend)
        self.ceiling = backend.ceiling
        self.uses = uses or Uses()
        self.tally = tally or Tally()
        self.pins: dict[VmTensor, int] = {}
        self.pinned: dict[Storage, int] = {}
        # The ledger.
        self.planned = 0
        self.leaving = False
        self.needs = Needs()
        self.unreserved = self.needs.needs
        self.behind: dict[VmSession, Needs] = {}
        self.waiting: list[tuple[int, Instruction]] = []
        self.short = False
        self.candidates: dict[Copy, Storage] = {}
        self.mapped: dict[Copy, int] = {}
        self.reusable: dict[Stream, list[Buffer]] = {}
        self.standby: dict[Copy, Instruction] = {}
        self.recycled: list[VmTensor] = []  # released tensors for new results (`memory.recycling`)

    @property
    def streams(self) -> list[Stream]:
        """The device's own streams, and the streams of instructions that wait for other nodes or for clients."""
        return [*self.backend.streams, *(one for one in (self.link, self.calls) if one is not None)]

    @property
    def unreserved_bytes(self) -> int:
        """The known bytes that instructions will reserve."""
        return self.needs.nbytes

    @property
    def unknown(self) -> int:
        """The number of instructions that do not know yet how much they will reserve."""
        return self.needs.unknown

    @property
    def below(self) -> DeviceState | None:
        """The first tier to which values are evicted; None if values are not evicted."""
        return self.tiers[0] if self.tiers else None

    def inline(self) -> bool:
        """Whether a small op may run on the driving thread now."""
        return self.compute[0].inline

    def count_move(self, kind: str, nbytes: int) -> None:
        add_to(self.moved.setdefault(kind, [0, 0]), nbytes)

    def refuse_vast(self, nbytes: int, what: str) -> None:
        """DeviceMemoryError for a value that is larger than the device's memory.

        A view can be that large (a broadcast of one element), since views need no memory. Copies for clients are not
        counted in the device's memory, but must not exhaust the host.
        """
        limit = self.backend.limit
        if nbytes > max(limit, UNCOUNTED):
            raise DeviceMemoryError(
                f"{what} of {exact_size(nbytes)} is larger than all the memory of {self.name}, {exact_size(limit)}: "
                "use a part of it"
            )

    def __repr__(self) -> str:
        return f"<state of {self.name}>"
