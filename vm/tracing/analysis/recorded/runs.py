"""Which run an instruction is of: those of a session from the first to the last one of the run."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

from ...inside import RunRecord
from ...record import Record


class Runs:
    """The runs of a trace that were several instructions. A run that is said twice counts as said last."""

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
        """The run of an instruction, if it is one of these."""
        firsts = self._firsts.get(record.session)
        place = bisect_right(firsts, record.id) if firsts else 0
        if not firsts or not place:
            return None
        run = self._sessions[record.session][firsts[place - 1]]
        return run if not run.last or record.id <= run.last else None
