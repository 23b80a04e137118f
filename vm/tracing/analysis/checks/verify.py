"""Recomputes every edge of a trace from the operands, and compares it with the recorded edge.

After Legion's `legion_spy`, which recomputes every dependence of a run from its log. The records are replayed in the
order of their ticks through the model in `dependences`; each difference from the trace is a Problem. Also checked:
- ids, statuses, times and ticks of the records are possible;
- no instruction ran, or was erased, before the instructions for which it waits;
- an operand that an instruction only reads has the version that was written last;
- dependents of a launch wait for a fence;
- the segments of a run agree with the program of its routine (`segment_check`), where the trace has both.

Edges to instructions whose records the ring has overwritten, or that had finished before the recording began, cannot
be checked: they are not reported. Neither are missing edges of instructions that were admitted before the end of a
recording's last gap (`Trace.base_tick`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from .....interpreter.opcodes import traits_of
from ....model.reason import Reason
from ...record import EdgeRecord, OperandKind, Record
from ..inside.insides import Insides
from ..recorded.records import Records
from .dependences import AccessLists, Barriers, Key, LaunchProgress, is_fence

LIVE = frozenset({"WAITING", "READY", "DOOMED", "DISPATCHED", "EXECUTED"})
FINAL = frozenset({"DONE", "FAILED", "SKIPPED", "CANCELLED"})

_WRITES = frozenset({OperandKind.MUT, OperandKind.MUT2})
_TIMES = ("received", "ready", "dispatched", "started", "finished")


class ProblemKind(StrEnum):
    MISSING = "missing edge"
    SUPERFLUOUS = "superfluous edge"
    REASON = "wrong reason"
    DUPLICATE = "duplicate edge"
    ELIDED = "elided though visible"
    OVERTAKEN = "overtaken"
    EARLY = "started too early"
    TIMES = "times go backwards"
    TICKS = "impossible ticks"
    STATUS = "impossible status"
    IDS = "duplicate id"
    INSIDE = "wrong inside"
    VERSION = "wrong version"
    UNFENCED = "missing fence"


@dataclass(frozen=True, slots=True)
class Problem:
    """One contradiction in a trace. `source`: the source of the edge, `copy`: the copy; each 0 if there is none."""

    kind: ProblemKind
    instruction: int
    message: str
    source: int = 0
    copy: int = 0

    def __str__(self) -> str:
        return f"#{self.instruction}: {self.kind}: {self.message}"


def verify(trace: Records) -> list[Problem]:
    """All contradictions in a trace, those about edges first. O(n log n) in records and edges."""
    problems = list(_check_ids(trace))
    for record, expected in replay(trace):
        problems += _check_dependences(trace, record, expected)
    for record in trace.records:
        problems += _check_status_and_times(record)
        for edge in record.edges:
            problems += _check_wait(trace, record, edge)
    problems += _check_ticks(trace)
    problems += _check_fences(trace)
    problems += _check_versions(trace)
    problems += _check_segments(trace)
    return problems


def compared(trace: Records) -> int:
    """The number of segments that `verify` compares with their programs."""
    known = {(routine.number, segment.first) for routine in trace.routines.values() for segment in routine.segments}
    return len(known & {record.part[:2] for record in trace.records if record.part is not None})


def replay(trace: Records) -> Iterator[tuple[Record, dict[Key, Reason]]]:
    """Every record in the order of admission, with the edges that it must have had then."""
    lists, barriers = AccessLists(), Barriers()
    for _tick, phase, index in _events(trace):
        record = trace.records[index]
        if phase == _ADMITTED:
            yield record, lists.admit(record) | barriers.admit(record)
        else:
            lists.erase(record)
            barriers.erase(record)


# An instruction that ran at admission is erased at the next tick, which may also be the tick of the next admission: of
# events at one tick the erasure comes first. An impossible erasure, one that is not after the admission, is moved to
# directly after the admission.
_ERASED, _ADMITTED, _ERASED_TOO_EARLY = range(3)


def _events(trace: Records) -> list[tuple[int, int, int]]:
    events = []
    for index, record in enumerate(trace.records):
        events.append((record.admitted, _ADMITTED, index))
        if record.erased > record.admitted:
            events.append((record.erased, _ERASED, index))
        elif record.erased:
            events.append((record.admitted, _ERASED_TOO_EARLY, index))
    events.sort()
    return events


def _check_dependences(trace: Records, record: Record, expected: dict[Key, Reason]) -> Iterator[Problem]:
    recorded: set[Key] = set()
    for edge in record.edges:
        key = (edge.source, edge.copy)
        if key in recorded:
            yield _about(ProblemKind.DUPLICATE, record, edge, f"{_name(edge)} is recorded twice")
        elif key not in expected:
            yield from _superfluous(trace, record, edge)
        elif edge.reason != expected[key]:
            yield _about(ProblemKind.REASON, record, edge, f"{_name(edge)} should be {expected[key]}")
        recorded.add(key)
    if record.admitted <= trace.base_tick:
        return  # records may have been lost, and with them the reason for the missing edge
    for source, copy in sorted(expected.keys() - recorded):
        edge = EdgeRecord(source, expected[source, copy], copy, elided=False)
        yield _about(ProblemKind.MISSING, record, edge, f"{_name(edge)} should be there")


def _superfluous(trace: Records, record: Record, edge: EdgeRecord) -> Iterator[Problem]:
    source = trace.find(edge.source)
    if source is None and (trace.dropped or trace.before):
        return
    if source is not None and is_fence(source):
        return  # `_check_fences` checks edges to fences
    if source is None:
        why = "the trace has no such instruction"
    elif source is record:
        why = "no instruction waits for itself"
    elif source.admitted > record.admitted:
        why = "the source was admitted later"
    elif 0 < source.erased < record.admitted:
        why = "the source had already been erased"
    else:
        why = "the accesses of these two do not conflict"
    yield _about(ProblemKind.SUPERFLUOUS, record, edge, f"{_name(edge)} should not be there: {why}")


def _check_wait(trace: Records, record: Record, edge: EdgeRecord) -> Iterator[Problem]:
    """Check that the record waited as the edge says."""
    source = trace.find(edge.source)
    if source is None or source is record:
        return
    # The device orders these, by a stream or an event, so the record may be erased before its source.
    in_order = edge.reason == Reason.MEMORY or (record.launch and not is_fence(record))
    if record.erased and not 0 < source.erased < record.erased and not in_order:
        yield _about(ProblemKind.OVERTAKEN, record, edge, f"it was erased before #{source.id}, for which it waits")
    if edge.elided:
        yield from _check_elided(record, edge, source)
    elif record.started and (record.started < source.finished or source.status in LIVE):
        yield _about(ProblemKind.EARLY, record, edge, f"it started before #{source.id}, for which it waits, had ended")


def _check_elided(record: Record, edge: EdgeRecord, source: Record) -> Iterator[Problem]:
    if traits_of(record.opcode).host_visible:
        yield _about(ProblemKind.ELIDED, record, edge, f"an edge into {record.opcode} is never elided")
    if any(operand.copy == edge.copy and operand.kind == OperandKind.MUT2 for operand in source.operands):
        yield _about(ProblemKind.ELIDED, record, edge, "an edge from a mut2 write is never elided")


def _check_status_and_times(record: Record) -> Iterator[Problem]:
    """Check the status of a record, and the order of its times."""
    if record.status not in LIVE | FINAL:
        yield Problem(ProblemKind.STATUS, record.id, f"{record.status!a} is not a status")
    elif record.erased and record.status in LIVE:
        yield Problem(ProblemKind.STATUS, record.id, f"it is {record.status}, but was erased")
    reached = [(getattr(record, name), name) for name in _TIMES if getattr(record, name)]
    for (before, earlier), (after, later) in pairwise(reached):
        if after < before:
            yield Problem(ProblemKind.TIMES, record.id, f"it was {later} {before - after} ns before it was {earlier}")


def _check_ticks(trace: Records) -> Iterator[Problem]:
    """Check that no two events share a tick, except for the erasure of an instruction that ran at admission."""
    taken: dict[int, int] = {}
    for tick, phase, index in _events(trace):
        record = trace.records[index]
        if phase == _ERASED_TOO_EARLY:
            message = f"erased at tick {record.erased}, but admitted at {tick}"
            yield Problem(ProblemKind.TICKS, record.id, message)
        elif phase == _ERASED and tick == record.admitted + 1:
            continue
        elif tick in taken:
            yield Problem(ProblemKind.TICKS, record.id, f"tick {tick} is also a tick of #{taken[tick]}")
        taken[tick] = record.id


def _check_fences(trace: Records) -> Iterator[Problem]:
    """Check that each record that depends on a launch waits for a fence, unless it follows the launch on its stream."""
    launches = LaunchProgress()
    for _tick, phase, index in _events(trace):
        record = trace.records[index]
        if phase != _ADMITTED:
            launches.erase(record)
            continue
        for copy, device, number in launches.admit(record):
            sources = [trace.find(edge.source) for edge in record.edges if edge.copy == copy]
            if record.admitted <= trace.base_tick or any(one is None and trace.dropped for one in sources):
                continue
            if not any(one is not None and one.device == device and one.launch >= number for one in sources):
                message = (
                    f"it depends on launch {number} of {device} by copy {copy}, but does not wait for a fence after it"
                )
                yield Problem(ProblemKind.UNFENCED, record.id, message, copy=copy)


def _check_ids(trace: Records) -> Iterator[Problem]:
    for record in trace.records:
        if trace.find(record.id) is not record:
            yield Problem(ProblemKind.IDS, record.id, "another record has the same id")


def _check_versions(trace: Records) -> Iterator[Problem]:
    """Check versions, as far as they are known: an operand that is only read has the version that was written
    last, and a run of a routine makes new versions of the operands that it writes."""
    newest: dict[int, int] = {}
    for record in trace.records:
        if record.admitted <= trace.base_tick:
            continue  # the record of a later write may have been lost
        written = {operand.copy: operand.version for operand in record.operands if operand.kind in _WRITES}
        for copy, kind, version in record.operands:
            known = newest.get(copy, 0)
            if not version or not known:
                continue
            if kind == OperandKind.CONST and copy not in written and version != known:
                message = f"it reads version {version} of copy {copy}, which has version {known}"
                yield Problem(ProblemKind.VERSION, record.id, message, copy=copy)
            if kind in _WRITES and record.part is not None and version <= known:
                message = f"it writes version {version} of copy {copy}, which had version {known}"
                yield Problem(ProblemKind.VERSION, record.id, message, copy=copy)
        newest |= written


def _check_segments(trace: Records) -> Iterator[Problem]:
    """Check the compiled segments of routines, each segment once, and the times of calls."""
    insides = Insides(trace)
    firsts: dict[tuple[int, int], int] = {}
    for record in trace.records:
        if record.part is not None:
            firsts.setdefault(record.part[:2], record.id)
            for message in wrong_times(insides, record):
                yield Problem(ProblemKind.TIMES, record.id, message)
    for (routine, first), instruction in firsts.items():
        for message in wrong_segment(insides, routine, first):
            yield Problem(ProblemKind.INSIDE, instruction, message)


def _name(edge: EdgeRecord) -> str:
    about = f" about copy {edge.copy}" if edge.copy else ""
    return f"the {edge.reason} edge to #{edge.source}{about}"


def _about(kind: ProblemKind, record: Record, edge: EdgeRecord, message: str) -> Problem:
    return Problem(kind, record.id, message, edge.source, edge.copy)


def wrong_segment(insides: Insides, routine: int, first: int) -> Iterator[str]:
    """The faults of a routine's segment, in words. `first`: its first step."""
    known, segment = insides.routines.get(routine), insides.segments.get((routine, first))
    if known is None or segment is None:
        return
    from .segment_check import check_segment  # loads NumPy and the ops

    program = insides.program(routine)
    if program is None or program.digest != known.ran:
        yield f"the recorded program of {known.title} is not the one that was compiled"
        return
    for problem in check_segment(program, segment):
        yield f"{known.title}: {problem}"


def wrong_times(insides: Insides, record: Record) -> Iterator[str]:
    """The faults of the times of a run's calls, in words: the times must ascend, and lie within the run."""
    segment = insides.segment(record)
    if not record.stamps or segment is None:
        return
    if len(record.stamps) != 2 * len(segment.calls):
        yield f"{len(record.stamps)} times for {len(segment.calls)} calls"
        return
    times = (record.started, *record.stamps, *((record.finished,) if record.finished else ()))
    for number, (before, after) in enumerate(pairwise(times)):
        if after < before:
            yield f"the calls inside: time {number} is {before - after} ns before the one before it"
