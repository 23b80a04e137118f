"""An independent model of the dependence rules: recomputes the sources of an admitted instruction.

`verify` and `graph` use it. The engine does not: a checker that ran the engine's code would repeat its mistakes.

    Every copy has an access list: at most one write, then reads.
    A read waits for the write in the list. A write waits for every access in the list, and replaces them all.
    No instruction waits for itself. An instruction that reads and writes a copy makes one access, a write, with one
    edge per source.
    A Barrier waits for every earlier instruction of its session that is still live, back to the latest
    live barrier, which covers the instructions before it.
"""

from __future__ import annotations

from collections.abc import Iterator

from .....interpreter.opcodes import traits_of
from ....model.reason import Reason
from ...record import OperandKind, Record

# The key of an edge: source and copy. An instruction has at most one edge with each key.
Key = tuple[int, int]


class AccessList:
    """The live accesses of one copy, by id of the instruction. The writer is never among the readers."""

    __slots__ = ("readers", "writer")

    def __init__(self) -> None:
        self.writer: int | None = None
        self.readers: dict[int, None] = {}  # a set in the order of admission

    def add(self, instruction: int, *, writes: bool) -> None:
        if writes:
            self.writer = instruction
            self.readers.clear()
        else:
            self.readers[instruction] = None

    def discard(self, instruction: int) -> None:
        self.readers.pop(instruction, None)
        if self.writer == instruction:
            self.writer = None

    def sources(self, *, reads: bool, writes: bool) -> Iterator[tuple[int, Reason]]:
        if self.writer is not None:
            yield self.writer, Reason.RAW if reads else Reason.WAW
        if writes:
            for reader in self.readers:
                yield reader, Reason.WAR


class AccessLists:
    """The access lists of all copies.

    Without calls of `erase`, all accesses stay: the result is logical dependences.
    """

    def __init__(self) -> None:
        self._lists: dict[int, AccessList] = {}

    def admit(self, record: Record) -> dict[Key, Reason]:
        """Enter a record into the lists. Returns the edges that it must have, in the order of its operands."""
        edges: dict[Key, Reason] = {}
        for copy, (reads, writes) in accesses(record).items():
            accesses_of_copy = self._lists.setdefault(copy, AccessList())
            edges |= {(source, copy): reason for source, reason in accesses_of_copy.sources(reads=reads, writes=writes)}
            accesses_of_copy.add(record.id, writes=writes)
        return edges

    def erase(self, record: Record) -> None:
        for operand in record.operands:
            if operand.copy in self._lists:
                self._lists[operand.copy].discard(record.id)


class Barriers:
    """The live instructions of every session, for which barriers wait."""

    def __init__(self) -> None:
        # session -> id -> whether that is a barrier; in the order of admission
        self._live: dict[int, dict[int, bool]] = {}

    def admit(self, record: Record) -> dict[Key, Reason]:
        live = self._live.setdefault(record.session, {})
        edges: dict[Key, Reason] = {}
        if is_barrier(record):
            for source, barrier in reversed(live.items()):
                edges[source, 0] = Reason.BARRIER
                if barrier:
                    break
        live[record.id] = is_barrier(record)
        return edges

    def erase(self, record: Record) -> None:
        self._live.get(record.session, {}).pop(record.id, None)


class LaunchProgress:
    """The launches at admission, and the launch that each device is known to have reached.

    A launch is unfinished from its admission to the end of a fence that covers it. In that time, a record that reads
    the launch's results, or writes its operands, waits for such a fence, unless it follows on the same
    stream.
    """

    def __init__(self) -> None:
        self._reached: dict[str, int] = {}
        self._written: dict[int, tuple[str, int]] = {}  # copy -> the device and the number of the launch
        self._touched: dict[int, tuple[str, int]] = {}
        self._newest: dict[int, dict[str, int]] = {}  # session -> device -> the number of its latest launch

    def admit(self, record: Record) -> Iterator[tuple[int, str, int]]:
        """The unfinished launches on which a record depends, each as copy, device and number. Enters the record."""
        launched = record.launch > 0
        if is_barrier(record):
            newest = self._newest.get(record.session, {}).items()
            yield from ((0, device, number) for device, number in newest if number > self._reached.get(device, 0))
        if launched and not is_fence(record):
            self._newest.setdefault(record.session, {})[record.device] = record.launch
        for copy, (_, writes) in accesses(record).items():
            device, number = (self._touched if writes else self._written).get(copy, ("", 0))
            follows = launched or not record.stream or record.stream == f"{device}/compute0"
            if number > self._reached.get(device, 0) and not follows:
                yield copy, device, number
            if launched and not is_fence(record):
                self._touched[copy] = (record.device, record.launch)
                if writes:
                    self._written[copy] = (record.device, record.launch)

    def erase(self, record: Record) -> None:
        """Note that the record has ended; if it is a fence, its device has reached the fence's launch."""
        if is_fence(record):
            self._reached[record.device] = max(self._reached.get(record.device, 0), record.launch)


def is_fence(record: Record) -> bool:
    """Whether the instruction ends when its device has reached a launch: a fence, or a read in the device's order."""
    return record.launch > 0 and not traits_of(record.opcode).computes


def is_barrier(record: Record) -> bool:
    """Whether the instruction waits for every earlier one of its session."""
    return traits_of(record.opcode).covers_session


def accesses(record: Record) -> dict[int, tuple[bool, bool]]:
    """Copy -> (whether the record reads it, whether the record writes it)."""
    by_copy: dict[int, tuple[bool, bool]] = {}
    for copy, kind, _version in record.operands:
        if kind == OperandKind.FREED:
            continue
        reads, writes = by_copy.get(copy, (False, False))
        const = kind == OperandKind.CONST
        by_copy[copy] = (reads or const, writes or not const)
    return by_copy
