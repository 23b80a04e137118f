"""A device: what the engine keeps for one device. Its streams' load and its memory ledger.

The ledger makes one promise: a program that fits in the device's memory when its instructions run one by one fits
here too, in whatever order they become ready.

- `planned` counts the bytes that will be in use once every admitted instruction has run, in program order. Where a
  new instruction would exceed the limit, admission drops replicas (copies valid elsewhere too) from the plan first.
- Memory is reserved at dispatch. `unreserved` holds, in program order, the instructions that have not reserved yet.
  The first of them may reserve whenever it fits. A later one may overtake only if what is left still suffices for
  all that are unreserved, so the first always finds its memory once everything before it has retired.
- `waiting` are ready instructions whose memory was not free. They block no stream; each release of memory tries
  them again, the oldest first. The oldest live instruction of the device fails if it does not fit even then.

Rejected: reserving in order of readiness (two half-admitted programs deadlock or fail where either would have fitted),
and reserving at admission (a long pending list would hold memory that it needs only later).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...interpreter.errors import DeviceMemoryError, TensordError
from ...streams.device import Buffer, Device
from ...streams.stream import Stream

if TYPE_CHECKING:
    from .instruction import Instruction
    from .session import VmSession
    from .tensor import Copy, Storage

UNCOUNTED = 1 << 30  # bytes that a value may have on however small a device


class DeviceState:
    """The engine's side of one device."""

    __slots__ = (
        "backend",
        "compute",
        "hand_me_downs",
        "inline_work",
        "live",
        "lost",
        "moved",
        "name",
        "pinned",
        "planned",
        "replicas",
        "unknown",
        "unreserved",
        "unreserved_bytes",
        "users",
        "waiting",
    )

    def __init__(self, backend: Device, inline_work: int) -> None:
        self.backend = backend
        self.inline_work = inline_work  # bounded kernels up to this may run on the driving thread
        self.name = backend.name
        self.compute = list(backend.compute)
        self.planned = 0
        self.unreserved: dict[Instruction, int] = {}
        self.unreserved_bytes = 0
        self.unknown = 0  # unreserved instructions whose needs are not known yet (pending meta)
        self.waiting: list[tuple[int, Instruction]] = []  # a heap by id
        self.live: dict[Instruction, None] = {}  # instructions that touch this device's memory, in program order
        self.users: dict[VmSession, None] = {}  # open sessions that have ever had something on one of its streams
        self.lost: TensordError | None = None  # the device is: nothing is admitted here any more
        self.replicas: dict[Copy, Storage] = {}  # least recently used first
        self.pinned: dict[Copy, int] = {}  # copies that clients have mapped -> how many holds
        self.moved: dict[str, list[int]] = {}  # kind of transfer -> [count, bytes]
        self.hand_me_downs: dict[Stream, list[Buffer]] = {}  # free for later instructions of that stream, not for all

    def owe(self, instruction: Instruction, nbytes: int | None) -> None:
        """Admission: the instruction will reserve that many bytes (None: not known yet)."""
        if nbytes is None:
            self.unknown += 1
            self.unreserved[instruction] = -1
        else:
            self.unreserved[instruction] = nbytes
            self.unreserved_bytes += nbytes

    def owe_late(self, instruction: Instruction, nbytes: int) -> None:
        """After admission: the instruction will reserve that many bytes, in its place among the others."""
        if instruction not in self.unreserved:
            self.unreserved_bytes += nbytes
            self.unreserved[instruction] = nbytes
            self.unreserved = dict(sorted(self.unreserved.items(), key=lambda entry: entry[0].id))

    def learn(self, instruction: Instruction, nbytes: int) -> None:
        """The pending meta is resolved: the instruction will reserve that many bytes."""
        if self.unreserved.get(instruction) == -1:
            self.unknown -= 1
            self.unreserved[instruction] = nbytes
            self.unreserved_bytes += nbytes

    def settle(self, instruction: Instruction) -> None:
        """The instruction has reserved its memory, or never will."""
        nbytes = self.unreserved.pop(instruction, 0)
        if nbytes < 0:
            self.unknown -= 1
        else:
            self.unreserved_bytes -= nbytes

    def may_reserve(self, instruction: Instruction, nbytes: int) -> bool:
        """May the instruction reserve now without endangering one in front of it?"""
        backend = self.backend
        free = backend.limit - backend.allocated
        if not self.unknown and free >= self.unreserved_bytes:
            return True  # enough for everybody
        if next(iter(self.unreserved), instruction) is instruction:
            return True
        # Someone in front does not know its needs: leave it half of the device.
        return self.unknown > 0 and free - nbytes >= max(self.unreserved_bytes, backend.limit // 2)

    def has_spare(self, nbytes: int) -> bool:
        """Is so much free beside all that instructions in front still have to reserve?"""
        return not self.unknown and self.backend.limit - self.backend.allocated - nbytes >= self.unreserved_bytes

    def allocate(self, nbytes: int, stream: Stream | None) -> Buffer | None:
        """A buffer for an instruction of that stream, after dropping idle replicas if need be; None if none fits."""
        handed = self.hand_me_downs.get(stream) if stream is not None else None
        if handed:
            for i in range(len(handed) - 1, -1, -1):
                if handed[i].nbytes == nbytes:
                    return handed.pop(i)
        buffer = self.backend.allocate(nbytes)
        while buffer is None and self.drop_idle_replica():
            buffer = self.backend.allocate(nbytes)
        return buffer

    def refuse_vast(self, nbytes: int, what: str) -> None:
        """DeviceMemoryError for a value of more bytes than the device has, as a view of one element may stand for.

        Views cost nothing. What kernels make of them meanwhile, and copies for clients, are memory that nobody counts.
        """
        if nbytes > max(self.backend.limit, UNCOUNTED):
            raise DeviceMemoryError(
                f"{what} of {nbytes} bytes is more than all the memory of {self.name} ({self.backend.limit} bytes): "
                "use a part of it"
            )

    def used(self, copy: Copy) -> None:
        """The copy is the most recently used one."""
        if copy in self.replicas:
            self.replicas[copy] = self.replicas.pop(copy)

    def adopt(self, array: Any) -> Buffer | None:
        """An array of its own as a buffer, after dropping idle replicas if need be; None if it does not fit."""
        buffer = self.backend.adopt(array)
        while buffer is None and self.drop_idle_replica():
            buffer = self.backend.adopt(array)
        return buffer

    def drop_idle_replica(self) -> bool:
        """Free the least recently used copy that is valid elsewhere and that nobody is to use. False: there is none."""
        for copy, storage in list(self.replicas.items()):
            if not self.may_forget(copy, storage):
                del self.replicas[copy]
            elif not copy.uses and any(c.writer is None and c.poison is None for c in others(storage, copy)):
                self.forget(copy, storage)
                return True
        return False

    def make_room(self, spare: set[Copy]) -> None:
        """Drop replicas, but none of `spare`, until what is planned fits or none is left."""
        excess = self.planned - self.backend.limit
        if excess <= 0:
            return
        for copy, storage in list(self.replicas.items()):
            if not self.may_forget(copy, storage):
                del self.replicas[copy]
            elif copy not in spare and any(c.is_or_will_be_valid for c in others(storage, copy)):
                excess -= copy.nbytes
                self.forget(copy, storage)
                if excess <= 0:
                    return

    def may_forget(self, copy: Copy, storage: Storage) -> bool:
        """Is it in its storage's map, and another whole copy, too, and has no client mapped it?"""
        return copy.current and copy not in self.pinned and (copy.view is not None or len(storage.copies) > 1)

    def forget(self, copy: Copy, storage: Storage) -> None:
        """Take a copy out of its storage's map."""
        self.replicas.pop(copy, None)
        if copy.view is not None:
            if storage.views is not None:
                storage.views.pop((self, copy.view), None)
        elif storage.copies.get(self) is copy:
            del storage.copies[self]
        self.drop(copy)

    def drop(self, copy: Copy) -> None:
        """The copy left the map: it is stale. Its buffer goes with its last use."""
        if copy.current:
            copy.current = False
            if copy.nbytes > 0:
                self.planned -= copy.nbytes
            self.retire_buffer(copy)

    def retire_buffer(self, copy: Copy) -> None:
        """The copy is dead: free its buffer, or hand it down to the one stream where all of its uses are queued."""
        if not copy.uses:
            self.free(copy)
            return
        stream = copy.stream  # a transfer may use it on another device's stream, to which memory of this one is no use
        if copy.buffer is not None and copy.queued == copy.uses and stream is not None and stream.device == self.name:
            if not stream.queued:  # all have been executed; they only wait for the statuses of their sources
                self.free(copy)
                return
            if copy.buffer.exposed:
                return
            self.hand_me_downs.setdefault(stream, []).append(copy.buffer)
            copy.buffer = None

    def give_up(self, copy: Copy) -> None:
        """Nobody reads what a failed write left, and nothing is bound to it: its memory goes. Who heals it makes it."""
        self.free(copy)
        heir = copy.writer
        if heir is None and copy.current and copy.nbytes > 0:  # a later write makes a new copy
            self.planned -= copy.nbytes
            copy.nbytes = 0
        if heir is None or heir.error is not None or heir.handed or copy.nbytes <= 0:
            return
        if any(b.copy is copy for b in heir.outputs):  # a release is a writer, too, but makes nothing
            self.owe_late(heir, copy.nbytes)

    def free(self, copy: Copy) -> None:
        """Give the copy's buffer back."""
        if copy.buffer is not None:
            self.backend.free(copy.buffer)
            copy.buffer = None

    def count_move(self, kind: str, nbytes: int) -> None:
        """Count a finished transfer."""
        moved = self.moved.setdefault(kind, [0, 0])
        moved[0] += 1
        moved[1] += nbytes

    def inline(self) -> bool:
        """May a small op run on the driving thread now?"""
        return self.compute[0].inline

    def touched(self, stream: Stream, step: int) -> None:
        """A stream's queue grew or shrank by `step`."""
        stream.queued += step
        if stream.queued == 0 and self.hand_me_downs:
            for buffer in self.hand_me_downs.pop(stream, ()):
                self.backend.free(buffer)

    def __repr__(self) -> str:
        return f"<device {self.name}>"


def others(storage: Storage, copy: Copy) -> list[Copy]:
    """The storage's other whole copies."""
    return [c for c in storage.copies.values() if c is not copy]
