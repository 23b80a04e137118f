"""The records of a trace, in the order of admission, and the run of each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, Self, TypeVar

from .....interpreter.errors import ProtocolError
from ...record import Holding, Record, RoutineRecord, RunRecord, times
from .text import plural

T = TypeVar("T", bound="Records")


class RecordedRuns:
    """The runs of a trace that consist of several instructions. If a run is given twice, the last one counts."""

    def __init__(self, runs: Iterable[RunRecord] = ()) -> None:
        self._sessions: dict[int, dict[int, RunRecord]] = {}
        for run in runs:
            self._sessions.setdefault(run.session, {})[run.first] = run
        self._firsts = {session: sorted(found) for session, found in self._sessions.items()}

    def __iter__(self) -> Iterator[RunRecord]:
        for session, firsts in self._firsts.items():
            yield from (self._sessions[session][first] for first in firsts)

    def __len__(self) -> int:
        return sum(map(len, self._firsts.values()))

    def of(self, record: Record) -> RunRecord | None:
        """The run to which an instruction belongs; None if it is none of these."""
        firsts = self._firsts.get(record.session)
        index = bisect_right(firsts, record.id) if firsts else 0
        if not firsts or not index:
            return None
        run = self._sessions[record.session][firsts[index - 1]]
        return run if not run.last or record.id <= run.last else None


class Memory(NamedTuple):
    """The memory in use when a trace was taken: bytes by device, and the largest copies. Empty if unknown."""

    used: Mapping[str, int] = MappingProxyType({})
    holdings: tuple[Holding, ...] = ()


class Records:
    """The records of a trace in the order of admission, with the facts about the trace as a whole.

    `dropped`: how many records were lost, before the oldest one or in gaps. `before`: how many instructions were
    left out on purpose: they had finished before the recording began, or were not asked for. `base_tick`: the end of
    the last gap, up to which records may be missing (0: none is missing after the oldest). `devices`: the names of
    the machine's devices, by default those in the records. `taken`: when the trace was taken, in the clock of the
    records, 0 if unknown. `memory`: the memory in use at that time. `routines`: by number. `runs`: those of several
    instructions.
    """

    def __init__(
        self,
        records: Iterable[Record],
        *,
        devices: Iterable[str] = (),
        dropped: int = 0,
        before: int = 0,
        base_tick: int = 0,
        taken: int = 0,
        memory: Memory = Memory(),  # noqa: B008 - immutable
        routines: Iterable[RoutineRecord] = (),
        runs: Iterable[RunRecord] = (),
    ) -> None:
        self.records = tuple(sorted(records, key=lambda record: (record.admitted, record.id)))
        self.devices = tuple(devices) or tuple(sorted({record.device for record in self.records}))
        self.dropped = dropped
        self.before = before
        self.base_tick = base_tick
        self.taken = taken
        self.memory = memory
        self._by_id = {record.id: record for record in self.records}
        self.routines = {routine.number: routine for routine in routines}
        self.runs = RecordedRuns(runs)

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return f"<trace: {plural(len(self), 'record')}, {self.dropped} dropped>"

    @property
    def until(self) -> int:
        """When the trace was taken; if that is unknown, the latest time in the records. Linear in records."""
        return max((max(times(record)) for record in self.records), default=0) if not self.taken else self.taken

    def only(self, records: Iterable[Record]) -> Self:
        """Return the trace with some of its records.

        The others do not count as lost, but as `before`; up to the end of the last one of them, no edge counts as
        missing.

        :param records: The records to keep.
        :returns: The smaller trace.
        """
        chosen = tuple(records)
        ids = {record.id for record in chosen}
        others = [record for record in self.records if record.id not in ids]
        end = max((record.admitted for record in self.records), default=0)
        found = with_records(self, chosen)
        found.before += len(others)
        found.base_tick = max([self.base_tick, *(record.erased or end for record in others)])
        return found

    def find(self, instruction: int) -> Record | None:
        """Return the record of an instruction.

        :param instruction: The id of the instruction.
        :returns: The record; None if the ring lost it, or there was no such instruction.
        """
        return self._by_id.get(instruction)

    def run_of(self, record: Record) -> RunRecord | None:
        """Return the run to which an instruction belongs.

        :param record: The record of the instruction.
        :returns: The run; None if the instruction does not belong to a run.
        """
        if record.part is not None:
            found = self.runs.of(record)
            return found or RunRecord(record.session, record.part.routine, record.id, record.id, record.location)
        return self.runs.of(record)

    def run_title(self, record: Record) -> str:
        """Return the title of the run to which an instruction belongs, such as ``train_step #24``.

        :param record: The record of the instruction.
        :returns: The name of the routine, the first instruction of the run and, if the run has several segments, the
            number of the segment. Empty if the instruction does not belong to a run, or is a whole run.
        """
        run = self.run_of(record)
        if run is None or run.first == run.last:
            return ""
        return ", ".join(filter(None, (self.run_name(run), self.segment_title(record))))

    def run_name(self, run: RunRecord) -> str:
        """Return the name of a run, such as ``train_step #24``.

        :param run: The run.
        :returns: The name of its routine, and the id of its first instruction.
        """
        routine = self.routines.get(run.routine)
        return f"{'a run' if routine is None else routine.name or routine.digest[:12]} #{run.first}"

    def segment_title(self, record: Record) -> str:
        """Return which segment of its run an instruction is, such as ``segment 2 of 3``.

        :param record: The record of the instruction.
        :returns: The title; empty unless the instruction is one of several segments.
        """
        routine = None if record.part is None else self.routines.get(record.part.routine)
        firsts = [] if routine is None else sorted(segment.first for segment in routine.segments)
        if record.part is None or len(firsts) < 2 or record.part.first not in firsts:
            return ""
        return f"segment {1 + firsts.index(record.part.first)} of {len(firsts)}"

    def require(self, instruction: int) -> Record:
        """Return the record of an instruction.

        :param instruction: The id of the instruction.
        :returns: The record.
        :raises ProtocolError: The trace lacks the instruction; the message says which ids there are.
        """
        record = self._by_id.get(instruction)
        if record is None:
            raise ProtocolError(f"the trace has no instruction #{instruction}: {self._extent()}")
        return record

    def _extent(self) -> str:
        if not self.records:
            return "it is empty"
        lost = f", and lost {self.dropped} before them" if self.dropped else ""
        return f"it holds {len(self)} between #{min(self._by_id)} and #{max(self._by_id)}{lost}"


def with_records(trace: T, records: Iterable[Record]) -> T:
    """A copy of the trace with other records."""
    return type(trace)(
        records,
        devices=trace.devices,
        dropped=trace.dropped,
        before=trace.before,
        base_tick=trace.base_tick,
        taken=trace.until,
        memory=trace.memory,
        routines=trace.routines.values(),
        runs=trace.runs,
    )
