"""The newest records of a watched daemon, for questions about them, which cost the daemon nothing."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ....vm.tracing.analysis.files.parts import RingSnapshot
    from ....vm.tracing.analysis.trace import Trace
    from ....vm.tracing.record import Record

CAPACITY: Final = 20_000  # records; some 40 MB


class Window:
    """The newest records. `missed`: records that the samples have left out."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._finished: OrderedDict[int, Record] = OrderedDict()
        self._live: dict[int, Record] = {}
        self._last: RingSnapshot | None = None
        self._gap = 0  # the tick of the end of the last gap
        self.missed = 0

    def add(self, picture: RingSnapshot) -> int:
        """Add a sample; returns the number of instructions that have finished since the last one."""
        finished = {record.id: record for record in picture.records if record.erased}
        self._live = {record.id: record for record in picture.records if not record.erased}
        before = picture.retired - len(finished) if self._last is None else self._last.retired
        count, self._last = picture.retired - before, picture
        if count > len(finished):
            self.missed += count - len(finished)
            self._gap = min((record.erased for record in finished.values()), default=picture.tick)
        self._finished.update(finished)
        while len(self._finished) > self._capacity:
            self._finished.popitem(last=False)
        return count

    @property
    def finished(self) -> int:
        return len(self._finished)

    @property
    def live(self) -> int:
        """The number of live instructions at the last sample."""
        return 0 if self._last is None else self._last.live

    def counts(self) -> Counter[int]:
        """The number of records by the session that caused them."""
        return Counter(record.caused_by for record in self._finished.values())

    def trace(self) -> Trace | None:
        """The records as a trace; None before the first sample."""
        from ....vm.tracing.analysis.trace import Trace

        last = self._last
        if last is None:
            return None
        records = (self._finished | self._live).values()
        return Trace(
            records,
            devices=last.devices,
            dropped=self.missed,
            base_tick=self._gap,
            taken=last.taken,
            memory=last.memory,
        )
