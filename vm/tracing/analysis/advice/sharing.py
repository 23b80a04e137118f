"""Sessions that delay another: on a stream that both use, their ops take on average at least `LONGER` times as long
as the other's.

Cost: the time in which an instruction of the delayed session was ready while the stream ran an op of the other
session, minus, for each op that delayed it, the mean length of the delayed session's own ops: it would have waited that
long if the other session's ops were as short as its own.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

from ...record import Record
from ..recorded.derived import ran
from ..recorded.stream_order import StreamOrder
from .finding import Evidence, Finding, finding

LONGER: Final = 4
Pair: TypeAlias = tuple[int, int]  # the session that delays, and the session that is delayed


def sessions_that_delay(evidence: Evidence) -> Iterator[Finding]:
    """Pairs of sessions on a stream, of which one delays the other."""
    for records in StreamOrder(evidence.trace).streams():
        ended = [record for record in records if record.finished and record.caused_by]
        if len({record.caused_by for record in ended}) > 1:
            yield from _on_stream(ended)


def _on_stream(records: Sequence[Record]) -> Iterator[Finding]:
    mean = means(records)
    for (holder, held), waited in waits(records).items():
        if mean[holder] >= LONGER * mean[held]:
            total = sum(waited.values())
            saved = max(0, total - round(mean[held]) * len(waited))
            by_id = {record.id: record for record in records}
            costs = [(by_id[id_], ns * saved // max(1, total)) for id_, ns in waited.items()]
            yield finding("held up", costs, sessions=(holder, held))


def means(records: Sequence[Record]) -> dict[int, float]:
    """The mean running time of each session's instructions."""
    total: Counter[int] = Counter()
    count: Counter[int] = Counter()
    for record in records:
        total[record.caused_by] += ran(record)
        count[record.caused_by] += 1
    return {session: total[session] / count[session] for session in count}


def waits(records: Sequence[Record]) -> dict[Pair, dict[int, int]]:
    """By pair, each instruction that delayed the other session, and for how many nanoseconds."""
    delays: dict[Pair, dict[int, int]] = defaultdict(dict)
    ready: Counter[int] = Counter()  # by session, how many instructions are ready
    since = 0
    runs: Record | None = None
    for time, begins, starts, record in sorted(_events(records), key=lambda event: event[:3]):
        if runs is not None and time > since:
            for session, count in ready.items():
                if count and session != runs.caused_by:
                    waited = delays[runs.caused_by, session]
                    waited[runs.id] = waited.get(runs.id, 0) + time - since
        since = time
        if begins:
            ready[record.caused_by] += 1
        elif starts:
            ready[record.caused_by] -= "memory" not in record.held
            if record.finished > record.started:  # otherwise its end came before its start in this order
                runs = record
        elif runs is record:
            runs = None
    return delays


def _events(records: Sequence[Record]) -> Iterator[tuple[int, bool, bool, Record]]:
    """The times at which instructions become ready, start and end, each with two flags: ready, started."""
    for record in records:
        if "memory" not in record.held:
            yield min(record.ready or record.started, record.started), True, False, record
        yield record.started, False, True, record
        yield record.finished, False, False, record
