"""The engine's state of one device: its streams' load, its live instructions, and the ledger of its memory.

In `vm` a *device* is a `DeviceState`; its `backend` is the `Device` of `streams` that does the work.

Only `memory` writes the fields of the ledger. Their invariants:

- `planned` counts the bytes that will be in use once every admitted instruction has run, in program order: the sizes of
  all current copies here, as far as they are known, and what those may have that data decide (`Instruction.most`);
- `unreserved` holds, in program order, the instructions that have not reserved their memory yet, with how much they
  need: -1 while a pending meta hides it. `unreserved_bytes` is the sum of the known needs, `unknown` counts the others;
- `behind` has, by author, those of them that wait for other nodes (`model.remote_needs`): they are not in
  `unreserved`;
- `waiting` is a heap, in program order, of ready instructions whose memory was not free. Entries that have retired
  since are dropped when they come up;
- `short`: memory was short once. From then on uses of storages are stamped (`memory.victims`);
- `candidates` are copies that may leave to make room: those that may also be valid on other devices; and where there is
  a tier `below`, all that are current, once memory was short. For some entries that is no longer true, so every reader
  checks;
- `tiers` are those to which values may be evicted, the first one is `below`; `policy` is how they are chosen
  (`memory.victims`), `floor` what each session may keep from others, `ceiling` what each may take, 0 for all
  (`Account.shares`); `rankings` are the orders in which candidates leave, as far as they are known, by the account that
  needs the memory;
- how many values were `evicted` to a tier below, `dropped` to make room since they were valid elsewhere, and
  `returned` to where they had left, and their bytes;
- `pins` counts the pins of tensors whose home it is, `pinned` the pinned tensors of each storage (`memory.pins`);
- `alone`: the device, as where a storage is placed that no session has placed elsewhere, too;
- `uses` numbers the uses of storages, for all devices of an engine;
- `tally` counts what has run, for all devices of an engine;
- `standby` are stale copies that keep their memory until the transfer has retired; each counts as one of its `uses`;
- `mapped` counts the exports of each copy that clients read in place;
- `leaving`: ended sessions have handles that are still to be released, so memory here may become free, and `planned`
  may count some that no serial run would count (`admission.cancellation` sets this);
- `launches`: the launches at admission, None where there are none;
- `reusable` are buffers that no copy owns. Their last users are queued on that stream, so only later instructions of
  the stream may reuse them until the stream is drained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...interpreter.errors import DeviceMemoryError, TensordError
from ...interpreter.types.sizes import exact_size
from ...streams.device import Buffer, Device
from ...streams.stream import Stream
from .remote_needs import RemoteNeeds
from .tally import Tally

if TYPE_CHECKING:
    from .instruction import Instruction
    from .launches import Launches
    from .session import VmSession
    from .tensor import Copy, Storage, Tensor


class Uses:
    """Numbers the uses of storages by messages, in program order."""

    __slots__ = ("newest",)

    def __init__(self) -> None:
        self.newest = 0


UNCOUNTED = 1 << 30  # bytes that a value may have on any device, however small


def add_to(total: list[int], nbytes: int) -> None:
    """Count one more, of so many bytes."""
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
        "dropped",
        "evicted",
        "floor",
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
        "pinned",
        "pins",
        "planned",
        "policy",
        "rankings",
        "recycled",
        "returned",
        "reusable",
        "short",
        "standby",
        "tally",
        "tiers",
        "unknown",
        "unreserved",
        "unreserved_bytes",
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
        self.late_errors = late_errors  # may errors of some device surface late, and so those of values that come here?
        self.inline_work = inline_work  # bounded kernels up to this may run on the driving thread
        self.name = backend.name
        self.alone: tuple[DeviceState, ...] = (self,)
        self.compute = list(backend.compute)
        self.live: dict[Instruction, None] = {}  # instructions that touch this device's memory, in program order
        self.users: dict[VmSession, None] = {}  # open sessions that have ever had instructions on one of its streams
        self.lost: TensordError | None = None  # why nothing is admitted here any more
        self.unsettled: list[Storage] | None = None  # of a lost device; None until they are looked at
        self.abandoned = False  # it is lost, nothing on it is live, and none of its copies is healthy
        self.arena: Any = None  # memory that no limit counts, for runs of segments at admission: one after the other
        self.long_arena: Buffer | None = None  # for larger arenas, which the limit counts (`memory.run_memory`)
        self.launches: Launches | None = None  # set by the scheduler
        self.link: Stream | None = None  # for what waits for other nodes, on a machine that is a node
        self.calls: Stream | None = None  # for what waits for clients, on the device whose values these are sent
        self.moved: dict[str, list[int]] = {}  # kind of transfer -> [count, bytes]
        self.tiers: tuple[DeviceState, ...] = ()
        self.policy = backend.eviction
        self.floor = backend.floor
        self.ceiling = backend.ceiling
        self.uses = uses or Uses()
        self.tally = tally or Tally()
        self.evicted = [0, 0]
        self.dropped = [0, 0]
        self.returned = [0, 0]
        self.pins: dict[Tensor, int] = {}
        self.pinned: dict[Storage, int] = {}
        self.rankings: dict[Any, Any] = {}
        # The ledger.
        self.planned = 0
        self.leaving = False
        self.unreserved: dict[Instruction, int] = {}
        self.unreserved_bytes = 0
        self.unknown = 0
        self.behind: dict[VmSession, RemoteNeeds] = {}
        self.waiting: list[tuple[int, Instruction]] = []
        self.short = False
        self.candidates: dict[Copy, Storage] = {}
        self.mapped: dict[Copy, int] = {}
        self.reusable: dict[Stream, list[Buffer]] = {}
        self.standby: dict[Copy, Instruction] = {}
        self.recycled: list[Tensor] = []  # released tensors for new results (`memory.recycling`)

    @property
    def streams(self) -> list[Stream]:
        """The device's own, and those for what waits for other nodes, and for clients."""
        return [*self.backend.streams, *(one for one in (self.link, self.calls) if one is not None)]

    @property
    def below(self) -> DeviceState | None:
        """The first of the tiers to which values are evicted; None if none are."""
        return self.tiers[0] if self.tiers else None

    def inline(self) -> bool:
        """May a small op run on the driving thread now?"""
        return self.compute[0].inline

    def count_move(self, kind: str, nbytes: int) -> None:
        add_to(self.moved.setdefault(kind, [0, 0]), nbytes)

    def refuse_vast(self, nbytes: int, what: str) -> None:
        """DeviceMemoryError for a value of more bytes than the device has, which a view of one element may have.

        Views cost no memory. Copies for clients are not counted.
        """
        limit = self.backend.limit
        if nbytes > max(limit, UNCOUNTED):
            raise DeviceMemoryError(
                f"{what} of {exact_size(nbytes)} is more than all the memory of {self.name}, {exact_size(limit)}: "
                "use a part of it"
            )

    def __repr__(self) -> str:
        return f"<state of {self.name}>"
