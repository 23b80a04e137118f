"""The trace ring: flat entries of the last finished instructions, bounded, always on.

The ring keeps tuples of atoms, since the garbage collector walks all live objects: with whole instructions in the
ring, an op took 13.9 us instead of 5.1. `records` converts them to records.

Entries have two forms, see `flat`. `add` appends the long form of an instruction; instructions that ran at admission
and never had an edge are appended in the short form (`append`).
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from ..model.instruction import Instruction
from ..model.linked import SessionProgram
from ..model.session import VmSession
from ..model.signature import NOTHING, PlainMeta, Signature, plain
from ..model.tensor import Binding
from .flat import Where, inflate
from .known_routines import KnownRoutines
from .record import Record


class Details:
    """Which runs are timed, call by call: each `every`th run of a segment, of any session; 0: none.

    Also, each `every`th launch gets a fence of its own (`scheduler.fences`), from which its time follows.

    A session may ask for timed runs, as a recording does, until the session ends. The smallest `every` applies to all.
    """

    def __init__(self) -> None:
        self.every = 0
        self._wanted: dict[VmSession, int] = {}

    def ask(self, session: VmSession, every: int) -> None:
        """Set a session's request: one of `every` runs, or no runs any more (0)."""
        self._wanted[session] = every
        self._settle()

    def forget(self, session: VmSession) -> None:
        if self._wanted.pop(session, None) is not None:
            self._settle()

    def _settle(self) -> None:
        self._wanted = {session: every for session, every in self._wanted.items() if every}
        self.every = min(self._wanted.values(), default=0)


CAPACITY = 1 << 14
COPY_ID: Final = attrgetter("id")  # ids of many copies without a frame of Python for each
STAMPS = 1 << 18  # how many times of calls inside runs are kept


class RecordRing:
    """The last `capacity` finished instructions, and the routines to which they refer.

    `stamps`: for each timed run, when its calls started and ended, as packed 64-bit integers, by the instruction's id.
    """

    def __init__(self, *, enabled: bool = True, capacity: int = CAPACITY) -> None:
        self.enabled = enabled
        self.entries: deque[tuple[Any, ...]] = deque(maxlen=capacity)
        self.append = self.entries.append
        self.routines = KnownRoutines(capacity)
        self.details = Details()
        self.stamps: OrderedDict[int, bytes] = OrderedDict()
        self._stamped = 0  # bytes of `stamps`

    def add(self, instruction: Instruction, erased: int) -> None:
        if self.enabled:
            self.append(flatten(instruction, erased))

    def keep_stamps(self, instruction: int, stamps: Sequence[int]) -> None:
        """Keep the times of an instruction's calls, and drop the oldest times beyond `STAMPS`."""
        if self.enabled:
            self.stamps[instruction] = packed = array("q", stamps).tobytes()
            self._stamped += len(packed)
            while self._stamped > 8 * STAMPS:
                self._stamped -= len(self.stamps.popitem(last=False)[1])

    def forget(self, session: VmSession) -> None:
        """Note that a session has ended, and its routines with it."""
        self.details.forget(session)
        for routine in session.routines.values():
            if isinstance(routine, SessionProgram):
                self.routines.released(routine)

    def records(self, where: Where) -> list[Record]:
        """All entries as records, in the order of admission.

        `where`: from session and location number to the location.
        """
        found = [inflate(entry, where, self.stamps.get(entry[0], b"")) for entry in list(self.entries)]
        return sorted(found, key=lambda record: record.admitted)


def flatten(i: Instruction, erased: int) -> tuple[Any, ...]:
    """The long form of an instruction: the fields of `Record`, with flat operands and edges, and the location's
    number."""
    kinds, copies = operands_of(i)
    plan = i.plan
    return (
        i.id,
        i.session.id,
        i.opcode._value_,  # a fifth of the time of `value`
        i.label,
        i.status._value_,
        i.device.name if i.stream is None else i.stream.device,
        stream_name(i),
        kinds,
        copies,
        i.versions,
        tuple(chain.from_iterable(i.edges)),
        i.admitted,
        erased,
        (i.received, i.ready, i.dispatched, i.started, i.finished),
        max(i.bytes_moved, 0),
        i.author.id,
        i.location,
        "" if i.error is None and i.failures is None else error_text(i),
        plan.signature if plan is not None and not plan.open else bound_signature(i),
        i.used,
        i.held,
        i.launch,
    )


def error_text(i: Instruction) -> str:
    """`Type: message` of a failed instruction; if only some of its results failed, the first of their errors."""
    if i.error is not None:
        return f"{type(i.error).__name__}: {i.error.message}"
    own = i.own_failures()
    return f"in part: {type(own[0]).__name__}: {own[0].message}" if own else ""


def stream_name(i: Instruction) -> str:
    """The stream of the instruction, `control` for the driving thread; empty if it has not been dispatched."""
    if i.queue is not None and i.stream is not None:
        return i.stream.name
    return f"{i.device.name}/control" if i.started else ""


def bound_signature(i: Instruction) -> Signature | PlainMeta:
    """The signature of an instruction that has no complete plan: the known metas of its operands.

    A transfer has one meta for both of its ends.
    """
    plan = i.plan
    if plan is None and not i.inputs and not i.outputs:
        return NOTHING
    if plan is None and i.traits.copies and i.outputs:
        return plain(i.outputs[0].tensor.meta)
    inputs = tuple([plain(v.tensor.meta if isinstance(v, Binding) else type(v)) for v in i.inputs])
    outputs = tuple([plain(binding.tensor.meta) for binding in i.outputs])
    if plan is not None:
        return inputs, outputs, plan.signature[2], plan.signature[3]
    return inputs, outputs, "", 0


def operands_of(i: Instruction) -> tuple[str, tuple[int, ...]]:
    """The kinds of the operands ("r", "w" or "2" for each, see `flat.KINDS`), and the ids of their copies."""
    write = "2" if i.plan is not None and i.plan.op.dynamic else "w"
    kinds = "r" * len(i.reads) + write * len(i.writes)
    return kinds, tuple(map(COPY_ID, (*i.reads, *i.writes)))
